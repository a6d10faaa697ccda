//! A whole run: the ceiling where it is asked for, the threads, and what they found as one document.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{ProbeError, within};
use crate::load::arrivals::{Arrivals, Mix};
use crate::load::dialogue::Dialogue;
use crate::load::drive::{Generator, Pace, Plan};
use crate::load::figures::{self, FailureCount, Figures, Load, MOST_OF_CEILING};
use crate::load::histogram::Histogram;
use crate::load::mail::{self, ImapUser};
use crate::load::mailbox::Mail;
use crate::load::respond::{Responder, Served};
use crate::load::site::{self, Site};
use crate::load::sql::{Session, Tables};
use crate::load::tally::Tally;
use crate::load::web::{Pages, Web};
use crate::random::Random;
use crate::system::clock;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Connections accepted, all threads together.
pub const CONNECTIONS: (u64, u64) = (1, 10_000);
/// Threads accepted.
pub const THREADS: (u64, u64) = (1, 256);
/// Seconds accepted.
pub const SECONDS: (u64, u64) = (1, 3_600);
/// Requests a second accepted.
pub const RATE: (f64, f64) = (0.01, 10_000_000.0);
/// Timeouts and limits of times accepted, ms.
pub const TIMES: (u64, u64) = (1, 600_000);

/// Who is asked for what.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A web server.
    Http {
        /// What the header `Host` says.
        host: String,
        /// What is asked for.
        pages: Pages,
        /// How often each class of it is.
        weights: Vec<u32>,
    },
    /// A mail server, whose mail is this.
    Imap(Mail),
    /// A database with these tables.
    Sql(Tables),
}

impl Target {
    /// A generated site with the weights of its classes.
    pub fn site(host: &str, site: Site) -> Self {
        let weights = site::CLASSES.iter().map(|class| class.weight).collect();
        Self::Http { host: host.to_owned(), pages: Pages::Site(site), weights }
    }

    /// The files of one class of a generated site.
    pub fn files(host: &str, site: Site, class: usize) -> Self {
        let weights = (0..site::CLASSES.len()).map(|number| u32::from(number == class)).collect();
        Self::Http { host: host.to_owned(), pages: Pages::Site(site), weights }
    }

