//! From a pilot to a fixed number of pairs.
//!
//! The first rounds are the pilot. From their scatter, and before anybody looks at a ratio, the number of pairs is worked
//! out that brings every interval to the width asked for; it is then fixed. Stopping when a result pleases is not an
//! experiment.

use nearmetal_stats::{PairsNeeded, pairs_needed};

use crate::compare::{AGAINST, CONFIDENCE, pairs};
use crate::error::MeasureError;
use crate::results::{Purpose, Run};
use crate::schedule::{Design, Step, schedule};
use crate::workload::Workload;

/// What decides for each kind of workload: the metric whose ratio is claimed.
const METRIC: &str = "iops";

/// The pairs one workload needs so that every ratio's interval reaches no farther than a factor of 1 + `resolve`: the
/// most that any two arms need. `None` where the pilot gave fewer than two pairs.
pub(crate) fn needed(runs: &[Run], workload: &Workload, resolve: f64) -> Result<Option<PairsNeeded>, MeasureError> {
    let of: Vec<&Run> = runs.iter().filter(|run| run.purpose == Purpose::Pair && run.workload == *workload).collect();
    let mut most: Option<PairsNeeded> = None;
    for (subject, reference) in AGAINST {
        let pilot = pairs(&of, METRIC, subject, reference);
        if pilot.len() < 2 {
            continue;
        }
        let found = pairs_needed(&pilot, resolve, CONFIDENCE)?;
        if most.is_none_or(|most| found.uncapped > most.uncapped) {
            most = Some(found);
        }
    }
    Ok(most)
}

/// The rounds still to be run for a workload, numbered from `first`.
pub(crate) fn remaining(design: &Design, workload: &Workload, count: u32, seed: u64, first: u32) -> Vec<Step> {
    let rest = Design {
        arms: design.arms.clone(),
        paired: vec![workload.clone()],
        rounds: count,
        same_arm: Vec::new(),
        same_arm_pairs: 0,
        single_shot: Vec::new(),
    };
    let mut steps = schedule(&rest, seed);
    steps.iter_mut().for_each(|step| step.round += first);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::ArmKind;
    use crate::results::tests::sample_results;

    #[test]
    fn a_scattered_pilot_needs_more_pairs_than_it_had() {
        let results = sample_results();
        let workload = results.runs[0].workload.clone();
        let wide = needed(&results.runs, &workload, 0.5).unwrap().unwrap();
        let narrow = needed(&results.runs, &workload, 0.005).unwrap().unwrap();
        assert_eq!(wide.n, 3, "three pairs of much the same ratio");
        assert!(narrow.n > wide.n, "{narrow:?}");
        let absent = Workload::Fio(crate::workload::FioJob::first_seed(nearmetal_units::Bytes::from_kib(64), 5, 1));
        assert_eq!(needed(&results.runs, &absent, 0.05).unwrap(), None);
    }

    #[test]
    fn the_rest_goes_on_counting_and_holds_pairs_alone() {
        let design = Design {
            arms: vec![ArmKind::BareSlice, ArmKind::Planned],
            paired: Vec::new(),
            rounds: 10,
            same_arm: vec![ArmKind::Planned],
            same_arm_pairs: 2,
            single_shot: Vec::new(),
        };
        let workload = sample_results().runs[0].workload.clone();
        let steps = remaining(&design, &workload, 3, 7, 20);
        assert_eq!(steps.len(), 6);
        assert!(steps.iter().all(|step| step.purpose == Purpose::Pair && (20..23).contains(&step.round)));
    }
}
