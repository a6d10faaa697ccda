//! What was read back, as rows.

use nearmetal_change::verify::{Check, CheckKind, Outcome, Verification};
use nearmetal_report::view::{CheckOutcome, CheckRow, RollbackView};

use super::outputs::RollbackOutput;

/// What the kernel, QEMU and libvirt say.
pub(crate) fn host(verification: &Verification) -> Vec<CheckRow> {
    verification.checks.iter().filter(|check| check.kind != CheckKind::Guest).map(row).collect()
}

/// What the guest itself says.
pub(crate) fn guest(verification: &Verification) -> Vec<CheckRow> {
    verification.checks.iter().filter(|check| check.kind == CheckKind::Guest).map(row).collect()
}

fn row(check: &Check) -> CheckRow {
    let (outcome, why) = match &check.outcome {
        Outcome::Ok => (CheckOutcome::Ok, None),
        Outcome::Mismatch => (CheckOutcome::Mismatch, None),
        Outcome::CannotTell { why } => (CheckOutcome::CannotTell, Some(why)),
    };
    let detail = [why, check.place.as_ref()].into_iter().flatten().cloned().collect::<Vec<_>>().join("; ");
    CheckRow {
        subject: check.subject.clone(),
        planned: check.planned.clone(),
        found: check.found.clone(),
        outcome,
        detail: Some(detail).filter(|detail| !detail.is_empty()),
    }
}

/// The way back. Each note is a value that was read back after it was restored: a rollback that reads back something
/// else ends with an error and leaves no such note.
pub(crate) fn rollback(output: &RollbackOutput) -> RollbackView {
    let note = |note: &String| CheckRow {
        subject: note.clone(),
        planned: "as before".to_owned(),
        found: Some("as before".to_owned()),
        outcome: CheckOutcome::Ok,
        detail: None,
    };
    let rows = if output.checks.is_empty() && output.ok {
        output.notes.iter().filter(|note| !note.is_empty()).map(note).collect()
    } else {
        output.checks.clone()
    };
    RollbackView { ok: output.ok, rows }
}
