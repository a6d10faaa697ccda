//! Lines of JSON about a run, and how it ended.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use nearmetal_host::files::{self, FileError};
use nearmetal_hypervisor::agent::ExecStatus;
use nearmetal_run::RunError;
use nearmetal_run::console::Sink;
use nearmetal_run::course::End as CourseEnd;
use nearmetal_run::event::{Event, EventKind, Outcome, SCHEMA};
use nearmetal_run::output::{NotStarted, Output};

use crate::exit_status::ExitStatus;

/// Where lines go, if anywhere.
pub(super) struct Events {
    began: Instant,
    sink: Option<Box<dyn Write>>,
    pub(super) run: Option<String>,
}

impl Events {
    /// To a file, which is begun anew, or to stderr; `None`: nowhere.
    pub(super) fn to(path: Option<&Path>) -> anyhow::Result<Self> {
        let sink = path.map(file_or_stderr).transpose()?;
        Ok(Self { began: Instant::now(), sink: sink.map(|sink| sink as Box<dyn Write>), run: None })
    }

    /// To whoever writes lines on.
    pub(super) fn into(sink: Box<dyn Write>) -> Self {
        Self { began: Instant::now(), sink: Some(sink), run: None }
    }

    /// A line that somebody else has made.
    pub(super) fn pass_on(&mut self, line: &[u8]) {
        if let Some(sink) = &mut self.sink {
            let _ = sink.write_all(line).and_then(|()| sink.flush());
        }
    }

    /// One line. A run goes on where nobody can be told of it.
    pub(super) fn tell(&mut self, kind: EventKind) {
        let Some(sink) = &mut self.sink else { return };
        let seconds = (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let event = Event { schema: SCHEMA, seconds, run: self.run.clone(), kind };
        if let Ok(line) = serde_json::to_string(&event) {
            let _ = sink.write_all(format!("{line}\n").as_bytes()).and_then(|()| sink.flush());
        }
    }

    /// The last line.
    pub(super) fn ended(&mut self, end: &End) {
        let End { outcome, reason, .. } = end;
        self.tell(EventKind::Ended { outcome: *outcome, code: end.code, reason: reason.clone() });
    }
}

/// A file, which is begun anew; stderr for `-`.
pub(super) fn file_or_stderr(path: &Path) -> Result<Sink, FileError> {
    Ok(match path.as_os_str() == "-" {
        true => Box::new(std::io::stderr()),
        false => Box::<File>::new(files::create(path)?),
    })
}

/// What comes of a run; `None` of a dry one.
pub(super) type Ended = Result<Option<CourseEnd>, RunError>;

/// How a run ended, for everybody.
pub(super) struct End {
    pub(super) status: ExitStatus,
    outcome: Outcome,
    code: u8,
    /// Why, where it is not the command's own end; what is missing of its output.
    pub(super) reason: Option<String>,
}

impl End {
    /// What came of a run.
    pub(super) fn of(ended: &Ended) -> Self {
        let failed = |error: &RunError| {
            let wrong = error.is_wrong_use();
            let (status, code) = if wrong { (ExitStatus::WrongUse, 2) } else { (ExitStatus::Refused, 3) };
            Self { status, outcome: Outcome::Failed, code, reason: Some(chain(error)) }
        };
        let end = match ended {
            Err(error) => return failed(error),
            Ok(None) => return Self { status: ExitStatus::Done, outcome: Outcome::Exited, code: 0, reason: None },
            Ok(Some(end)) => end,
        };
        let code = match end.code() {
            Ok(code) => code,
            Err(error) => return failed(&error),
        };
        let (outcome, reason) = match end {
            CourseEnd::Command(Output { status: ExecStatus::Exited(_), missing, .. }) => {
                (Outcome::Exited, missing.clone())
            }
            CourseEnd::Command(Output { status: ExecStatus::Signal(signal), missing, .. }) => {
                let missing = missing.as_ref().map(|missing| format!("; {missing}")).unwrap_or_default();
                (Outcome::Signal, Some(format!("signal {signal} ended the command{missing}")))
            }
            CourseEnd::NotStarted(NotStarted { why, .. }) => {
                let reason = format!("the guest could not start the command: {why}");
                (Outcome::NotStarted, Some(reason))
            }
            CourseEnd::TimeLimit(limit) => {
                let seconds = limit.as_secs();
                (
                    Outcome::TimeLimit,
                    Some(format!("the command did not end within {seconds} s, and was ended with its guest")),
                )
            }
            CourseEnd::Interrupted(signal) => {
                (Outcome::Interrupted, Some(format!("signal {signal} ended the run, and its guest with it")))
            }
        };
        Self { status: ExitStatus::Program(code), outcome, code, reason }
    }

    /// Of a run whose output could not be passed on. The caller says why.
    pub(super) fn output_lost() -> Self {
        let reason = Some("stdout or stderr could not be written, so the command's output is incomplete".to_owned());
        Self { status: ExitStatus::Refused, outcome: Outcome::Failed, code: 3, reason }
    }

    /// The exit code of `nearmetal run`.
    pub(super) fn code(&self) -> u8 {
        self.code
    }

    /// What people are told.
    pub(super) fn sentence(&self, reason: &str) -> String {
        match self.outcome {
            Outcome::Failed => format!("error: {reason}"),
            _ => reason.to_owned(),
        }
    }
}

/// An error and its causes on one line.
fn chain(error: &RunError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_of_the_output_is_the_reason_beside_the_commands_own_code() {
        let of = |status, missing: Option<&str>| {
            let missing = missing.map(str::to_owned);
            let output = Output { status, stdout: Vec::new(), stderr: Vec::new(), missing };
            let End { outcome, code, reason, .. } = End::of(&Ok(Some(CourseEnd::Command(output))));
            (outcome, code, reason)
        };
        assert_eq!(of(ExecStatus::Exited(7), None), (Outcome::Exited, 7, None));
        assert_eq!(of(ExecStatus::Exited(7), Some("gone")), (Outcome::Exited, 7, Some("gone".to_owned())));
        let reason = Some("signal 9 ended the command; gone".to_owned());
        assert_eq!(of(ExecStatus::Signal(9), Some("gone")), (Outcome::Signal, 137, reason));
    }

    #[test]
    fn a_command_that_may_not_be_executed_was_not_started() {
        let why = "`/tmp`: it is a directory in the guest".to_owned();
        let end = End::of(&Ok(Some(CourseEnd::NotStarted(NotStarted { why, code: 126 }))));
        assert_eq!((end.outcome, end.code), (Outcome::NotStarted, 126));
        let reason = end.reason.unwrap();
        assert_eq!(reason, "the guest could not start the command: `/tmp`: it is a directory in the guest");
    }
}
