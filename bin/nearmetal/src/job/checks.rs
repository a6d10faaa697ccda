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

/// The way back; `None` where only what a killed measurement had left was put back. Each note is a value that was read back after it was
/// restored: a rollback that reads back something else ends with an error and leaves no such note.
pub(crate) fn rollback(output: &RollbackOutput) -> Option<RollbackView> {
    output.transaction?;
    let note = |note: &String| CheckRow {
        subject: note.clone(),
        planned: "as before".to_owned(),
        found: Some("as before".to_owned()),
        outcome: CheckOutcome::Ok,
        detail: None,
    };
    let mut rows: Vec<CheckRow> = if output.checks.is_empty() && (output.ok || !output.left.is_empty()) {
        output.notes.iter().filter(|note| !note.is_empty()).map(note).collect()
    } else {
        output.checks.clone()
    };
    rows.extend(output.left.iter().map(|sentence| CheckRow {
        found: None,
        outcome: CheckOutcome::CannotTell,
        ..note(sentence)
    }));
    Some(RollbackView { ok: output.ok && output.left.is_empty(), rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_before_is_called_restored() {
        let output = |transaction, left: &[&str]| {
            rollback(&RollbackOutput {
                schema: String::new(),
                ok: left.is_empty(),
                transaction,
                notes: vec!["the pool of node 0 has 0 pages".to_owned()],
                left: left.iter().map(|text| (*text).to_owned()).collect(),
                checks: Vec::new(),
            })
        };
        let outcomes = |view: &RollbackView| view.rows.iter().map(|row| row.outcome).collect::<Vec<_>>();
        let whole = output(Some(3), &[]).unwrap();
        assert_eq!((whole.ok, outcomes(&whole)), (true, vec![CheckOutcome::Ok]));
        let kept = output(Some(3), &["`web1` keeps running"]).unwrap();
        assert_eq!((kept.ok, outcomes(&kept)), (false, vec![CheckOutcome::Ok, CheckOutcome::CannotTell]));
        assert!(output(None, &[]).is_none(), "no transaction was taken back");
    }
}
