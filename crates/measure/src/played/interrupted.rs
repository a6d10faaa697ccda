//! Measurements that were interrupted, where the session that goes on with them is not like the first.

use std::sync::atomic::{AtomicU32, Ordering};

use nearmetal_results::Run;

use super::experiments::Kind;
use super::tests::{order, resumed, runs, whole};
use super::*;
use crate::{FIRST_LOOK, LOOKS};

/// Stops an experiment behind the sample of this number.
fn stop_behind(number: usize, machine: &mut Machine, mut experiment: Experiment) {
    let stop = experiment.conditions_mut().stop.clone();
    machine.spoil(move |_, sample| {
        if sample == number {
            stop.ask();
        }
        End::Well
    });
    let why = machine.perform(&experiment).failed();
    assert!(why.contains("stopped before the end"), "{why}");
    machine.spoil(|_, _| End::Well);
}

#[test]
fn a_tune_goes_on_by_the_time_of_its_first_session_however_slow_the_next_one_is() {
    for kind in [Kind::Tune, Kind::TuneOfACommand] {
        let expected = order(&whole(kind));
        let (mut machine, experiment) = kind.set_up();
        stop_behind(3, &mut machine, experiment);
        let experiment = resumed(&machine).unwrap();
        machine.boots_take(Duration::from_secs(100_000));
        let mut anew = experiment.clone();
        anew.conditions_mut().resume = None;
        let why = machine.perform(&anew).failed();
        assert!(why.contains("raise --budget"), "{kind:?}: {why}");
        let made = runs(&machine.perform(&experiment).document());
        assert_eq!(order(&made), expected, "{kind:?}");
        assert_eq!(machine.left(), Vec::<String>::new(), "{kind:?}");
    }
}

/// The rounds of a race.
fn raced(document: &Measurement) -> u32 {
    let turns = match document {
        Measurement::Disk(results) => &results.turns,
        Measurement::Net(results) => &results.turns,
        Measurement::Results(_) => panic!("it is no race"),
    };
    turns.iter().map(|turn| turn.round + 1).max().unwrap_or_default()
}

#[test]
fn a_race_goes_on_by_the_time_of_its_first_session() {
    for kind in [Kind::DiskRace, Kind::NetRace] {
        // With what its set-up left, and as if it had left nothing.
        for (left, rounds) in [(None, FIRST_LOOK << (LOOKS - 1)), (Some("0.0"), FIRST_LOOK)] {
            let (mut machine, experiment) = kind.set_up();
            // They scatter, and none is better than another.
            let count = AtomicU32::new(0);
            machine.rates(move |_| 1000 + count.fetch_add(7, Ordering::Relaxed) % 97);
            stop_behind(14, &mut machine, experiment);
            let mut store = machine.store();
            assert!(store.times(1).unwrap().is_some(), "{kind:?}");
            left.into_iter().for_each(|left| store.keep_times(1, left).unwrap());
            drop(store);
            let document = machine.perform(&resumed(&machine).unwrap()).document();
            assert_eq!(raced(&document), rounds, "{kind:?}: {left:?}");
            assert_eq!(machine.left(), Vec::<String>::new(), "{kind:?}");
        }
    }
}

#[test]
fn no_sample_of_an_earlier_session_stands_beside_a_round_that_was_made_again() {
    let expected = whole(Kind::Slice);
    let arms = |run: &Run| expected.iter().filter(|other| other.round == run.round).count();
    let before = expected.iter().position(|run| arms(run) == 4).unwrap();

    // Two steps of that round fail and are tried again, and behind the third it is stopped: it has five runs, and four when whole.
    let (mut machine, mut experiment) = Kind::Slice.set_up();
    let stop = experiment.conditions_mut().stop.clone();
    machine.spoil(move |_, number| {
        if number == before + 4 {
            stop.ask();
        }
        if [before, before + 2].contains(&number) { End::Fails } else { End::Well }
    });
    assert!(machine.perform(&experiment).failed().contains("stopped before the end"));
    assert_eq!(machine.store().runs(1).unwrap().len(), before + 5);

    // The next session makes it again, and is stopped behind it.
    let experiment = resumed(&machine).unwrap();
    stop_behind(before + 8, &mut machine, experiment);
    assert_eq!(machine.store().runs(1).unwrap().len(), before + 4);
    let made = runs(&machine.perform(&resumed(&machine).unwrap()).document());
    assert_eq!(order(&made), order(&expected));
    assert_eq!(machine.left(), Vec::<String>::new());
}
