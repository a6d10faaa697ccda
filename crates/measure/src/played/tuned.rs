//! Tunes from start to end: what they find, and the user's own guest, which is shut down and started for its turns.

use nearmetal_results::{TuneVerdict, Tuning};

use super::experiments::Kind;
use super::*;

/// What a tune of three plans comes to where guests with this in their name are faster than all others by a half.
fn tuned(fast: &'static str) -> Tuning {
    let (mut machine, _) = Kind::Tune.set_up();
    machine.rates(move |sample| match &sample.guest {
        Some(guest) if guest.contains(fast) => RATE * 3 / 2,
        Some(_) => RATE_OF_GUESTS,
        None => RATE,
    });
    let plans = [nearmetal_results::PLANNED, "node.huge.rule.iothread", "float"];
    let request = super::experiments::tune(machine.conditions(), &plans, 2);
    let Measurement::Results(results) = machine.perform(&Experiment::Tune(Box::new(request))).document() else {
        panic!("a tune leaves results")
    };
    assert_eq!(machine.left(), Vec::<String>::new());
    let store = machine.store();
    let entry = store.entry(store.entries(None).unwrap()[0].id).unwrap();
    let tuning = *results.tune.unwrap();
    assert_eq!(entry.winner.as_deref(), Some(tuning.verdict.arm()));
    tuning
}

#[test]
fn a_tune_uses_the_plan_that_is_faster_and_says_what_its_factor_is_worth() {
    let tuning = tuned("node.huge");
    assert_eq!(tuning.verdict.arm(), "node.huge.rule.iothread");
    let to_found = tuning.to_found.unwrap();
    assert!((to_found.ratio - 1500.0 / 900.0).abs() < 1e-9, "{to_found:?}");
    assert_eq!(tuning.effects.len(), 1);
    assert!((tuning.effects[0].ratio.ratio - 1500.0 / 900.0).abs() < 1e-9);
    assert_eq!(tuned("float").verdict.arm(), "float", "a plan beside the fraction can win");
}

#[test]
fn a_tune_leaves_the_guest_as_it_is_when_all_are_equal_and_when_it_is_the_best() {
    for fast in ["nobody", "as-found"] {
        let tuning = tuned(fast);
        assert_eq!(tuning.verdict, TuneVerdict::Leave, "{fast}");
    }
}

/// web1 itself, tuned under a command that one arm runs faster than the others by a half; and the machine it was tuned on.
fn tuned_itself(fast: &'static str, plans: &[&str]) -> (Machine, Came) {
    let (mut machine, _) = Kind::TuneOfACommand.set_up();
    machine.rates(move |sample| if sample.turn.as_deref() == Some(fast) { RATE * 3 / 2 } else { RATE_OF_GUESTS });
    let request = super::experiments::tune(machine.conditions(), plans, 2);
    let request = crate::tune::TuneRequest { on: super::experiments::itself(), ..request };
    let came = machine.perform(&Experiment::Tune(Box::new(request)));
    (machine, came)
}

#[test]
fn a_guest_itself_is_started_as_each_plan_for_each_run_of_its_command_and_as_it_was_at_the_end() {
    let plans = [nearmetal_results::PLANNED, "node.huge.rule.iothread", "float"];
    let (mut machine, came) = tuned_itself("node.huge.rule.iothread", &plans);
    let Measurement::Results(results) = came.document() else { panic!("a tune leaves results") };
    assert_eq!(machine.left(), Vec::<String>::new());
    let tuning = results.tune.as_deref().unwrap();
    assert_eq!(tuning.verdict.arm(), "node.huge.rule.iothread");
    let to_found = tuning.to_found.as_ref().unwrap();
    assert!((to_found.ratio - 1500.0 / 900.0).abs() < 1e-6, "{to_found:?}");
    assert_eq!(tuning.to_bare, None);
    assert!(
        results.arm(nearmetal_results::BARE_SLICE).is_none() && results.caveats.join(" ").contains("no bare metal")
    );
    // Once to be read back, and for each run; then as libvirt keeps it.
    let steps = machine.steps();
    let count = |what: &str| steps.iter().filter(|step| step.starts_with(what)).count();
    assert_eq!(count("libvirt: create web1"), 5 + results.runs.len());
    assert_eq!((count("libvirt: shut down web1"), count("libvirt: start web1")), (6 + results.runs.len(), 1));
    assert_eq!(count("libvirt: destroy"), 0, "nobody powers it off");
    let turns: Vec<String> = machine.samples().iter().filter_map(|sample| sample.turn.clone()).collect();
    let runs: Vec<String> = results.runs.iter().map(|run| run.arm.clone()).collect();
    assert_eq!(turns[1..], runs, "each run in the guest as that arm has it, behind one that tries the command");
}

