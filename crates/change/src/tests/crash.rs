//! A crash at every fault point, and what rollback makes of it.

use nearmetal_hypervisor::{Fake, Hypervisor};
use nearmetal_place::{Placement, Plan};

use super::stage::*;
use crate::journal::{Purpose, Record};
use crate::*;

/// The fault points of the whole apply, in order; the crash itself is proven by the list being used up.
fn points() -> Vec<String> {
    let mut stage = Stage::new();
    let journal = stage.journal();
    fault_points(&changes(&mut stage.machine(), &journal, &plan_file(), &with_restart()).unwrap())
}

#[test]
fn fault_points_are_those_that_are_reached() {
    let mut stage = Stage::new();
    let faults = Faults::none();
    stage.apply(&plan_file(), &with_restart(), &faults).unwrap();
    assert_eq!(faults.reached(), points());
    assert_eq!(points().len(), 2 + 5 * 4 + 2 + 3);
}

#[test]
fn a_crash_at_any_step_of_apply_is_taken_back() {
    for point in points() {
        let mut stage = Stage::new();
        let before = stage.snapshot();
        let crash = stage.apply(&plan_file(), &with_restart(), &Faults::failing_at(&*point));
        assert!(matches!(crash, Err(ChangeError::Fault { .. })), "{point}: {crash:?}");
        if point != "begin:before-header" {
            stage.rollback(&back_with_restart(), &Faults::none()).unwrap_or_else(|error| panic!("{point}: {error}"));
        }
        assert_eq!(stage.snapshot(), before, "{point}");
        // All is free for another attempt.
        stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    }
}

#[test]
fn a_guest_that_was_off_stays_off() {
    for point in ["end:before-commit", "3:define-web1:done-written"] {
        let mut stage = Stage::with(Fake::new("").with_domain(&xml("")));
        let before = stage.snapshot();
        stage.apply(&plan_file(), &ApplyOptions::default(), &Faults::failing_at(point)).unwrap_err();
        stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
        assert_eq!(stage.snapshot(), before, "{point}");
    }
}

#[test]
fn a_rollback_that_crashes_is_run_again() {
    let reached = {
        let mut stage = Stage::new();
        stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
        let journal = stage.journal();
        let points = rollback_fault_points(&mut stage.machine(), &journal, &back_with_restart()).unwrap();
        let faults = Faults::none();
        stage.rollback(&back_with_restart(), &faults).unwrap();
        assert_eq!(faults.reached(), points);
        points
    };
    assert!(reached.len() > 12, "{reached:?}");
    for point in reached {
        let mut stage = Stage::new();
        let before = stage.snapshot();
        stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
        stage.rollback(&back_with_restart(), &Faults::failing_at(&*point)).unwrap_err();
        let again = stage.rollback(&back_with_restart(), &Faults::none());
        assert!(again.is_ok() || point == "undo:ended", "{point}: {again:?}");
        assert_eq!(stage.snapshot(), before, "{point}");
    }
}

#[test]
fn a_guest_that_an_interrupted_rollback_left_running_is_restarted_by_the_next() {
    let mut stage = Stage::new();
    let before = stage.snapshot();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let kept = RollbackOptions { keep_running: true, ..RollbackOptions::default() };
    let journal = stage.journal();
    let points = rollback_fault_points(&mut stage.machine(), &journal, &kept).unwrap();
    let redefined = points.iter().find(|point| point.ends_with("define-web1:recorded")).unwrap();
    stage.rollback(&kept, &Faults::failing_at(redefined.as_str())).unwrap_err();
    assert_ne!(stage.snapshot().in_force, before.in_force, "it runs with what is undone");
    let refused = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap_err();
    assert!(matches!(refused, ChangeError::RollbackNeedsRestart { .. }), "{refused}");
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), before);
}

