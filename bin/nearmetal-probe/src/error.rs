//! What can go wrong, with the value and the limit in the text, and the exit code that follows from it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use nearmetal_host::ReadError;
use nearmetal_host::files::FileError;
use nearmetal_units::ParseError;

/// A probe that did not measure, or did not bind.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// An argument outside its bounds.
    #[error("{what} is {value}, and must be from {low} to {high}")]
    Limit {
        /// The option.
        what: &'static str,
        /// As given, with its unit.
        value: String,
        /// Smallest accepted, with its unit.
        low: String,
        /// Largest accepted, with its unit.
        high: String,
    },
    /// An argument that is not what it should be.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// A server that accepted no connection.
    #[error("nothing at {address} accepted a connection within {seconds} s")]
    Unreached {
        /// Where.
        address: std::net::SocketAddr,
        /// How long was tried.
        seconds: u64,
        /// The last try's end.
        #[source]
        source: io::Error,
    },
    /// A system call the kernel refused.
    #[error("the kernel refused to {action}")]
    Kernel {
        /// The call in words, with its arguments.
        action: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A call that succeeded without the effect asked for.
    #[error("{what}: asked for {asked}, the kernel has {actual}")]
    NotApplied {
        /// What was to be set.
        what: &'static str,
        /// The value asked for.
        asked: String,
        /// The value read back.
        actual: String,
    },
    /// Memory that is not there: touching it would wake the out-of-memory killer.
    #[error("{asked} is more than the {available} free on {place}; choose a smaller --size")]
    Memory {
        /// The memory asked for, with its unit.
        asked: String,
        /// The memory to be had, with its unit.
        available: String,
        /// Where it was looked for.
        place: String,
    },
    /// Pages of another size than demanded by `--require-page-size`.
    #[error("the buffer is backed by {got} pages, {asked} were demanded ({reason})")]
    Backing {
        /// The page size demanded.
        asked: String,
        /// The page size found.
        got: String,
        /// Why, as far as the kernel said.
        reason: String,
    },
    /// A kernel file, or a captured tree, that cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// No lab, or a lab that does not count.
    #[error(
        "the processors of this machine do not count: only a lab's do, started with `nearmetal lab up --count work` (on silicon, use perf stat)"
    )]
    NotCounting,
    /// Counters of a lab that say nothing.
    #[error(transparent)]
    Counters(nearmetal_host::LabCountersError),
    /// A capture that could not be made or written.
    #[error(transparent)]
    Capture(#[from] nearmetal_capture::CaptureError),
    /// The measuring guest stopped in a way it should not.
    #[error("the measuring guest stopped with {exit} after {exits} exits to user space")]
    Guest {
        /// KVM's name of the exit.
        exit: String,
        /// Exits to user space seen until then.
        exits: u64,
    },
    /// A serial number that says of no disk, or of several, that it is meant.
    #[error("{found} disks have the serial number `{serial}`, and one must; there are: {all}")]
    NoSuchDisk {
        /// The number.
        serial: String,
        /// How many have it.
        found: usize,
        /// The names of all disks.
        all: String,
    },
    /// A program that ran and failed.
    #[error("`{program}` failed: {why}")]
    Program {
        /// Program and what it worked on.
        program: String,
        /// Its own words.
        why: String,
    },
    /// A program that could not be started.
    #[error("cannot start `{program}`")]
    Start {
        /// The program as given.
        program: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A gate that cannot be held or asked.
    #[error("the gate `{name}` {why}")]
    Gate {
        /// Its name.
        name: String,
        /// What is the matter with it.
        why: String,
    },
    /// The moment of a barrier that is over.
    #[error("came {late} ms late: the moment to begin was over; leave more time for the start")]
    Late {
        /// By how many milliseconds.
        late: u64,
    },
    /// A command run on somebody's behalf that failed; its own words are on its own output.
    #[error("`{program}` ended with {status}")]
    Ended {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A server that does not take all connections.
    #[error("the server at {address} took {open} of {all} connections within {seconds} s: {why}")]
    Server {
        /// Where it should answer.
        address: SocketAddr,
        /// Connections it took.
        open: usize,
        /// Connections it should take.
        all: usize,
        /// How long it had for that.
        seconds: u64,
        /// The last reason.
        why: String,
    },
    /// A generator that could not ask when it should have asked: its times would be its own.
    #[error(
        "the generator saw 1 request in 100 more than {late} ms late, and {limit} ms is the most that counts (--most-lag): give it more CPUs of its own, or lower --rate"
    )]
    GeneratorLate {
        /// Its 99th percentile, ms.
        late: u64,
        /// The limit, ms.
        limit: u64,
    },
    /// A generator that would be busy with itself.
    #[error(
        "--rate is {rate}, and the generator does {ceiling:.0} requests a second against itself: {most:.0} is the most it may be asked for; give it more --threads and CPUs"
    )]
    GeneratorTooSlow {
        /// As asked for, requests a second.
        rate: f64,
        /// What it does.
        ceiling: f64,
        /// What it may be asked for.
        most: f64,
    },
    /// A ceiling of a protocol that this program does not answer itself.
    #[error("--ceiling cannot be measured for {protocol}: nearmetal-probe answers http and imap itself; leave it out")]
    NoCeiling {
        /// The protocol.
        protocol: &'static str,
    },
    /// A place for contents that holds something.
    #[error("{} is not empty: it holds {}; name a new directory", directory.display(), holds.display())]
    NotEmpty {
        /// The place.
        directory: PathBuf,
        /// What it holds.
        holds: PathBuf,
    },
    /// A file of this program's own.
    #[error(transparent)]
    File(#[from] FileError),
    /// A run without a request.
    #[error("no request was due within {seconds} s: raise --rate or --seconds")]
    NothingOffered {
        /// Seconds that count.
        seconds: u64,
    },
    /// A thread of the measurement that died.
    #[error("a measuring thread ended early")]
    Thread,
    /// Standard output went away.
    #[error("cannot write the result")]
    Output(#[source] io::Error),
}

impl ProbeError {
    /// Shorthand for a refused system call.
    pub fn kernel(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Kernel { action: action.into(), source: source.into() }
    }

    /// 2 for wrong use, 3 when the machine refused.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Limit { .. } | Self::Text(_) | Self::NoCeiling { .. } => 2,
            _ => 3,
        }
    }
}

/// Checks a count against its bounds.
///
/// # Errors
/// [`ProbeError::Limit`] naming the option, the value and both bounds.
pub fn within(what: &'static str, value: u64, low: u64, high: u64) -> Result<u64, ProbeError> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(ProbeError::Limit { what, value: value.to_string(), low: low.to_string(), high: high.to_string() })
    }
}

/// The text of an error and of everything below it, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_error_names_option_value_and_both_bounds() {
        let error = within("--samples", 0, 3, 10_000).unwrap_err();
        assert_eq!(error.to_string(), "--samples is 0, and must be from 3 to 10000");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_refusal_prints_its_cause() {
        let error = ProbeError::kernel("bind", io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(error.exit_code(), 3);
        assert!(chain(&error).starts_with("the kernel refused to bind: Operation not permitted"));
    }
}
