//! A command of the user's in his own guest: what that guest is there for, timed by its own clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{At, Load, Measured, unreadable};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// Runs the command by the guest's shell and says on a line of its own when it began and ended, in seconds since the guest's boot. The
/// shell reads both itself: in a guest that has just booted a program takes a while to start. What the command says goes nowhere but for
/// the end of its errors if it fails: the agent's way is narrow, and would wait for whatever the command leaves running.
const TIMED: &str = "errors=$(mktemp) || exit; read -r began rest </proc/uptime; sh -c \"$1\" </dev/null >/dev/null 2>\"$errors\"; status=$?
read -r ended rest </proc/uptime; [ $status = 0 ] || tail -c 1000 \"$errors\" >&2; rm -f \"$errors\"
echo \"nearmetal-timed $began $ended\"; exit $status";
/// What the line begins with.
const MARK: &str = "nearmetal-timed ";
/// Seconds between two values of `/proc/uptime`.
const STEP: f64 = 0.01;
/// Below this a step of the clock is more than 1 % of what it measures.
const SHORT: f64 = 1.0;
/// Characters of the command in a label.
const LONGEST_LABEL: usize = 60;
const SECONDS_IN_AN_HOUR: f64 = 3600.0;

/// One run of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandJob {
    /// The command, as the guest's shell takes it.
    pub command: String,
    /// Seconds after which it has hung.
    pub limit: u32,
}

impl Load for CommandJob {
    fn id(&self) -> String {
        "command".to_owned()
    }

    fn label(&self) -> String {
        // It stands in lines of tables and in plans.
        let plain = self.command.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let short: String = plain.take(LONGEST_LABEL).collect();
        let more = if self.command.chars().count() > LONGEST_LABEL { "…" } else { "" };
        format!("`{short}{more}`")
    }

    fn rate(&self) -> Option<String> {
        Some("runs".to_owned())
    }

    fn command(&self, _: &At<'_>, _: u64) -> Vec<String> {
        ["sh", "-c", TIMED, "nearmetal", &self.command].map(str::to_owned).to_vec()
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.limit))
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        let took = seconds(output)?;
        let runs = Metric::new("runs", Unit::RunsPerHour, SECONDS_IN_AN_HOUR / took)
            .ok_or_else(|| unreadable("the time of the command", "no rate", output))?;
        let mut notes = vec![format!("it took {took:.2} s")];
        if took < SHORT {
            notes.push(format!(
                "the guest's clock has steps of {STEP} s, which is {:.0} % of that: take a command that runs for some seconds",
                STEP / took * 100.0
            ));
        }
        Ok(Measured { metrics: vec![runs], notes })
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some(("command".to_owned(), self.command.clone()))
    }
}

/// How long it took.
fn seconds(output: &str) -> Result<f64, LoadError> {
    let unreadable = |why: &str| unreadable("the time of the command", why, output);
    let line = output.lines().find_map(|line| line.strip_prefix(MARK)).ok_or_else(|| unreadable("no time in it"))?;
    let times: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [began, ended] = times[..] else { return Err(unreadable("not two times")) };
    let took: f64 = ended - began;
    match took.is_finite() && took >= STEP / 2.0 {
        true => Ok(took),
        false => Err(unreadable("it ended within a step of the guest's clock: take one that runs for some seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(command: &str) -> CommandJob {
        CommandJob { command: command.to_owned(), limit: 600 }
    }

    /// By the shell and the clock of the machine the tests run on: neither figure is looked at, only that there are two and the status.
    fn ran(command: &str) -> (Option<i32>, String) {
        let words = job(command).command(&At::probe(""), 0);
        let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn the_shell_times_any_command_and_passes_its_status_on() {
        let (status, said) = ran("echo \"it's \\\"$((6 * 7))\\\"\"; sleep 0.05");
        assert_eq!((status, said.lines().count()), (Some(0), 1), "{said}");
        assert!(seconds(&said).unwrap() >= 0.03, "{said}");
        assert_eq!(ran("exit 7").0, Some(7));
        assert_eq!(ran("no-such-program-anywhere").0, Some(127));
        let began = std::time::Instant::now();
        assert_eq!(ran("sleep 20 & seq 200000 >&2").0, Some(0));
        assert!(began.elapsed() < Duration::from_secs(15), "it waits for what the command leaves running");
    }

    #[test]
    fn a_command_that_fails_says_its_last_words() {
        let words = job("echo first >&2; seq 2000 >&2; echo last >&2; exit 3").command(&At::probe(""), 0);
        let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.ends_with("last\n") && said.len() == 1000, "{said}");
    }

    #[test]
    fn a_time_becomes_runs_in_an_hour() {
        let Measured { metrics, notes } = job("make").read("nearmetal-timed 100.25 112.25\n").unwrap();
        assert_eq!((metrics[0].value, metrics[0].unit), (300.0, Unit::RunsPerHour));
        assert_eq!(notes, ["it took 12.00 s"]);
        let short = job("true").read("nearmetal-timed 7.00 7.10\n").unwrap();
        assert!(short.notes[1].contains("10 % of that"), "{:?}", short.notes);
    }

    #[test]
    fn junk_is_an_error_and_never_a_figure() {
        for junk in [
            "",
            "nearmetal-timed",
            "nearmetal-timed 5.00 5.00",
            "nearmetal-timed 5.00 4.00",
            "nearmetal-timed a b",
            "nearmetal-timed 5 inf",
            "nearmetal-timed 1 2 3",
        ] {
            assert!(job("make").read(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn a_long_command_is_cut_in_its_label_alone() {
        let long = job(&"x".repeat(100));
        assert_eq!(long.label().chars().count(), LONGEST_LABEL + 3);
        assert_eq!(long.provenance().unwrap().1.len(), 100);
        assert_eq!(job("make\n\u{1b}[31m").label(), "`make  [31m`");
    }
}
