//! In which order the steps of rounds are made, what a failure costs, and whom the caller hears of.

use std::cell::RefCell;
use std::collections::VecDeque;

use nearmetal_results::{Purpose, State};

use super::*;
use crate::event::Event;

/// Rounds that are given, each behind a choice of an order.
struct Given(VecDeque<Round>);

impl Design for Given {
    fn next(
        &mut self,
        _: &[Run],
        arrange: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError> {
        arrange(&mut vec![0, 1, 2], &mut SplitMix::new(1));
        Ok(self.0.pop_front())
    }

    fn total(&self) -> usize {
        9
    }

    fn notes(&self) -> Vec<String> {
        vec!["what the design says".to_owned()]
    }
}

/// A path on the host that writes down what is asked of it. Turns to arms are counted from 1, and some of them fail.
struct Written {
    said: RefCell<Vec<String>>,
    turns: usize,
    fails: fn(usize) -> bool,
}

impl Written {
    fn new(fails: fn(usize) -> bool) -> Self {
        Self { said: RefCell::default(), turns: 0, fails }
    }

    /// What was asked of it that begins with one of these words.
    fn said(&self, words: &[&str]) -> Vec<String> {
        let said = self.said.borrow();
        said.iter().filter(|line| words.iter().any(|word| line.starts_with(word))).cloned().collect()
    }
}

impl Path for Written {
    fn turn_to(&mut self, step: &Step, _: &mut Session<'_>) -> Result<(), MeasureError> {
        self.turns += 1;
        self.said.borrow_mut().push(format!("turn to {}", step.arm));
        if (self.fails)(self.turns) { Err(MeasureError::Unfit("it does not turn".into())) } else { Ok(()) }
    }

    fn seat(&self, _: usize, _: usize) -> Seat {
        Seat::bare("/dev/x")
    }

    fn refresh(&mut self, arms: &[usize], _: &mut Session<'_>) -> Result<(), MeasureError> {
        self.said.borrow_mut().push(format!("boot {arms:?}"));
        Ok(())
    }

    fn arrange(&self, _: &mut Vec<usize>, last: Option<usize>, _: &mut SplitMix) {
        self.said.borrow_mut().push(format!("choose behind {last:?}"));
    }
}

/// The same, which finds a guest dead after each failure and starts it again.
struct Revived(Written);

impl Path for Revived {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.0.turn_to(step, session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        self.0.seat(arm, tenant)
    }

