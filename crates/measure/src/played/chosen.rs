//! Some of an experiment's arms, where all are not wanted.

use nearmetal_results::{Purpose, Results};

use super::experiments::Kind;
use super::*;
use crate::modes::{Mode, ModesRequest};
use crate::slice::{SliceArm, SliceRequest};

fn results(machine: &mut Machine, experiment: Experiment) -> Results {
    let Measurement::Results(results) = machine.perform(&experiment).document() else { panic!("it is a race") };
    assert_eq!(machine.left(), Vec::<String>::new());
    *results
}

fn slice(change: impl FnOnce(&mut SliceRequest)) -> Results {
    let (mut machine, experiment) = Kind::Slice.set_up();
    let Experiment::Slice(mut request) = experiment else { panic!("{experiment:?}") };
    change(&mut request);
    results(&mut machine, Experiment::Slice(request))
}

fn modes(chosen: &[Mode]) -> Results {
    let (mut machine, experiment) = Kind::Modes.set_up();
    let Experiment::Modes(mut request) = experiment else { panic!("{experiment:?}") };
    request.modes = chosen.to_vec();
    results(&mut machine, Experiment::Modes(request))
}

fn arms(results: &Results) -> Vec<&str> {
    results.arms.iter().map(|arm| arm.name.id.as_str()).collect()
}

/// Arms of the runs made for this, each once.
fn ran(results: &Results, purpose: Purpose) -> Vec<&str> {
    let mut arms: Vec<&str> =
        results.runs.iter().filter(|run| run.purpose == purpose).map(|run| run.arm.as_str()).collect();
    arms.sort_unstable();
    arms.dedup();
    arms
}

#[test]
fn a_slice_is_compared_with_the_clones_that_were_named() {
    let results = slice(|request| request.arms = vec![SliceArm::VirtInstall, SliceArm::Planned]);
    assert_eq!(arms(&results), ["bare-slice", "planned", "virt-install"]);
    assert_eq!(ran(&results, Purpose::Pair), ["bare-slice", "planned", "virt-install"]);
    assert_eq!(ran(&results, Purpose::SameArm), ["bare-slice", "planned"]);
    // Memory is looked at in the plan's guest and the one as found, where they are there.
    assert_eq!(ran(&results, Purpose::SingleShot), ["bare-slice", "planned"]);
    let results = slice(|request| request.arms = vec![SliceArm::AsFound]);
    assert_eq!(ran(&results, Purpose::SameArm), ["as-found", "bare-slice"], "without the plan's own");
    assert_eq!(ran(&results, Purpose::SingleShot), ["as-found", "bare-slice"]);
}

#[test]
fn each_clone_is_asked_for_by_the_id_of_its_arm() {
    let results = slice(|_| ());
    assert_eq!(arms(&results)[1..], SliceArm::ALL.map(SliceArm::id));
}

#[test]
fn exits_are_counted_by_reason_unless_that_is_not_wanted() {
    let counted = slice(|_| ());
    assert_eq!(ran(&counted, Purpose::ExitReasons), ["as-found", "planned", "virt-install"]);
    let not = slice(|request| request.on.pairing.reasons = false);
    assert_eq!(ran(&not, Purpose::ExitReasons), Vec::<&str>::new());
}

#[test]
fn a_guest_is_spread_in_the_modes_that_were_named() {
    let results = modes(&[Mode::PerNode, Mode::Default]);
    assert_eq!(arms(&results), ["bare-slice", "default", "per-node"]);
    assert_eq!(ran(&results, Purpose::Pair), ["bare-slice", "default", "per-node"]);
    assert_eq!(ran(&results, Purpose::SameArm), ["per-node"], "without cells");
    assert!(results.runs.iter().all(|run| run.failure().is_none()), "{:?}", results.runs);
    assert_eq!(ran(&modes(&[Mode::Default, Mode::Cells]), Purpose::SameArm), ["cells"]);
}

#[test]
fn nothing_beside_bare_metal_is_no_comparison() {
    let (mut machine, experiment) = Kind::Slice.set_up();
    let Experiment::Slice(mut request) = experiment else { panic!("{experiment:?}") };
    request.arms.clear();
    let why = machine.perform(&Experiment::Slice(request)).failed();
    assert!(why.contains("--arm"), "{why}");
    let (mut machine, experiment) = Kind::ModesOfOneJvm.set_up();
    let Experiment::Modes(mut request) = experiment else { panic!("{experiment:?}") };
    request.modes = vec![Mode::PerNode];
    let why = machine.perform(&Experiment::Modes(request)).failed();
    assert!(why.contains("--mode"), "{why}");
}

#[test]
fn a_race_of_networks_without_bare_metal_has_its_ceiling_on_all_pus_alone() {
    let ceiling = |without: &[&str]| -> Vec<(usize, usize)> {
        let (mut machine, experiment) = Kind::NetRace.set_up();
        let Experiment::Net(mut request) = experiment else { panic!("{experiment:?}") };
        request.without.extend(without.iter().map(|word| (*word).to_owned()));
        let document = machine.perform(&Experiment::Net(request)).document();
        let Measurement::Net(results) = document else { panic!("it is a race of networks") };
        assert_eq!(machine.left(), Vec::<String>::new());
        results.ceiling.iter().map(|one| (one.unconfined.len(), one.confined.len())).collect()
    };
    assert_eq!(ceiling(&[]), [(3, 3), (3, 3)]);
    assert_eq!(ceiling(&["bare"]), [(3, 0), (3, 0)]);
}

#[test]
fn requests_of_earlier_versions_ask_for_all_arms_and_reasons() {
    let older = |experiment: &Experiment, words: &[&str]| {
        let text = match experiment {
            Experiment::Slice(request) => serde_json::to_value(request),
            Experiment::Modes(request) => serde_json::to_value(request),
            other => panic!("{other:?}"),
        };
        let mut value = text.unwrap();
        for word in words {
            let (parent, key) = word.rsplit_once('/').unwrap();
            value.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        }
        value.to_string()
    };
    let (_machine, slice) = Kind::Slice.set_up();
    let text = older(&slice, &["/arms", "/pairing/reasons"]);
    assert_eq!(Experiment::parse("slice", &text).unwrap(), slice);
    let (_machine, modes) = Kind::Modes.set_up();
    let parsed: ModesRequest = serde_json::from_str(&older(&modes, &["/modes"])).unwrap();
    assert_eq!(parsed.modes, Mode::WITH_GUESTS);
}