#[test]
fn a_pool_that_a_later_plan_uses_is_not_taken_from_under_it() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    // Another plan for the same pool, which had pages enough.
    let second = Placement { guest: "web2".to_owned(), ..placement() };
    let plan = Plan { placements: vec![second], pools: Vec::new(), ..Plan::default() };
    let purpose = Purpose::Plan(Box::new(PlanFile { plan, domains: Vec::new(), ..plan_file() }));
    let journal = stage.journal();
    let lock = journal.lock().unwrap();
    let mut writer = journal.begin(&lock, "boot-one", &identity(), purpose).unwrap();
    writer.append(&Record::Committed { at: String::new(), mismatches: 0 }).unwrap();
    drop((writer, lock));
    let first = RollbackOptions { transaction: Some(1), ..back_with_restart() };
    let refused = stage.rollback(&first, &Faults::none()).unwrap_err();
    assert!(matches!(&refused, ChangeError::LaterTransaction { later: 2, .. }), "{refused}");
    assert!(refused.to_string().contains("the pool of 2 MiB pages on node 1"), "{refused}");
}

#[test]
fn power_loss_voids_what_is_volatile_and_restores_what_is_not() {
    for point in points().into_iter().skip(1) {
        let mut stage = Stage::new();
        let before = stage.snapshot();
        stage.apply(&plan_file(), &with_restart(), &Faults::failing_at(&*point)).unwrap_err();
        stage.reboot();
        let back = stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
        let (notes, left) = (back.notes.join("\n"), back.left.join("\n"));
        let after = stage.snapshot();
        assert_eq!((&after.stored, after.unit), (&before.stored, false), "{point}");
        assert_eq!((after.pages.as_str(), after.in_force), ("0", None), "{point}: volatile changes are not restored");
        if point.starts_with("2:") {
            assert!(notes.contains("the restart of the machine already undid"), "{notes}");
        }
        if point.starts_with("5:") {
            assert!(left.contains("virsh start web1"), "{left}");
        }
    }
}

#[test]
fn a_preview_says_what_a_rollback_would_do_and_does_nothing() {
    let mut stage = Stage::new();
    let before = stage.snapshot();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let (applied, journal) = (stage.snapshot(), stage.journal());
    let found = preview(&mut stage.machine(), &journal, &RollbackOptions::default()).unwrap();
    assert_eq!((found.transaction, found.must_stop.join(" ").as_str()), (1, "web1"));
    let (first, last) = (found.actions.first().unwrap(), found.actions.last().unwrap());
    assert_eq!(first, "shut down `web1`, which runs with what will be undone");
    assert_eq!(last, "start `web1`");
    for action in ["undo: redefine `web1`", "undo: resize the pool of 2 MiB pages on node 1"] {
        assert!(found.actions.iter().any(|found| found.starts_with(action)), "{action}: {:#?}", found.actions);
    }
    let kept = RollbackOptions { keep_running: true, ..RollbackOptions::default() };
    let kept = preview(&mut stage.machine(), &journal, &kept).unwrap().actions;
    assert!(!kept.iter().any(|action| action.contains("shut down")), "{kept:#?}");
    assert_eq!(stage.snapshot(), applied);
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), before);
    assert!(preview(&mut stage.machine(), &journal, &RollbackOptions::default()).is_err(), "nothing is in force");
}

#[test]
fn a_reboot_after_commit_is_made_good_and_taken_back() {
    let mut stage = Stage::new();
    let before = stage.snapshot();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    stage.reboot();
    let journal = stage.journal();
    let made = boot::reapply(&mut stage.machine(), &journal).unwrap();
    assert_eq!(made.len(), 1);
    assert!(made[0].result.is_ok());
    assert_eq!(stage.kernel.pages(), "272");
    assert!(boot::reapply(&mut stage.machine(), &journal).unwrap().is_empty(), "once a boot");
    // The guest is on autostart.
    stage.hypervisor.start("web1", false).unwrap();
    let refused = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap_err();
    assert!(matches!(refused, ChangeError::RollbackNeedsRestart { .. }), "{refused}");
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    let after = stage.snapshot();
    assert_eq!((&after.stored, &after.in_force, after.unit), (&before.stored, &before.in_force, false));
    assert_eq!(after.pages, "0", "what this boot began with");
}