#[test]
fn a_guest_that_was_off_is_off_again_and_one_that_cannot_be_started_anew_is_refused() {
    let perform = |prepare: &dyn Fn(&mut Machine)| {
        let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
        prepare(&mut machine);
        (machine.perform(&experiment), machine)
    };
    let (came, mut machine) = perform(&|machine| machine.libvirt().set_state("web1", DomainState::ShutOff));
    came.document();
    assert_eq!(machine.libvirt().domain("web1").unwrap().state, DomainState::ShutOff);
    for (prepare, words) in [
        (
            &(|machine: &mut Machine| machine.libvirt().set_managed_save("web1", true)) as &dyn Fn(&mut Machine),
            "saved memory",
        ),
        (
            &|machine: &mut Machine| machine.libvirt().undefine("web1", nearmetal_hypervisor::Nvram::Keep).unwrap(),
            "virsh define",
        ),
        (&|machine: &mut Machine| machine.libvirt().set_state("web1", DomainState::Paused), "it is paused"),
        (
            &|machine: &mut Machine| {
                let disk = "<disk type='block'><target dev='vdz' bus='virtio'/></disk>";
                machine.libvirt().attach_device("web1", disk).unwrap();
            },
            "disk vdz is only in the running VM",
        ),
    ] {
        let (came, machine) = perform(prepare);
        let why = came.failed();
        assert!(why.contains(words), "{why}");
        assert!(!machine.steps().iter().any(|step| step.contains("shut down")), "{:?}", machine.steps());
    }
}

#[test]
fn a_guest_that_does_not_shut_down_is_not_powered_off_and_rollback_gives_it_back_later() {
    // Before it ever ran as an arm; then while it does.
    for (heard, words) in [(0, "may still go off"), (9, "`nearmetal rollback`")] {
        let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
        machine.hear_shutdowns(Some(heard));
        let clock = machine.clock();
        let why = machine.perform(&experiment).failed();
        assert!(why.contains("did not shut down within 180 s") && why.contains(words), "{why}");
        assert!(machine.clock() - clock < Duration::from_secs(500), "it ends at once: {:?}", machine.clock() - clock);
        assert_eq!(
            machine.left().iter().any(|left| left.starts_with("web1 runs as ")),
            heard > 0,
            "{:?}",
            machine.left()
        );
        assert!(!machine.steps().iter().any(|step| step.contains("destroy")));
        machine.hear_shutdowns(None);
        machine.take_back();
        assert_eq!(machine.left(), Vec::<String>::new());
    }
}

#[test]
fn a_guest_that_goes_off_long_after_it_was_asked_is_started_again() {
    for late in [true, false] {
        let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
        machine.hear_shutdowns(Some(0));
        if late {
            machine.goes_off_in(1000);
        }
        let why = machine.perform(&experiment).failed();
        assert!(why.contains("did not shut down"), "{why}");
        assert_eq!(machine.left(), Vec::<String>::new());
        assert_eq!(
            machine.steps().iter().any(|step| step == "libvirt: start web1"),
            late,
            "{:?}",
            machine.steps().last()
        );
    }
}

#[test]
fn a_turn_that_libvirt_begins_after_the_process_was_killed_is_ended_too() {
    let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
    machine.spoil(|_, _| End::Well);
    machine.perform(&experiment).document();
    let steps = machine.steps();
    let create = steps.iter().rposition(|step| step == "libvirt: create web1").unwrap();
    let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
    machine.kill_at(Some(create));
    assert!(matches!(machine.perform(&experiment), Came::Dead));
    machine.kill_at(None);
    // It is off, and what was asked for comes behind the next look.
    let arm = machine.libvirt().domain_xml("web1", Definition::Inactive).unwrap();
    let mut xml = DomainXml::parse(&arm).unwrap();
    xml.set_turn("late").unwrap();
    machine.begins_late(xml.as_str().to_owned());
    machine.take_back();
    assert_eq!(machine.left(), Vec::<String>::new());
}

