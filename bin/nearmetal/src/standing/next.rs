//! The command that comes next, by what was found: the first reason that holds.

use nearmetal_rules::Severity;

use super::{InForce, Standing};

/// A line of prose that ends in the command; two where both come next.
pub(super) fn next(standing: &Standing<'_>) -> String {
    if let Some(capture) = standing.capture {
        return format!("to see all of it: nearmetal inspect --capture {}", quoted(&capture.display().to_string()));
    }
    if let Some(InForce::Unfinished(..)) = standing.in_force {
        return "to restore the state before the change that was killed: nearmetal rollback --restart".to_owned();
    }
    if let Some(InForce::UnderWay(..)) = standing.in_force {
        return "a change is being made; to see when it has ended: nearmetal rollback --list".to_owned();
    }
    if standing.host().system.container == Some(true) {
        return "guests belong to the machine around this container; to see it from here: nearmetal inspect --host \
                root@MACHINE"
            .to_owned();
    }
    if let Some(InForce::Changes { transactions: 1.., .. }) = standing.in_force {
        return "to check against the kernel that what was applied holds: nearmetal verify".to_owned();
    }
    // Findings are single settings; where a guest belongs is more than all of them.
    let place = standing.gathered.domains.first().map(|domain| {
        format!("to decide where a guest belongs, with reasons: nearmetal plan {} -o plan.json", quoted(&domain.name))
    });
    let loses = standing.examination.findings.iter().any(|finding| finding.severity <= Severity::Loss);
    let fix = loses.then(|| "to see all findings, and the fix of each: nearmetal doctor".to_owned());
    let all: Vec<String> = fix.into_iter().chain(place).collect();
    match all.is_empty() {
        true => "to see nodes, cores, hugepages and devices: nearmetal inspect".to_owned(),
        false => all.join("\n"),
    }
}

/// As a shell wants it, if it is not a plain word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+=".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", nearmetal_host::text::printable(word.replace('\'', "'\\''"))),
    }
}
