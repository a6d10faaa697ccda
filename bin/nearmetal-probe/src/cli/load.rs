//! `load`: definitions and help only.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use nearmetal_probe::load::mailbox::Mail;
use nearmetal_probe::load::respond::Served;
use nearmetal_probe::load::run::{Settings, Target};
use nearmetal_probe::load::site::{CLASSES, Site};
use nearmetal_probe::load::sql::{FEWEST_ROWS, MOST, Tables};
use nearmetal_probe::load::web::{Pages, is_path};

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    Http(HttpArguments),
    Imap(ImapArguments),
    Sql(SqlArguments),
    /// Answer as a server does, to try the generator or the way to it; ends with --seconds
    ///
    /// This is what --ceiling measures against. It answers from memory, a thread for each connection, and is not a server
    /// whose speed says anything.
    Respond {
        #[command(subcommand)]
        what: RespondCommand,
    },
}

/// When requests are due, and how long.
#[derive(Debug, Args)]
pub(crate) struct PaceArguments {
    /// Where the server answers, such as 192.0.2.1:80 or [2001:db8::1]:80
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Requests a second on average, due at moments drawn from --seed (exponential gaps), whatever the server does
    #[arg(long, value_name = "NUMBER", required_unless_present = "closed")]
    rate: Option<f64>,
    /// Ask again as soon as an answer is there, on each connection: the most that the server does. Gives no latencies, since
    /// a server that stands still is not asked meanwhile
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// Seconds that count: 1 to 3600
    #[arg(long, value_name = "NUMBER", default_value_t = 30)]
    seconds: u64,
    /// Seconds before them: 0 to 3600
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    ramp: u64,
    /// Connections: 1 to 10000. A request that finds none free waits, and its time counts
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    connections: u64,
    /// Threads of the generator: 1 to 256, and no more than connections
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: u64,
    /// How long after it was due a request may be without its answer, in ms: 1 to 600000
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    timeout: u64,
    /// How long the server may take to accept all connections, in seconds: 0 to 3600
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    patience: u64,
    /// Count the requests answered within so many ms: 1 to 600000; may be repeated
    #[arg(long, value_name = "NUMBER")]
    within: Vec<u64>,
    /// How late the generator may see that a request is due: the 99th percentile, in ms; beyond, there are no figures (exit 3)
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    most_lag: u64,
    /// First measure for so many seconds (1 to 60) what the generator does against itself, and refuse a --rate of more than
    /// half of that (exit 3)
    #[arg(long, value_name = "NUMBER")]
    ceiling: Option<u64>,
    /// Seed of moments, classes and requests; use the same on both sides of a comparison
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

impl PaceArguments {
    fn settings(&self, target: Target) -> Settings {
        Settings {
            address: self.address,
            target,
            rate: self.rate,
            seconds: self.seconds,
            ramp: self.ramp,
            connections: self.connections,
            threads: self.threads,
            timeout: self.timeout,
            patience: self.patience,
            within: self.within.clone(),
            most_lag: self.most_lag,
            ceiling: self.ceiling,
            seed: self.seed,
        }
    }
}

/// A generated site.
#[derive(Debug, Args)]
pub(crate) struct SiteArguments {
    /// Seed of the site's contents, as its server was told
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    site: u64,
    /// Directories of the site, of 5 MB each: 1 to 99999
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=99_999))]
    directories: u32,
}

impl SiteArguments {
    pub(crate) fn site(&self) -> Site {
        Site { seed: self.site, directories: self.directories }
    }
}

/// Generated mail.
#[derive(Debug, Args)]
pub(crate) struct MailArguments {
    /// Seed of the messages, as the server was told
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    mail: u64,
    /// Users: 1 to 9999
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=9_999))]
    users: u32,
    /// Messages in each inbox at the beginning: 1 to 100000
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
}

impl MailArguments {
    pub(crate) fn mail(&self) -> Mail {
        Mail { seed: self.mail, users: self.users, messages: self.messages }
    }
}

/// Ask a web server for pages, each at its own moment, and measure how long each takes from that moment
///
/// Requests are due at random moments that --rate and --seed decide before the run. A server that stands still delays all
/// requests that are due meanwhile, and the percentiles show it. Percentiles count requests without an answer as longer than
/// any other (`null` if they fall among these). `generator.lag` is how late the generator itself was.
///
/// Without --path, the pages are those of a generated site, and each answer must be the right file: `serve web` makes the
/// same site for a server. Sizes and their weights are those of SPECweb99's static files; this is not that benchmark.
///
/// Run it on CPUs that the server does not use.
///
/// Example: nearmetal-probe load http --address 192.0.2.10:80 --rate 200 --within 3000 --within 5000
#[derive(Debug, Args)]
pub(crate) struct HttpArguments {
    #[command(flatten)]
    pace: PaceArguments,
    #[command(flatten)]
    site: SiteArguments,
    /// A path of your own and its weight, such as /index.html=3; may be repeated
    #[arg(long, value_name = "PATH=WEIGHT", value_parser = path, conflicts_with_all = ["site", "directories"])]
    path: Vec<(String, u32)>,
    /// Only files of this class: below-1kb, below-10kb, below-100kb or below-1mb [default: all, by their weights]
    #[arg(long, value_name = "CLASS", value_parser = class, conflicts_with = "path")]
    only: Option<usize>,
    /// What the header `Host` says [default: the address]
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Option<String>,
}

