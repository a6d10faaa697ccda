//! What each host answers to a question: its own nearmetal is asked, and prints a document with an answer about itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nearmetal_change::Reach;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::targets::Target;
use super::there::{self, Ended, Patience};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Exit code of a program that does not know its arguments, clap's.
const WRONG_USE: i32 = 2;
/// Hosts asked at a time.
const AT_ONCE: usize = 16;

/// A host's answer, or why there is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer<T> {
    /// The host.
    pub(crate) host: String,
    /// What it answers; `null` if it does not.
    pub(crate) answer: Option<T>,
    /// Why it does not.
    pub(crate) problem: Option<String>,
}

/// All hosts' answers, as a document for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, T> {
    /// Name and version of the form.
    pub(crate) schema: &'static str,
    /// One for each host, in the order asked.
    pub(crate) hosts: &'a [Answer<T>],
}

/// The document that a host prints about itself.
#[derive(Deserialize)]
struct OfHost<T> {
    hosts: Vec<Answer<T>>,
}

/// Asks all hosts, several at a time; this machine with `here`, others by running `nearmetal ARGUMENTS` there.
pub(crate) fn ask_all<T: DeserializeOwned + Send>(
    targets: &[Target],
    arguments: &[String],
    here: &(dyn Fn() -> Result<T, String> + Sync),
    printer: &mut Printer,
) -> Vec<Answer<T>> {
    let bar = printer.progress(targets.len() as u64, "asking hosts");
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Answer<T>>>> = Mutex::new(targets.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(targets.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(target) = targets.get(at) else { return };
                    let answer = if target.reach == Reach::Local { here() } else { ask(target, arguments, None) };
                    let (answer, problem) = match answer {
                        Ok(answer) => (Some(answer), None),
                        Err(problem) => (None, Some(problem)),
                    };
                    if let Ok(mut done) = done.lock() {
                        done[at] = Some(Answer { host: target.name.clone(), answer, problem });
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    done.into_inner().unwrap_or_default().into_iter().flatten().collect()
}

/// Asks one host by running `nearmetal ARGUMENTS` there.
///
/// # Errors
/// No answer, in words: the host's own, or why it gave none.
pub(crate) fn ask<T: DeserializeOwned>(
    target: &Target,
    arguments: &[String],
    patience: Option<&Patience<'_>>,
) -> Result<T, String> {
    let mut last = String::new();
    let ended = there::nearmetal_within(&target.reach, arguments, b"", patience, &mut |line| last = line.to_owned())?;
    let document =
        serde_json::from_str::<OfHost<T>>(&ended.stdout).map_err(|error| no_answer(&ended, &last, &error))?;
    match document.hosts.into_iter().next() {
        Some(Answer { answer: Some(answer), .. }) => Ok(answer),
        Some(Answer { problem: Some(problem), .. }) => Err(problem),
        _ => Err("its answer is empty".to_owned()),
    }
}

/// Why what a host printed is no answer, and what to do.
fn no_answer(ended: &Ended, last: &str, error: &serde_json::Error) -> String {
    let own = env!("CARGO_PKG_VERSION");
    match (ended.stdout.trim().is_empty(), ended.code) {
        (true, WRONG_USE) => format!("its nearmetal does not know the question: install version {own} there, as here"),
        (true, code) => format!("its nearmetal ended with {code} and no answer: {last}"),
        (false, _) if error.is_eof() => {
            "its answer breaks off: its connection broke, or it is longer than is read".to_owned()
        }
        (false, _) => format!("its answer makes no sense here: install version {own} there, as here ({error})"),
    }
}

/// The exit code all answers come to, given what a sound one comes to: hosts that do not answer weigh most.
pub(crate) fn status<T>(answers: &[Answer<T>], of: impl Fn(&T) -> ExitStatus) -> ExitStatus {
    let weight = |status: ExitStatus| match status {
        ExitStatus::Done => 0,
        ExitStatus::Findings => 1,
        ExitStatus::WrongUse => 2,
        ExitStatus::Refused | ExitStatus::Stopped | ExitStatus::Program(_) => 3,
    };
    let each = answers.iter().map(|answer| answer.answer.as_ref().map_or(ExitStatus::Refused, &of));
    each.max_by_key(|status| weight(*status)).unwrap_or(ExitStatus::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_told_of_with_what_to_do() {
        let why = |code: i32, stdout: &str| {
            let ended = Ended { code, stdout: stdout.to_owned() };
            let error = serde_json::from_str::<OfHost<u32>>(stdout).map(drop).unwrap_err();
            no_answer(&ended, "For more information, try '--help'.", &error)
        };
        assert!(why(2, "").contains("install version"), "{}", why(2, ""));
        assert!(why(3, "").ends_with("ended with 3 and no answer: For more information, try '--help'."));
        assert!(why(0, r#"{"hosts":[{"host":"a","answer":"#).starts_with("its answer breaks off"));
        let other = why(0, r#"{"hosts":[{"host":"a","answer":"x","problem":null}]}"#);
        assert!(other.contains("install version") && other.contains("invalid type"), "{other}");
    }
}
