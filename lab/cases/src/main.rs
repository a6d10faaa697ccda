//! The end-to-end cases: `./dev test` runs those that share one boot, `./dev test --all` the long ones too.
//!
//! A case is a function of a few lines in `cases/`. Results go to `target/lab-cases.json` as they come, and a second run
//! of the same build takes up where the first was interrupted.
#![allow(unreachable_pub, reason = "a program has no outside; `pub` marks what other modules use")]

mod cases;
mod context;
mod read_back;
mod record;

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clap::Parser;
use nearmetal_host::files;
use sha2::{Digest, Sha256};

use crate::cases::{Body, Case, Verdict};
use crate::context::Bench;
use crate::record::{CaseRecord, Outcome, Record};

/// Run the end-to-end cases
#[derive(Debug, Parser)]
struct Cli {
    /// The long ones too: every fault point, power loss, reboot, two labs
    #[arg(long)]
    all: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run cases again that passed already in this build
    #[arg(long)]
    again: bool,
    /// Labs beside each other, each with 8 GiB. On two cores two labs are each half as fast, or less: 12 emulated processors
    /// wait for each other
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    labs: u32,
    /// Leave shared labs running; the next run uses them
    #[arg(long)]
    keep_lab: bool,
    /// Print the names and end
    #[arg(long)]
    list: bool,
    /// Where the results go
    #[arg(long, value_name = "FILE", default_value = "target/lab-cases.json")]
    record: PathBuf,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::from(3)
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn run(cli: &Cli) -> anyhow::Result<bool> {
    let wanted =
        |case: &Case| (cli.all || !case.long) && cli.only.as_ref().is_none_or(|text| case.name.contains(text.as_str()));
    let all = cases::all();
    let chosen: Vec<&Case> = all.iter().filter(|case| wanted(case)).collect();
    if cli.list {
        chosen.iter().for_each(|case| say(case.name));
        return Ok(true);
    }
    let record = Record::resume(&cli.record, &build()?);
    let chosen: Vec<&Case> = chosen.into_iter().filter(|case| cli.again || !record.has_passed(case.name)).collect();
    let record = Mutex::new(record);
    let (several, one): (Vec<&Case>, Vec<&Case>) = chosen.into_iter().partition(|case| case.body.boots_several());
    let queue = Mutex::new(by_subject(&one));
    let desks = cli.labs.min(one.len() as u32).max(1);
    std::thread::scope(|scope| {
        let run = |number| Desk::new(number, cli, &record).work_off(&queue);
        // All are started before the first is waited for.
        let desks: Vec<_> = (0..desks).map(|number| scope.spawn(move || run(number))).collect();
        desks.into_iter().try_for_each(|desk| desk.join().map_err(|_| anyhow::anyhow!("a case panicked"))?)
    })?;
    // They have memory for nobody beside them.
    Desk::new(0, cli, &record).work_off(&Mutex::new(by_subject(&several)))?;
    let (passed, failed, skipped) = locked(&record).totals();
    say(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
    Ok(failed == 0)
}

/// Cases of one subject leave the guest as the next one wants it, so they stay together; those with labs of their own do not
/// care.
fn by_subject<'c>(cases: &[&'c Case]) -> VecDeque<Vec<&'c Case>> {
    let subject = |case: &Case| case.name.split('/').next().unwrap_or_default();
    let together = |one: &&Case, next: &&Case| {
        matches!((&one.body, &next.body), (Body::Shared(_), Body::Shared(_))) && subject(one) == subject(next)
    };
    cases.chunk_by(together).map(<[_]>::to_vec).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who runs one case after the other, in labs whose names nobody else's have.
struct Desk<'a> {
    number: u32,
    cli: &'a Cli,
    record: &'a Mutex<Record>,
    shared: Option<Bench>,
}

impl<'a> Desk<'a> {
    fn new(number: u32, cli: &'a Cli, record: &'a Mutex<Record>) -> Self {
        Self { number, cli, record, shared: None }
    }

    fn work_off(mut self, queue: &Mutex<VecDeque<Vec<&Case>>>) -> anyhow::Result<()> {
        context::sit_at(self.number);
        loop {
            // Not in the loop's head: the guard would be held while the cases run.
            let next = locked(queue).pop_front();
            let Some(cases) = next else { break };
            cases.into_iter().try_for_each(|case| self.carry_out(case))?;
        }
        if !self.cli.keep_lab {
            self.take_down();
        }
        Ok(())
    }

    fn carry_out(&mut self, case: &Case) -> anyhow::Result<()> {
        let clock = Instant::now();
        let mut first_attempt = None;
        let result = if rustix::process::geteuid().is_root() {
            self.attempt(case).or_else(|error| {
                // Emulated processors lose an interrupt now and then, and what they ran hangs. A fault of ours fails
                // in a fresh lab as well; a lab's own does not, and the record keeps what it was.
                first_attempt = Some(format!("{error:#}"));
                say(&format!("again {:49} {:6.1} s  {error:#}", case.name, clock.elapsed().as_secs_f64()));
                self.take_down();
                self.attempt(case)
            })
        } else {
            Ok(Verdict::CannotTry("the lab needs root".to_owned()))
        };
        let (outcome, detail) = match result {
            Ok(Verdict::Holds(detail)) => (Outcome::Passed, detail),
            Ok(Verdict::CannotTry(why)) => (Outcome::Skipped, why),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        let seconds = clock.elapsed().as_secs_f64();
        let word = match outcome {
            Outcome::Passed => "ok  ",
            Outcome::Failed => "FAIL",
            Outcome::Skipped => "skip",
        };
        say(&format!("{word} {:50} {seconds:6.1} s  {}", case.name, detail.chars().take(4000).collect::<String>()));
        locked(self.record).add(case.name, CaseRecord { outcome, detail, first_attempt, seconds })
    }

    fn attempt(&mut self, case: &Case) -> anyhow::Result<Verdict> {
        match case.body {
            Body::Shared(body) => self.bench().and_then(body),
            Body::Alone(body) | Body::Several(body) => {
                self.take_down();
                context::forget_own();
                body().inspect_err(|_| context::take_down_own(say))
            }
        }
    }

    fn bench(&mut self) -> anyhow::Result<&Bench> {
        if self.shared.as_ref().is_none_or(|bench| !bench.lab.is_alive()) {
            self.shared = Some(Bench::attach_or_up("cases")?);
        }
        self.shared.as_ref().ok_or_else(|| anyhow::anyhow!("no lab"))
    }

    fn take_down(&mut self) {
        if let Some(bench) = self.shared.take() {
            if let Err(error) = bench.lab.down() {
                say(&format!("the shared lab was not taken down: {error}"));
            }
        }
    }
}

/// One hash over the programs under test and this one.
fn build() -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for path in context::program_paths()?.into_iter().chain([std::env::current_exe()?]) {
        hash.update(files::read(&path)?);
    }
    Ok(format!("{:x}", hash.finalize()))
}