impl HttpArguments {
    pub(crate) fn settings(&self) -> Settings {
        let host = self.host.clone().unwrap_or_else(|| self.pace.address.to_string());
        let (paths, weights): (Vec<String>, Vec<u32>) = self.path.iter().cloned().unzip();
        self.pace.settings(match paths.is_empty() {
            true => match self.only {
                None => Target::site(&host, self.site.site()),
                Some(class) => Target::files(&host, self.site.site(), class),
            },
            false => Target::Http { host, pages: Pages::Paths(paths), weights },
        })
    }
}

/// Read, search, write and log into mail over IMAP, each at its own moment, and measure how long each takes from that moment
///
/// As `load http`, with connections that stay logged in: of 100 requests 70 fetch a whole message, 10 search subjects, 15
/// append a message, and 5 connect, log in and select the inbox. Users and messages are those that `serve mail` makes for a
/// server. The mix is nearmetal's own.
///
/// Example: nearmetal-probe load imap --address 192.0.2.10:143 --rate 20 --within 5000
#[derive(Debug, Args)]
pub(crate) struct ImapArguments {
    #[command(flatten)]
    pace: PaceArguments,
    #[command(flatten)]
    mail: MailArguments,
}

impl ImapArguments {
    pub(crate) fn settings(&self) -> Settings {
        self.pace.settings(Target::Imap(self.mail.mail()))
    }
}

/// Run transactions on a MariaDB server, each at its own moment, and measure how long each takes from that moment
///
/// As `load http`, with connections that stay logged in. The tables are those of sysbench (`sbtest1`, `sbtest2`, … in the
/// database `sbtest`), and a transaction has the 20 statements of its oltp_read_write: reads of rows and of ranges, two updates,
/// a row deleted and put back. A statement that fails or finds other rows than it must is a failed transaction.
///
/// The server must let root in without a password, and must write transactions to its drive when they are committed
/// (innodb_flush_log_at_trx_commit = 1, O_DIRECT, doublewrite): with other settings it is not driven.
///
/// Example: nearmetal-probe load sql --address 192.0.2.10:3306 --rate 20 --tables 4 --rows 10000 --within 2000
#[derive(Debug, Args)]
pub(crate) struct SqlArguments {
    #[command(flatten)]
    pace: PaceArguments,
    /// Tables: 1 to 64
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST.1)))]
    tables: u32,
    /// Rows of each: 500 to 100000000
    #[arg(long, value_name = "COUNT", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(i64::from(FEWEST_ROWS)..=i64::from(MOST.0)))]
    rows: u32,
}

impl SqlArguments {
    pub(crate) fn settings(&self) -> Settings {
        self.pace.settings(Target::Sql(Tables { tables: self.tables, rows: self.rows }))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum RespondCommand {
    /// Answer GET requests for a generated site
    Http {
        #[command(flatten)]
        site: SiteArguments,
        #[command(flatten)]
        listen: ListenArguments,
    },
    /// Answer the IMAP commands of `load imap`
    Imap {
        #[command(flatten)]
        mail: MailArguments,
        #[command(flatten)]
        listen: ListenArguments,
    },
}

/// Where and how long.
#[derive(Debug, Args)]
pub(crate) struct ListenArguments {
    /// Where to listen, such as 192.0.2.10:80
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// How long, in seconds: 1 to 86400
    #[arg(long, value_name = "NUMBER", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
}

impl RespondCommand {
    pub(crate) fn what(&self) -> (&ListenArguments, Served) {
        match self {
            Self::Http { site, listen } => (listen, Served::Site(site.site())),
            Self::Imap { mail, listen } => (listen, Served::Mail(mail.mail())),
        }
    }
}

/// `/index.html=3`; the weight is behind the last `=`, since paths may have some.
fn path(text: &str) -> Result<(String, u32), String> {
    let (path, weight) = text.rsplit_once('=').ok_or("a weight is missing: /index.html=3")?;
    if !is_path(path) {
        return Err(format!(
            "`{path}` is not a path: it must begin with / and have neither spaces nor control characters"
        ));
    }
    let weight = weight.parse().map_err(|_| format!("`{weight}` is not a weight: it must be a whole number"))?;
    Ok((path.to_owned(), weight))
}

/// The number of a class of files.
fn class(text: &str) -> Result<usize, String> {
    let names = CLASSES.map(|class| class.name).join(", ");
    let found = CLASSES.iter().position(|class| class.name == text);
    found.ok_or_else(|| format!("`{text}` is not a class of files: {names}"))
}

fn host(text: &str) -> Result<String, String> {
    let is_fit = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_fit.then(|| text.to_owned()).ok_or_else(|| "a name has neither spaces nor control characters".to_owned())
}

/// For a person at the terminal: what the run amounts to.
pub(crate) fn remark_of(load: &nearmetal_probe::load::figures::Load) -> String {
    let mut text = format!(
        "{} of {} requests answered, {:.1} a second",
        load.all.answered, load.all.offered, load.finished_per_second
    );
    if let Some(p99) = load.all.latency.as_ref().and_then(|latency| latency.p99) {
        text.push_str(&format!("; 99 % within {:.1} ms", p99 as f64 / 1e6));
    }
    load.failures.iter().for_each(|failure| text.push_str(&format!("; {} failed: {}", failure.count, failure.first)));
    text
}
