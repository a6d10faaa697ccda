//! The parts of a fleet plan, one host after the other. Every host has its own journal and reads its own part back; here
//! is only the order, and when to stop.

use nearmetal_change::{FleetPlanFile, HostPart};
use serde::Serialize;

use super::there::{self, Ended};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::style::Format;

/// What became of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// What was asked holds there.
    Done,
    /// Something is otherwise than planned; after `apply` that host is as it was before.
    Mismatch,
    /// It refused, and says why.
    Refused {
        /// Exit code there.
        code: i32,
    },
    /// It was not reached, or broke off.
    Failed {
        /// Why.
        problem: String,
    },
    /// Not begun, since another host before it failed.
    NotBegun,
}

/// One host and what became of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HostOutcome {
    host: String,
    #[serde(flatten)]
    outcome: Outcome,
    /// What that host printed, where that was JSON.
    output: Option<serde_json::Value>,
    #[serde(skip)]
    text: String,
}

/// What is asked of every host.
pub(crate) struct Errand {
    /// The command and its options; the plan is read from stdin.
    pub(crate) arguments: Vec<String>,
    /// In the reverse order, as what was built up is taken down.
    pub(crate) reverse: bool,
    /// Whether the first host that does not end well is the last one asked.
    pub(crate) stop_at_first: bool,
}

/// Runs an errand. Hosts say what they do as they do it, each line with the host's name before it.
pub(crate) fn run(plan: &FleetPlanFile, errand: &Errand, printer: &mut Printer) -> Vec<HostOutcome> {
    let mut order: Vec<&HostPart> = plan.hosts.iter().collect();
    if errand.reverse {
        order.reverse();
    }
    let bar = printer.progress(order.len() as u64, errand.arguments.first().map_or("", String::as_str));
    let mut stopped = false;
    let mut outcomes = Vec::new();
    for part in order {
        let host = part.name.clone();
        if stopped {
            outcomes.push(HostOutcome { host, outcome: Outcome::NotBegun, output: None, text: String::new() });
            continue;
        }
        let mut say = |line: &str| bar.suspend(|| printer.say(&format!("{}: {line}", part.name)));
        let ended = there::nearmetal(&part.reach, &errand.arguments, part.plan.to_json().as_bytes(), &mut say);
        let (outcome, text) = match ended {
            Ok(Ended { code: 0, stdout }) => (Outcome::Done, stdout),
            Ok(Ended { code: 1, stdout }) => (Outcome::Mismatch, stdout),
            Ok(Ended { code, stdout }) => (Outcome::Refused { code }, stdout),
            Err(problem) => (Outcome::Failed { problem }, String::new()),
        };
        stopped = errand.stop_at_first && outcome != Outcome::Done;
        let output = serde_json::from_str(&text).ok();
        outcomes.push(HostOutcome { host, outcome, output, text });
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcomes
}

/// The exit code all of them come to: what was refused or broke off weighs more than what disagrees.
pub(crate) fn status(outcomes: &[HostOutcome]) -> ExitStatus {
    let broken = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. } | Outcome::Failed { .. });
    if outcomes.iter().any(|host| broken(&host.outcome)) {
        ExitStatus::Refused
    } else if outcomes.iter().any(|host| host.outcome != Outcome::Done) {
        ExitStatus::Findings
    } else {
        ExitStatus::Done
    }
}

/// Prints what hosts printed, and in the end a line for each.
pub(crate) fn show(outcomes: &[HostOutcome], done: &str, mismatch: &str, format: Format, printer: &mut Printer) {
    match format {
        Format::Json => {
            let document = serde_json::json!({ "schema": "nearmetal.fleet-outcome/1", "hosts": outcomes });
            printer.data(&serde_json::to_string_pretty(&document).unwrap_or_default());
        }
        Format::Text => {
            for host in outcomes.iter().filter(|host| !host.text.trim().is_empty()) {
                printer.data(&format!("== {}\n{}", host.host, host.text));
            }
        }
    }
    let width = outcomes.iter().map(|host| host.host.chars().count()).max().unwrap_or(0);
    for host in outcomes {
        let words = match &host.outcome {
            Outcome::Done => done.to_owned(),
            Outcome::Mismatch => mismatch.to_owned(),
            Outcome::Refused { code } => format!("refused with exit code {code}; its message is above"),
            Outcome::Failed { problem } => problem.clone(),
            Outcome::NotBegun => "not begun".to_owned(),
        };
        let line = format!("{:width$}  {words}", host.host);
        match host.outcome {
            Outcome::Done => printer.say(&line),
            _ => printer.important(&line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(outcome: Outcome) -> HostOutcome {
        HostOutcome { host: "a".to_owned(), outcome, output: None, text: String::new() }
    }

    #[test]
    fn the_worst_host_decides_the_exit_code() {
        assert_eq!(status(&[]), ExitStatus::Done);
        assert_eq!(status(&[host(Outcome::Done), host(Outcome::Mismatch)]), ExitStatus::Findings);
        assert_eq!(status(&[host(Outcome::Mismatch), host(Outcome::Refused { code: 3 })]), ExitStatus::Refused);
        let failed = Outcome::Failed { problem: "gone".to_owned() };
        assert_eq!(status(&[host(failed), host(Outcome::NotBegun)]), ExitStatus::Refused);
    }
}