    fn revive(&mut self, _: &Step, _: &mut Session<'_>) -> Result<bool, MeasureError> {
        Ok(true)
    }
}

fn round(number: u32, arms: &[usize]) -> Round {
    let workload: Workload = FioJob::first_seed(Bytes::from_kib(4), 3, 1).into();
    let step = |arm: &usize| Step { purpose: Purpose::Pair, arm: *arm, count: 1, workload: workload.clone(), seed: 5 };
    Round { number, steps: arms.iter().map(step).collect(), fresh: Fresh::No, whole_or_nothing: false }
}

/// Rounds of one step each.
fn singles(count: u32) -> Vec<Round> {
    (0..count).map(|number| round(number, &[0])).collect()
}

/// Rounds of all three arms that are left out where an arm fails.
fn wholes(count: u32) -> Vec<Round> {
    (0..count).map(|number| Round { whole_or_nothing: true, ..round(number, &[0, 1, 2]) }).collect()
}

fn carried(rounds: Vec<Round>, path: &mut dyn Path) -> Result<Vec<Run>, MeasureError> {
    in_session(&mut Machine::new(), |session| carried_in(session, rounds, path))
}

fn carried_in(session: &mut Session<'_>, rounds: Vec<Round>, path: &mut dyn Path) -> Result<Vec<Run>, MeasureError> {
    let arms = vec![ArmName::bare_slice(), ArmName::as_found(), ArmName::planned()];
    let tenants = vec![Tenant::new("web1", slice())];
    carry_out(&mut Given(rounds.into()), &mut Subject { arms, tenants, path, least_overlap: 0.0 }, session)
}

#[test]
fn guests_are_booted_before_a_round_or_before_each_arm_as_the_round_says() {
    let mut path = Written::new(|_| false);
    let rounds = vec![
        round(0, &[0, 1]),
        Round { fresh: Fresh::Round, ..round(1, &[2, 1, 2]) },
        Round { fresh: Fresh::Arm, ..round(2, &[1, 1, 2]) },
    ];
    carried(rounds, &mut path).unwrap();
    let expected = [
        "turn to 0",
        "turn to 1", // None is booted.
        "boot [1, 2]",
        "turn to 2",
        "turn to 1",
        "turn to 2", // Each once, in the order of the arms.
        "boot [1]",
        "turn to 1",
        "turn to 1",
        "boot [2]",
        "turn to 2",
    ];
    assert_eq!(path.said(&["boot", "turn"]), expected);
}

#[test]
fn an_order_may_hang_on_the_arm_that_ran_last() {
    let mut path = Written::new(|_| false);
    carried(vec![round(0, &[0, 2]), round(1, &[1])], &mut path).unwrap();
    assert_eq!(path.said(&["choose"]), ["choose behind None", "choose behind Some(2)", "choose behind Some(1)"]);
}

#[test]
fn four_steps_that_fail_at_every_try_end_the_experiment() {
    let mut path = Written::new(|_| true);
    let why = carried(singles(9), &mut path).unwrap_err().to_string();
    // A step is tried twice, and is one failure all the same.
    assert_eq!((path.turns, why.as_str()), (8, "4 runs in a row failed, the last: it does not turn"));
    // A pair that lost an arm twice is no pair, and the machine has failed twice.
    let mut path = Written::new(|_| true);
    let why = carried(wholes(9), &mut path).unwrap_err().to_string();
    assert_eq!((path.turns, why.as_str()), (4, "4 runs in a row failed, the last: it does not turn"));
}

#[test]
fn one_run_that_succeeds_between_failures_begins_their_count_anew() {
    // Three steps fail twice each, and the fourth is well; twice over.
    let runs = carried(singles(8), &mut Written::new(|turn| turn % 7 != 0)).unwrap();
    let good: Vec<u32> = runs.iter().filter(|run| run.failure().is_none()).map(|run| run.round).collect();
    assert_eq!((runs.len(), good), (14, vec![3, 7]));
    // In pairs each try counts: three fail, and the fourth is well.
    let runs = carried(wholes(6), &mut Written::new(|turn| turn % 4 != 0)).unwrap();
    assert_eq!(runs.iter().filter(|run| run.failure().is_none()).count(), 5, "{}", runs.len());
}

#[test]
fn a_pair_that_lost_an_arm_is_left_out_and_other_rounds_go_on() {
    // The second arm fails at both tries.
    let turns = |whole_or_nothing| {
        let mut path = Written::new(|turn| turn == 2 || turn == 3);
        carried(vec![Round { whole_or_nothing, ..round(0, &[0, 1, 2]) }], &mut path).unwrap();
        path.said(&["turn"])
    };
    assert_eq!(turns(true), ["turn to 0", "turn to 1", "turn to 1"]);
    assert_eq!(turns(false), ["turn to 0", "turn to 1", "turn to 1", "turn to 2"]);
}

#[test]
fn a_run_whose_guest_was_started_again_is_no_failure() {
    let fails = |turn: usize| turn == 1;
    let runs = carried(singles(1), &mut Revived(Written::new(fails))).unwrap();
    assert_eq!((runs.len(), runs[0].failure()), (1, None));
    // Where nobody starts guests again the failure is on record, and the step is tried once more.
    let runs = carried(singles(1), &mut Written::new(fails)).unwrap();
    let failed: Vec<bool> = runs.iter().map(|run| run.failure().is_some()).collect();
    assert_eq!(failed, [true, false]);
}

#[test]
fn a_path_that_shares_nothing_between_arms_has_them_in_random_order() {
    struct Plain;
    impl Path for Plain {
        fn seat(&self, _: usize, _: usize) -> Seat {
            Seat::bare("")
        }
    }
    let mut random = SplitMix::new(7);
    let firsts: std::collections::BTreeSet<usize> = (0..40)
        .map(|_| {
            let mut arms = vec![0, 1, 2];
            Plain.arrange(&mut arms, None, &mut random);
            arms[0]
        })
        .collect();
    assert_eq!(firsts.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn whoever_waits_hears_of_every_stage_and_of_every_run_before_it() {
    let mut machine = Machine::new();
    let conditions = machine.conditions();
    let mut heard = Vec::new();
    let mut tell = |event: Event<'_>| {
        heard.push(match event {
            Event::Stage(stage) => stage.to_owned(),
            Event::Run { done, total, round, arm, load } => format!("{done} of {total}, round {round}: {arm}, {load}"),
        });
    };
    let site = Site { fs: &machine.fs, hypervisor: &mut machine.fake, tell: &mut tell };
    let notes = Session::run(&conditions, site, |session| {
        session.stage("it begins");
        carried_in(session, vec![round(0, &[0, 1]), round(1, &[2])], &mut Written::new(|_| false))?;
        Ok(session.notes.clone())
    });
    assert_eq!(notes.unwrap(), ["what the design says"]);
    let load = round(0, &[0]).steps[0].workload.label();
    let runs = ["0 of 9, round 0: bare slice", "1 of 9, round 0: as found", "2 of 9, round 1: planned"];
    let begins = heard.iter().position(|stage| stage == "it begins").unwrap();
    let runs = runs.map(|run| format!("{run}, {load}"));
    let expected: Vec<String> = runs.into_iter().chain(["putting everything back".to_owned()]).collect();
    assert_eq!(heard[begins + 1..], expected);
}

/// Two designs, one after the other, that look alike.
#[derive(Serialize)]
struct Twice(Conditions);

impl Request for Twice {
    type Outcome = [Vec<Run>; 2];

    fn conditions(&self) -> &Conditions {
        &self.0
    }

    fn guests(&self) -> Vec<String> {
        vec![ORIGINAL.to_owned()]
    }

    fn measure(&self, session: &mut Session<'_>) -> Result<Self::Outcome, MeasureError> {
        let first = carried_in(session, singles(2), &mut Written::new(|_| false))?;
        // The second dies in its second round, unless it goes on.
        let fails: fn(usize) -> bool = if self.0.resume.is_none() { |turn| turn > 1 } else { |_| false };
        Ok([first, carried_in(session, singles(8), &mut Written::new(fails))?])
    }
}

#[test]
fn a_measurement_goes_on_in_the_design_it_stopped_in() {
    let mut machine = Machine::new();
    let mut measure = |resume| {
        let conditions = Conditions { resume, ..machine.conditions() };
        let site = Site { fs: &machine.fs, hypervisor: &mut machine.fake, tell: &mut |_| {} };
        let came = in_a_session("test", &Twice(conditions), site);
        let made = std::mem::take(&mut *machine.told.lock().unwrap()).len();
        (came, made, machine.store().entries(None).unwrap().remove(0))
    };
    let (came, made, entry) = measure(None);
    let why = came.unwrap_err().to_string();
    assert!(why.contains("4 runs in a row failed"), "{why}");
    assert_eq!(made, 3, "two of the first design and one of the second");
    assert_eq!(entry.state, State::Failed(why), "the store says why it stopped");
    let (came, made, entry) = measure(Some(entry.id));
    let [first, second] = came.unwrap();
    assert_eq!((first.len(), second.len(), made), (2, 8, 7), "what was written down is not made again");
    assert_eq!(entry.state, State::Done);
}

#[test]
fn accesses_that_a_slow_machine_did_not_count_are_looked_for_in_a_longer_sample() {
    let asked = |purpose, workload: Workload| {
        let mut machine = Machine::new();
        let runs = in_session(&mut machine, |session| {
            let mut rounds = singles(1);
            (rounds[0].steps[0].purpose, rounds[0].steps[0].workload) = (purpose, workload);
            carried_in(session, rounds, &mut Written::new(|_| false))
        });
        let told = machine.told.lock().unwrap();
        let seconds = |told: &Told| {
            let words = told.words.join(" ").replace("--seconds ", "--seconds=");
            let is_it = |word: &&str| ["--runtime=", "--seconds="].iter().any(|start| word.starts_with(start));
            words.split(' ').find(is_it).unwrap().to_owned()
        };
        (runs.map_err(|error| error.to_string()), told.iter().map(seconds).collect::<Vec<_>>())
    };
    let fio = || round(0, &[0]).steps[0].workload.clone();
    // This machine counts none, however long.
    let (runs, seconds) = asked(Purpose::Accesses, fio());
    assert_eq!(seconds, ["--runtime=3", "--runtime=12"]);
    let runs = runs.unwrap();
    assert!(runs.iter().all(|run| run.failure().is_some() && run.workload == fio()));
    assert_eq!(asked(Purpose::Pair, fio()).1, ["--runtime=3"]);
    // One that fills its memory first is still at that when another would work.
    let walk = nearmetal_load::WorkJob { threads: 2, each: Bytes::from_mib(16), seconds: 3 };
    assert_eq!(asked(Purpose::Accesses, walk.clone().into()).1, ["--seconds=14", "--seconds=50"]);
    assert_eq!(asked(Purpose::Pair, walk.into()).1[0], "--seconds=5");
}
