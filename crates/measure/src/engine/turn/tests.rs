//! Several tenants whose loads prepare something, on a machine that is played.

use nearmetal_load::{FioJob, OltpJob};

use super::*;
use crate::played::{End, LOADS, Machine};

fn taken(machine: &mut Machine, loads: &[&Workload]) -> Result<Vec<Told>, MeasureError> {
    let conditions = crate::Conditions { loads: Some(LOADS.into()), ..machine.conditions() };
    let slice = nearmetal_results::samples::sample_results().tenants[0].slice.clone();
    let tenants: Vec<Tenant> =
        ["one", "two", "three"][..loads.len()].iter().map(|name| Tenant::new(name, slice.clone())).collect();
    let seats: Vec<Seat> = loads.iter().map(|_| Seat::bare("/dev/nvme8n1")).collect();
    machine.in_session(&conditions, |session| {
        let lead = Some(Duration::from_secs(2));
        let turn = Turn { tenants: &tenants, seats: &seats, loads, seed: 7, lead, gates: "40".to_owned() };
        let prepared = turn.prepared(session)?;
        turn.taken(prepared, session)
    })
}

/// What was run, in order: programs with a gate, what asks one, and the rest.
fn done(machine: &Machine) -> Vec<String> {
    let one = |step: String| {
        let words: Vec<&str> = step.split(' ').collect();
        let after = |name: &str| words.iter().position(|word| *word == name).map(|place| words[place + 1..].to_vec());
        let timed = if words.contains(&"--nanoseconds") { " at its moment" } else { "" };
        match (after("--gate"), after("gate")) {
            (Some(gate), _) => Some(format!("prepare {}", &gate[0][gate[0].len() - 4..])),
            (_, Some(asked)) => Some(format!("{} {}{timed}", asked[0], &asked[1][asked[1].len() - 4..])),
            _ => words.contains(&"fio").then(|| format!("fio{timed}")),
        }
    };
    machine.steps().into_iter().filter_map(one).collect()
}

#[test]
fn all_are_ready_before_any_begins_and_what_prepares_nothing_begins_with_them() {
    let (database, blocks): (Workload, Workload) =
        (OltpJob::small().into(), FioJob::first_seed(nearmetal_units::Bytes::from_kib(4), 3, 1).into());
    let mut machine = Machine::with(&[]);
    let told = taken(&mut machine, &[&database, &blocks, &database]).unwrap();
    assert_eq!(told.len(), 3);
    assert!(told[0].output.contains("rows 2000") && told[1].output.contains("iops"));
    let begin = ["open 40-0 at its moment", "fio at its moment", "open 40-2 at its moment"];
    // Who asks about the second is there before the first is ready.
    let prepare = ["prepare 40-0", "prepare 40-2", "wait 40-0", "wait 40-2"];
    assert_eq!(done(&machine), [&prepare[..], &begin[..]].concat());
}

#[test]
fn where_one_never_gets_ready_nobody_begins_and_its_own_words_are_the_reason() {
    let database: Workload = OltpJob::small().into();
    let mut machine = Machine::with(&[]);
    machine.spoil(|_, number| if number == 1 { End::NeverReady } else { End::Well });
    let Err(error) = taken(&mut machine, &[&database, &database]) else { panic!("it never got ready") };
    let words = error.to_string();
    assert!(words.contains("on the bare slice of `two` failed: no room for the database"), "{words}");
    let done = done(&machine);
    assert!(!done.iter().any(|step| step.contains("open")), "{done:?}");
    assert!(done.ends_with(&["close 40-0".to_owned()]), "the other gives back what it works on: {done:?}");
}

#[test]
fn one_that_still_prepares_is_not_left_behind_where_another_has_failed() {
    let database: Workload = OltpJob::small().into();
    let mut machine = Machine::with(&[]);
    machine.spoil(|_, number| if number == 0 { End::NeverReady } else { End::StaysUnready });
    let Err(error) = taken(&mut machine, &[&database, &database]) else { panic!("the first failed") };
    assert!(error.to_string().contains("`one` failed: no room for the database"), "{error}");
    let done = done(&machine);
    assert!(done.ends_with(&["wait 40-1".to_owned(), "close 40-1".to_owned()]), "{done:?}");
}

#[test]
fn where_one_is_not_told_to_begin_it_ends_and_all_are_waited_for() {
    let database: Workload = OltpJob::small().into();
    let mut machine = Machine::with(&[]);
    machine.fails_once("gate open 40-1");
    let Err(error) = taken(&mut machine, &[&database, &database, &database]) else { panic!("the second never began") };
    let words = error.to_string();
    assert!(words.contains("on the bare slice of `two` failed") && words.contains("spoiled by the test"), "{words}");
    assert!(done(&machine).contains(&"open 40-2 at its moment".to_owned()), "{:?}", done(&machine));
}
