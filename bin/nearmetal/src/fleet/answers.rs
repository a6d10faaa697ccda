//! What each host answers to a question: its own nearmetal is asked, and prints a document with an answer about itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nearmetal_change::Reach;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::targets::Target;
use super::there::{self, Patience};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

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
    let Ok(document) = serde_json::from_str::<OfHost<T>>(&ended.stdout) else {
        return Err(format!("its nearmetal ended with {} and no answer: {last}", ended.code));
    };
    match document.hosts.into_iter().next() {
        Some(Answer { answer: Some(answer), .. }) => Ok(answer),
        Some(Answer { problem: Some(problem), .. }) => Err(problem),
        _ => Err("its answer is empty".to_owned()),
    }
}

/// The exit code all answers come to, given what a sound one comes to: hosts that do not answer weigh most.
pub(crate) fn status<T>(answers: &[Answer<T>], of: impl Fn(&T) -> ExitStatus) -> ExitStatus {
    let weight = |status: ExitStatus| match status {
        ExitStatus::Done => 0,
        ExitStatus::Findings => 1,
        ExitStatus::WrongUse => 2,
        ExitStatus::Refused | ExitStatus::Program(_) => 3,
    };
    let each = answers.iter().map(|answer| answer.answer.as_ref().map_or(ExitStatus::Refused, &of));
    each.max_by_key(|status| weight(*status)).unwrap_or(ExitStatus::Done)
}