/// A machine on which a tune was killed behind its last turn's start.
fn killed_in_a_turn() -> (Machine, Experiment) {
    let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
    machine.perform(&experiment).document();
    let create = machine.steps().iter().rposition(|step| step == "libvirt: create web1").unwrap();
    let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
    machine.kill_at(Some(create + 1));
    assert!(matches!(machine.perform(&experiment), Came::Dead));
    machine.kill_at(None);
    (machine, experiment)
}

#[test]
fn a_turn_that_came_back_in_another_boot_is_ended() {
    let (mut machine, _) = killed_in_a_turn();
    machine.boots_anew();
    machine.take_back();
    let left = machine.left();
    assert!(!left.iter().any(|left| left.starts_with("web1")), "{left:?}");
}

#[test]
fn no_turn_begins_over_a_memory_that_libvirt_saved() {
    let save = |libvirt: &mut Fake| {
        libvirt.set_state("web1", DomainState::ShutOff);
        libvirt.set_managed_save("web1", true);
    };
    // Of a turn behind which it was killed, and between two turns.
    let (mut killed, experiment) = killed_in_a_turn();
    save(killed.libvirt());
    let (mut running, _) = Kind::TuneOfACommand.set_up();
    running.meanwhile(4, save);
    for (machine, samples) in [(&mut killed, None), (&mut running, Some(4))] {
        let mut own = experiment.clone();
        own.conditions_mut().clone_from(&machine.conditions());
        let why = machine.perform(&own).failed();
        assert!(why.contains("managedsave-remove"), "{why}");
        assert_eq!(machine.libvirt().domain("web1").unwrap().state, DomainState::ShutOff, "nobody starts it");
        assert!(samples.is_none_or(|samples| machine.samples().len() == samples), "{}", machine.samples().len());
    }
}

#[test]
fn arms_are_not_started_once_somebody_has_changed_the_definition() {
    let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
    let changed =
        machine.libvirt().domain_xml("web1", Definition::Inactive).unwrap().replace("/dev/sda", "/dev/snapshot");
    machine.meanwhile(4, move |libvirt| drop(libvirt.define(&changed).unwrap()));
    let why = machine.perform(&experiment).failed();
    assert!(why.contains("somebody has changed it since"), "{why}");
    assert_eq!(machine.samples().len(), 4, "no further turn");
    let live = machine.libvirt().domain_xml("web1", Definition::Live).unwrap();
    assert!(live.contains("/dev/snapshot") && !live.contains("turn"), "it runs as it is defined now: {live}");
}

#[test]
fn pools_are_grown_for_the_turns_in_huge_pages_alone() {
    let (mut machine, _) = Kind::TuneOfACommand.set_up();
    let mut request =
        super::experiments::tune(machine.conditions(), &[nearmetal_results::PLANNED, "node.small.rule.iothread"], 1);
    request.on = super::experiments::itself();
    request.arms[0].xml = super::experiments::in_huge_pages().xml_planned;
    let Measurement::Results(results) = machine.perform(&Experiment::Tune(Box::new(request))).document() else {
        panic!("a tune leaves results")
    };
    assert!(results.arm(nearmetal_results::PLANNED).unwrap().xml.as_deref().unwrap().contains("hugepages"));
    let steps = machine.steps();
    let mut grown = false;
    for (number, step) in steps.iter().enumerate() {
        if step.contains("nr_hugepages") {
            grown = !step.contains("\"16\"");
        }
        if step.starts_with("libvirt: start web1") {
            assert!(!grown, "as before at the end: {:?}", &steps[number.saturating_sub(6)..number]);
        }
    }
    let of_pools = steps.iter().filter(|step| step.contains("nr_hugepages")).count();
    assert!(of_pools > 4, "{of_pools}: {:?}", steps.iter().filter(|step| step.contains("huge")).collect::<Vec<_>>());
    assert_eq!(machine.left(), Vec::<String>::new());
}

#[test]
fn a_command_that_fails_ends_the_tune_before_anything_raced() {
    let (mut machine, experiment) = Kind::TuneOfACommand.set_up();
    machine.spoil(|_, _| End::Fails);
    let why = machine.perform(&experiment).failed();
    assert!(why.contains("spoiled by the test"), "{why}");
    assert_eq!((machine.samples().len(), machine.left()), (1, Vec::new()));
}
