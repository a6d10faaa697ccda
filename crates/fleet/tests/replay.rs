//! A plan whose search was ended early is given again by the steps it says were done.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::Duration;

use common::{host, steps, vm};
use nearmetal_fleet::{Fleet, Options, plan};

/// More than its hosts hold, so that there is always something left to try.
fn crowded() -> Fleet {
    let hosts = (0..12).map(|index| host(&format!("h{index}"), 4, 8, 2, 64, 0)).collect();
    let vms = (0..260u32).map(|index| vm(format!("v{index}"), 1 + index * 7 % 13, 1 + u64::from(index * 5 % 17)));
    Fleet { vms: vms.collect(), hosts, ..Fleet::default() }
}

#[test]
fn a_plan_ended_by_its_budget_is_given_again_by_its_steps() {
    let fleet = crowded();
    let mut ended = 0;
    for budget in [0, 5, 20, 60] {
        let options = Options { budget: Some(Duration::from_millis(budget)), ..steps(1_000_000) };
        let hurried = plan(&fleet, &options).unwrap();
        assert_eq!(hurried.search.steps, 1_000_000);
        ended += u32::from(hurried.search.stopped_early);
        let again = plan(&fleet, &Options { budget: None, ..steps(hurried.search.done) }).unwrap();
        assert_eq!(again.placements, hurried.placements, "{budget} ms, {} steps", hurried.search.done);
        assert_eq!((again.refusals, again.objective), (hurried.refusals, hurried.objective));
    }
    assert!(ended > 0, "no budget ended a search: the fleet is too easy for this test");
}