#[test]
fn what_a_boot_did_not_get_done_is_made_when_the_unit_is_started_again() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    stage.reboot();
    let journal = stage.journal();
    let most = std::mem::replace(&mut stage.kernel.most_pages, 100);
    let made = boot::reapply(&mut stage.machine(), &journal).unwrap();
    assert!(matches!(made[0].result, Err(ChangeError::PoolTooSmall { got: 100, .. })), "{made:?}");
    let records = journal.transactions().unwrap();
    // As somebody who has freed memory does.
    stage.kernel.most_pages = most;
    let made = boot::reapply(&mut stage.machine(), &journal).unwrap();
    assert!(made.len() == 1 && made[0].result.is_ok(), "{made:?}");
    assert_eq!(stage.kernel.pages(), "272");
    assert_eq!(journal.transactions().unwrap(), records, "the value this boot began with stays the one to restore");
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.kernel.pages(), "0");
}

#[test]
fn a_failure_takes_everything_back_by_itself() {
    let mut stage = Stage::new();
    stage.kernel.most_pages = 100;
    let before = stage.snapshot();
    let error = stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap_err().to_string();
    assert!(error.contains("gave 100 of 272 pages") && error.contains("rolled back"), "{error}");
    assert_eq!(stage.snapshot(), before);
    // A guest that does not stop: the definition goes back, the guest runs on.
    stage.kernel.most_pages = 4096;
    stage.hypervisor.set_shutdown("web1", None);
    let mut options = with_restart();
    options.shutdown_timeout = std::time::Duration::from_millis(300);
    let error = stage.apply(&plan_file(), &options, &Faults::none()).unwrap_err();
    // It has been asked to stop and may still do so: taking back waits for that, in vain here.
    assert!(matches!(error, ChangeError::NotTakenBack { .. }), "{error}");
    stage.hypervisor.set_shutdown("web1", Some(1));
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), before);
}

#[test]
fn mismatches_are_taken_back_where_asked() {
    let mut stage = Stage::new();
    let before = stage.snapshot();
    let journal = stage.journal();
    let options = ApplyOptions { rollback_on_mismatch: true, ..with_restart() };
    let (plan, faults, mut read_back, mut say) = (plan_file(), Faults::none(), read_back(2), |_: &str| {});
    let job = Apply {
        journal: &journal,
        plan: &plan,
        options: &options,
        faults: &faults,
        read_back: &mut read_back,
        say: &mut say,
    };
    let applied = apply(&mut stage.machine(), job).unwrap();
    assert!(applied.taken_back && applied.verifications[0].mismatches() == 2);
    assert_eq!(stage.snapshot(), before);
}

#[test]
fn a_guest_that_has_the_number_of_an_earlier_one_keeps_what_it_has() {
    for (started_again, left) in [(false, "0-3"), (true, "2")] {
        let mut stage = Stage::new();
        stage.kernel.affinity.borrow_mut().insert(PinTarget::Vcpu(0), cpus("0-3"));
        let live = ApplyOptions { live_only: true, ..ApplyOptions::default() };
        stage.apply(&plan_file(), &live, &Faults::none()).unwrap();
        if started_again {
            // libvirt's daemon ended meanwhile and counts from 1 again.
            stage.kernel.started.set(90_000);
        }
        let back = RollbackOptions { keep_running: true, ..RollbackOptions::default() };
        let notes = stage.rollback(&back, &Faults::none()).unwrap().notes.join("; ");
        assert_eq!(notes.contains("of `web1` ended with the guest"), started_again, "{notes}");
        assert_eq!(stage.hypervisor.live_pins("web1").values().map(ToString::to_string).collect::<Vec<_>>(), [left]);
    }
}
