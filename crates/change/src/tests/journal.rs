//! The journal: torn lines, damage, two writers, two transactions.

use nearmetal_host::files;
use nearmetal_hypervisor::Hypervisor;
use proptest::prelude::*;

use super::stage::*;
use crate::journal::State;
use crate::*;

#[test]
fn a_torn_last_line_is_cut_off_wherever_it_is_torn() {
    let mut whole = Stage::new();
    whole.apply(&plan_file(), &with_restart(), &Faults::failing_at("3:define-web1:done-written")).unwrap_err();
    let path = whole.journal().state_directory().join("journal/0001.jsonl");
    let bytes = files::read(&path).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in [last + 1, (last + bytes.len()) / 2, bytes.len() - 1] {
        // What a file system that extends before it fills leaves behind, and what others do: there the last cut takes nothing
        // but the newline, and the next record would stand on the same line.
        for filled in [7, 0] {
            let mut torn = bytes[..cut].to_vec();
            torn.extend(vec![0; filled]);
            files::write(&path, &torn).unwrap();
            let transaction = whole.journal().unfinished().unwrap().unwrap();
            assert_eq!((transaction.steps.len(), transaction.steps[2].done), (3, false), "cut at {cut}");
        }
    }
    let refused = whole.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap_err();
    assert!(matches!(refused, ChangeError::Unfinished { transaction: 1, .. }), "{refused}");
    whole.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(whole.snapshot(), Stage::new().snapshot());
    assert_eq!(whole.journal().transactions().unwrap()[0].state, State::RolledBack);
}

#[test]
fn a_torn_header_is_a_transaction_that_never_was() {
    let mut stage = Stage::new();
    drop(stage.journal().lock().unwrap());
    files::write(&stage.journal().state_directory().join("journal/0001.jsonl"), "{\"record\":\"hea").unwrap();
    assert!(stage.journal().transactions().unwrap().is_empty());
    let applied = stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    assert_eq!(applied.transaction, Some(2), "its number is not used again");
}

#[test]
fn damage_in_the_middle_is_an_error_with_its_line() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let path = stage.journal().state_directory().join("journal/0001.jsonl");
    let text = files::read_to_string(&path).unwrap();
    files::write(&path, text.replacen("\"intent\"", "\"intend\"", 1)).unwrap();
    let error = stage.rollback(&back_with_restart(), &Faults::none()).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("0001.jsonl"), "{error}");
}

#[test]
fn a_second_writer_is_refused_and_told_who_has_it() {
    let mut stage = Stage::new();
    let lock = stage.journal().lock().unwrap();
    let error = stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap_err();
    assert!(matches!(&error, ChangeError::Busy { holder } if *holder == std::process::id().to_string()), "{error}");
    drop(lock);
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
}

#[test]
fn an_unfinished_transaction_can_be_given_up() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::failing_at("1:pool-node1-2048kB:made")).unwrap_err();
    assert_eq!(forget(&stage.journal()).unwrap(), 1);
    assert!(matches!(forget(&stage.journal()), Err(ChangeError::NothingToRollBack(_))));
    assert!(matches!(stage.rollback(&back_with_restart(), &Faults::none()), Err(ChangeError::NothingToRollBack(_))));
}

#[test]
fn transactions_are_taken_back_in_their_order() {
    let mut stage = Stage::new();
    let before = stage.snapshot();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let stored = stage.snapshot().stored;
    let input = DomainInput { name: "web1".into(), inactive_xml: stored.clone(), live_xml: Some(stored.clone()) };
    let mut plan = plan();
    plan.placements[0].disks[0].queues = Some(4);
    let second = PlanFile { host: identity(), ..compose(&host(), &plan, &[input]).unwrap() };
    stage.apply(&second, &with_restart(), &Faults::none()).unwrap();
    let first = RollbackOptions { transaction: Some(1), ..back_with_restart() };
    let error = stage.rollback(&first, &Faults::none()).unwrap_err();
    assert!(matches!(&error, ChangeError::LaterTransaction { later: 2, .. }), "{error}");
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    let middle = stage.snapshot();
    assert_eq!((middle.stored, middle.unit), (stored, true));
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), before);
    assert!(matches!(stage.rollback(&back_with_restart(), &Faults::none()), Err(ChangeError::NothingToRollBack(_))));
}

#[test]
fn a_text_edited_since_is_kept() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let edited = stage.snapshot().stored.replace("cache='none'", "cache='writeback'");
    stage.hypervisor.define(&edited).unwrap();
    let notes = stage.rollback(&back_with_restart(), &Faults::none()).unwrap().notes.join("\n");
    assert!(notes.contains("it had been edited"), "{notes}");
    let kept = stage.journal().state_directory().join("journal/0001-web1-edited.xml");
    assert_eq!(files::read_to_string(&kept).unwrap(), edited);
    assert_eq!(stage.snapshot(), Stage::new().snapshot());
}

#[test]
fn others_cannot_read_the_journal() {
    use std::os::unix::fs::PermissionsExt;
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let mode =
        |path: &str| stage.journal().state_directory().join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("journal"), mode("journal/0001.jsonl"), mode("lock")), (0o700, 0o600, 0o600));
}

#[test]
fn a_journal_of_another_version_is_refused_and_both_are_named() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let path = stage.journal().state_directory().join("journal/0001.jsonl");
    let text = files::read_to_string(&path).unwrap();
    files::write(&path, text.replacen(journal::JOURNAL_SCHEMA, "nearmetal.journal/9", 1)).unwrap();
    let error = stage.journal().transactions().unwrap_err().to_string();
    for word in ["line 1:", "0001.jsonl", "nearmetal.journal/9", journal::JOURNAL_SCHEMA] {
        assert!(error.contains(word), "{word} in {error}");
    }
}

#[test]
fn the_stamp_changes_with_every_record_and_with_nothing_else() {
    let mut stage = Stage::new();
    assert!(stage.journal().stamp().unwrap().is_empty(), "nothing was ever changed");
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let first = stage.journal().stamp().unwrap();
    assert_eq!(first, stage.journal().stamp().unwrap(), "whoever looks twice reads once");
    assert_eq!(first.iter().filter(|(path, ..)| path.ends_with("journal/0001.jsonl")).count(), 1, "{first:?}");
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_ne!(first, stage.journal().stamp().unwrap());
}

proptest! {
    #[test]
    fn no_journal_panics(lines in proptest::collection::vec("\\PC{0,60}", 0..4)) {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::at(directory.path());
        drop(journal.lock().unwrap());
        files::write(&directory.path().join("journal/0001.jsonl"), lines.join("\n")).unwrap();
        let _ = journal.transactions();
    }
}