    fn protocol(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::Imap(_) => "imap",
            Self::Sql(_) => "sql",
        }
    }

    fn weights(&self) -> Vec<u32> {
        match self {
            Self::Http { weights, .. } => weights.clone(),
            Self::Imap(_) => mail::CLASSES.iter().map(|(_, weight)| *weight).collect(),
            Self::Sql(_) => vec![1],
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Http { pages: Pages::Site(_), .. } => {
                site::CLASSES.iter().map(|class| class.name.to_owned()).collect()
            }
            Self::Http { pages: Pages::Paths(paths), .. } => paths.clone(),
            Self::Imap(_) => mail::CLASSES.iter().map(|(name, _)| (*name).to_owned()).collect(),
            Self::Sql(_) => vec!["transaction".to_owned()],
        }
    }

    /// The same, as this program's own responder has it; it has no database.
    fn served(&self) -> Option<Served> {
        match self {
            Self::Http { pages: Pages::Site(site), .. } => Some(Served::Site(*site)),
            // A small page, whatever the path.
            Self::Http { .. } => Some(Served::Page(1 << 10)),
            Self::Imap(mail) => Some(Served::Mail(*mail)),
            Self::Sql(_) => None,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the server answers.
    pub address: SocketAddr,
    /// What it is asked for.
    pub target: Target,
    /// Requests a second on average; `None`: a closed loop.
    pub rate: Option<f64>,
    /// Seconds that count.
    pub seconds: u64,
    /// Seconds before them.
    pub ramp: u64,
    /// Connections of all threads together.
    pub connections: u64,
    /// Threads.
    pub threads: u64,
    /// How long after it was due a request may be without its answer, ms.
    pub timeout: u64,
    /// Seconds that the server may take to be there.
    pub patience: u64,
    /// Limits of time by which answers are counted, ms.
    pub within: Vec<u64>,
    /// How late the generator may be: the 99th percentile, ms.
    pub most_lag: u64,
    /// Seconds for which the generator's own ceiling is measured first; `None`: it is not.
    pub ceiling: Option<u64>,
    /// Seed of moments, classes and requests.
    pub seed: u64,
}

impl Settings {
    fn check(&self) -> Result<(), ProbeError> {
        within("--connections", self.connections, CONNECTIONS.0, CONNECTIONS.1)?;
        within("--threads", self.threads, THREADS.0, THREADS.1.min(self.connections))?;
        within("--seconds", self.seconds, SECONDS.0, SECONDS.1)?;
        within("--ramp", self.ramp, 0, SECONDS.1)?;
        within("--patience", self.patience, 0, SECONDS.1)?;
        within("--timeout", self.timeout, TIMES.0, TIMES.1)?;
        within("--most-lag", self.most_lag, TIMES.0, TIMES.1)?;
        self.within.iter().try_for_each(|limit| within("--within", *limit, TIMES.0, TIMES.1).map(drop))?;
        self.ceiling.iter().try_for_each(|seconds| within("--ceiling", *seconds, 1, 60).map(drop))?;
        let rate = self.rate.unwrap_or(RATE.0);
        if !(RATE.0..=RATE.1).contains(&rate) {
            let (low, high) = (RATE.0.to_string(), RATE.1.to_string());
            return Err(ProbeError::Limit { what: "--rate", value: rate.to_string(), low, high });
        }
        Ok(())
    }

    fn mix(&self) -> Result<Mix, ProbeError> {
        let weights = self.target.weights();
        Mix::new(&weights).ok_or_else(|| ProbeError::Limit {
            what: "the sum of all weights",
            value: weights.iter().map(|weight| u64::from(*weight)).sum::<u64>().to_string(),
            low: "1".to_owned(),
            high: u32::MAX.to_string(),
        })
    }
}

/// Runs it.
///
/// # Errors
/// The server is not there, the generator was late or its ceiling too low, or no request was due.
pub fn measure(settings: &Settings) -> Result<Load, ProbeError> {
    settings.check()?;
    let ceiling = settings.ceiling.map(|seconds| ceiling(settings, seconds)).transpose()?;
    if let (Some(ceiling), Some(rate)) = (ceiling, settings.rate) {
        if rate > ceiling * MOST_OF_CEILING {
            return Err(ProbeError::GeneratorTooSlow { rate, ceiling, most: ceiling * MOST_OF_CEILING });
        }
    }
    let (tally, began) = driven(settings)?;
    let is_open = settings.rate.is_some();
    let (all, classes) = Figures::of(&tally, &settings.target.names(), &settings.within, is_open);
    if all.offered == 0 {
        return Err(ProbeError::NothingOffered { seconds: settings.seconds });
    }
    let lag = is_open.then(|| tally.lag.figures(0));
    punctual(&tally.lag, settings.most_lag)?;
    let failure = |(kind, (count, first)): (&_, &(u64, String))| FailureCount {
        kind: *kind,
        count: *count,
        first: first.clone(),
    };
    let began_ms = began.as_nanos() as f64 / 1e6 + (settings.ramp * 1000) as f64;
    Ok(Load {
        protocol: settings.target.protocol(),
        address: settings.address.to_string(),
        pace: if is_open { "open" } else { "closed" },
        rate: settings.rate,
        seed: settings.seed,
        connections: settings.connections,
        threads: settings.threads,
        ramp_seconds: settings.ramp,
        seconds: settings.seconds,
        timeout_ms: settings.timeout,
        began_ms,
        ended_ms: began_ms + (settings.seconds * 1000) as f64,
        finished: tally.finished,
        finished_per_second: tally.finished as f64 / settings.seconds as f64,
        bytes_per_second: tally.bytes as f64 / settings.seconds as f64,
        reconnects: tally.reconnects,
        all,
        classes,
        failures: tally.failures.iter().map(failure).collect(),
        lost: tally.lost.iter().map(failure).collect(),
        generator: figures::Generator { lag, most_lag_ms: settings.most_lag, ceiling_per_second: ceiling },
    })
}

/// Refuses a generator of which more than 1 in 100 requests were later than so many ms.
fn punctual(lag: &Histogram, most: u64) -> Result<(), ProbeError> {
    match lag.percentile(9_900, 0).filter(|p99| *p99 > most * MILLISECOND) {
        Some(p99) => Err(ProbeError::GeneratorLate { late: p99 / MILLISECOND, limit: most }),
        None => Ok(()),
    }
}

/// What the generator does a second against its own responder, which shares this process's CPUs: the true ceiling is higher.
fn ceiling(settings: &Settings, seconds: u64) -> Result<f64, ProbeError> {
    let served = settings.target.served().ok_or(ProbeError::NoCeiling { protocol: settings.target.protocol() })?;
    let responder = Responder::start(SocketAddr::from(([127, 0, 0, 1], 0)), served)?;
    let own = Settings {
        address: responder.address(),
        rate: None,
        seconds,
        ramp: 0,
        within: Vec::new(),
        ceiling: None,
        ..settings.clone()
    };
    let (tally, _) = driven(&own)?;
    if let Some((count, why)) = tally.failures.values().next() {
        return Err(ProbeError::Server {
            address: own.address,
            open: 0,
            all: *count as usize,
            seconds,
            why: format!("the generator's own responder failed: {why}"),
        });
    }
    Ok(tally.finished as f64 / seconds as f64)
}

/// Starts the threads; gives what they counted, and when they began, since 1970.
fn driven(settings: &Settings) -> Result<(Tally, Duration), ProbeError> {
    match &settings.target {
        Target::Http { host, pages, .. } => threads(settings, |_| Web::new(host, pages.clone())),
        Target::Imap(mail) => {
            threads(settings, |connection| ImapUser::new((connection % u64::from(mail.users)) as u32))
        }
        Target::Sql(tables) => threads(settings, |_| Session::new(*tables)),
    }
}

struct Start {
    barrier: Barrier,
    failed: AtomicBool,
    /// By the probe's clock, ns.
    at: AtomicU64,
    /// Since 1970, ns.
    wall: AtomicU64,
}

fn threads<D: Dialogue>(
    settings: &Settings,
    dialogue: impl Fn(u64) -> D + Sync,
) -> Result<(Tally, Duration), ProbeError> {
    let mix = settings.mix()?;
    let count = settings.threads;
    let start = Start {
        barrier: Barrier::new(count as usize),
        failed: AtomicBool::new(false),
        at: AtomicU64::new(0),
        wall: AtomicU64::new(0),
    };
    // Independent streams of requests make one of the sum of their rates; each thread has its own seed.
    let mut seeds = Random::new(settings.seed);
    let plans: Vec<Plan> = (0..count)
        .map(|_| Plan {
            address: settings.address,
            pace: match settings.rate {
                Some(rate) => Pace::Open(Arrivals::new(seeds.next_u64(), rate / count as f64, mix.clone())),
                None => Pace::Closed(mix.clone()),
            },
            classes: settings.target.weights().len(),
            ramp: settings.ramp * SECOND,
            length: settings.seconds * SECOND,
            timeout: settings.timeout * MILLISECOND,
            patience: settings.patience * SECOND,
            limits: settings.within.iter().map(|limit| limit * MILLISECOND).collect(),
            seed: seeds.next_u64(),
        })
        .collect();
    let (start, dialogue) = (&start, &dialogue);
    let results: Vec<Result<Tally, ProbeError>> = std::thread::scope(|scope| {
        let one = |(number, plan): (u64, Plan)| {
            scope.spawn(move || {
                let own = (0..settings.connections).filter(|connection| connection % count == number);
                run(&plan, own.map(dialogue), start)
            })
        };
        let running: Vec<_> = (0..count).zip(plans).map(one).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(Err(ProbeError::Thread))).collect()
    });
    // The reason of one that failed comes before the word of those that stopped for it.
    let mut results = results.into_iter().collect::<Vec<_>>();
    results.sort_by_key(|result| matches!(result, Err(ProbeError::Thread)));
    let mut sum = Tally::new(settings.target.weights().len(), &[]);
    for (number, result) in results.into_iter().enumerate() {
        let tally = result?;
        if number == 0 { sum = tally } else { sum.add(&tally) }
    }
    Ok((sum, Duration::from_nanos(start.wall.load(Ordering::SeqCst))))
}

/// One thread: all call the same barriers the same number of times, whatever fails.
fn run<D: Dialogue>(plan: &Plan, dialogues: impl Iterator<Item = D>, start: &Start) -> Result<Tally, ProbeError> {
    let mut generator = Generator::new(plan, dialogues);
    let opened = generator.open();
    if opened.is_err() {
        start.failed.store(true, Ordering::SeqCst);
    }
    if start.barrier.wait().is_leader() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        start.wall.store(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        start.at.store(clock::nanoseconds(), Ordering::SeqCst);
    }
    start.barrier.wait();
    opened?;
    if start.failed.load(Ordering::SeqCst) {
        return Err(ProbeError::Thread);
    }
    generator.run(start.at.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests;
