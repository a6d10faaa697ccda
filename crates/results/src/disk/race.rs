//! What a matrix leaves: every run, how each arm fared, the winner measured again. Schema `nearmetal.matrix/1`.

use std::collections::BTreeMap;

use nearmetal_load::Workload;
use nearmetal_stats::{Fate, RatioEstimate, ratio};
use serde::{Deserialize, Serialize};

use super::path::DiskPath;
use crate::advice::Advice;
use crate::compare::{CONFIDENCE, pairs_of_runs};
use crate::document;
use crate::effect::Effect;
use crate::error::ResultsError;
use crate::ground::GroundKey;
use crate::left_out::LeftOut;
use crate::results::{Environment, Purpose, Run, Slice};
use crate::turn::{METRIC, Turn};

/// Value of [`MatrixResults::schema`].
pub const MATRIX_SCHEMA: &str = "nearmetal.matrix/1";

/// One matrix of disk paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixResults {
    /// Always [`MATRIX_SCHEMA`] for this version.
    pub schema: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// nearmetal's version.
    pub version: String,
    /// On what the figures were taken.
    pub environment: Environment,
    /// What a later plan must agree with to use this.
    pub ground: GroundKey,
    /// Domain.
    pub guest: String,
    /// What the guest owns, and bare metal is confined to.
    pub slice: Slice,
    /// What every run ran.
    pub workload: Workload,
    /// Seed of order and bootstrap.
    pub seed: u64,
    /// Seconds it was given.
    pub budget: u32,
    /// Seconds it took.
    pub took: f64,
    /// Probability, stated beforehand, with which the best arm may be lost, over all arms and looks.
    pub error: f64,
    /// Rounds after which arms could leave.
    pub looks: Vec<u32>,
    /// The arms; QEMU's default is the first.
    pub arms: Vec<ArmResult>,
    /// Arms that were not measured.
    pub left_out: Vec<LeftOut>,
    /// Runs of the race, in the order they ran.
    pub turns: Vec<Turn>,
    /// Number of the winner; `None` if no arm could win.
    pub winner: Option<usize>,
    /// The factor by which an arm not shown worse may be better than the winner, but for `error`; `None` if it cannot
    /// be told.
    pub slack: Option<f64>,
    /// The winner measured again.
    pub confirmation: Option<Confirmation>,
    /// What a reader must know.
    pub caveats: Vec<String>,
    /// Versions, kernel, arguments.
    pub provenance: BTreeMap<String, String>,
}

/// How one arm fared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// The arm.
    pub path: DiskPath,
    /// Its id.
    pub id: String,
    /// Region or file behind it.
    pub source: String,
    /// What was read back before its first run.
    pub effect: Effect,
    /// Why it is measured and cannot win; `None` if it can.
    pub cannot_win: Option<String>,
    /// How far it came; `None` if it did not take effect.
    pub fate: Option<Fate>,
    /// Rounds it was measured in.
    pub rounds: usize,
    /// Median of its values, IOPS.
    pub median: Option<f64>,
    /// Against QEMU's default in the same rounds; the interval is this arm's alone, without regard to the others.
    pub to_default: Option<RatioEstimate>,
}

/// The winner, QEMU's default and bare metal, each guest alone with its disk, in fresh rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Runs: `winner`, `qemu-default` and `bare-slice`; of before 0.2 `planned` is the winner, `as-found` QEMU's default.
    pub runs: Vec<Run>,
    /// Winner over default.
    pub to_default: Option<RatioEstimate>,
    /// Winner over bare metal.
    pub to_bare: Option<RatioEstimate>,
}

impl Confirmation {
    /// Works out the ratios of fresh runs.
    pub fn of(runs: Vec<Run>, seed: u64) -> Self {
        let all: Vec<&Run> = runs.iter().filter(|run| run.purpose == Purpose::Pair).collect();
        let against = |reference| ratio(&pairs_of_runs(&all, METRIC, "winner", reference), CONFIDENCE, seed).ok();
        Self { to_default: against("qemu-default"), to_bare: against("bare-slice"), runs }
    }
}

impl MatrixResults {
    /// Reads a document.
    ///
    /// # Errors
    /// Another schema, or not of its form.
    pub fn parse(text: &str) -> Result<Self, ResultsError> {
        const WHAT: &str = "the results of a matrix";
        let results: Self = document::parse(text, WHAT, MATRIX_SCHEMA, |results: &Self| &results.schema)?;
        if results.winner.is_some_and(|winner| winner >= results.arms.len()) {
            return Err(document::unreadable(WHAT, "its winner is none of its arms".to_owned(), text));
        }
        Ok(results)
    }

    /// What to use.
    pub fn advice(&self) -> Advice<'_, ArmResult> {
        // What loses flushed data is never advised.
        let can_win = |arm: &ArmResult| arm.path.cache.is_durable() && arm.cannot_win.is_none();
        let to_default = self.confirmation.as_ref().and_then(|confirmation| confirmation.to_default.as_ref());
        Advice::of(&self.arms, self.winner, 0, can_win, to_default)
    }
}

/// An arm's ratio to QEMU's default (arm 0) over the rounds both were measured in, and its median.
pub fn to_default_and_median(turns: &[Turn], arm: usize, seed: u64) -> (Option<RatioEstimate>, Option<f64>) {
    let to_default = ratio(&Turn::pairs(turns, METRIC, arm, 0), CONFIDENCE, seed).ok();
    (to_default, Turn::median(turns, METRIC, arm))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::disk::path::{Container, PathCache};
    use crate::results::{Outcome, Purpose};
    use nearmetal_load::FioJob;
    use nearmetal_load::{Metric, Unit};
    use nearmetal_place::DiskEngine;
    use nearmetal_units::{Bytes, CpuSet, NodeSet};

    /// A race of QEMU's default against one other arm that is twice as fast; invented values for tests.
    pub(crate) fn sample_matrix(cache: PathCache) -> MatrixResults {
        let workload = Workload::Fio(FioJob::first_seed(Bytes::from_kib(4), 3, 1));
        let outcome = |value| Outcome::Measured {
            metrics: Metric::new("iops", Unit::Iops, value).into_iter().collect(),
            notes: vec![],
        };
        let started = "2026-01-01T00:00:00Z".to_owned();
        let default = DiskPath::qemu_default(Container::Partition);
        let other = DiskPath { cache, engine: DiskEngine::IoUring, iothreads: 1, ..default };
        let values = [(0, 0, 1000.0), (0, 1, 2000.0), (1, 0, 1100.0), (1, 1, 2300.0), (2, 0, 900.0), (2, 1, 1850.0)];
        let turns: Vec<Turn> = values
            .into_iter()
            .map(|(round, arm, value)| Turn {
                round,
                position: arm as u32,
                arm,
                seed: 1,
                started: started.clone(),
                seconds: 4.0,
                outcome: outcome(value),
            })
            .collect();
        let runs = values
            .into_iter()
            .map(|(round, arm, value)| Run {
                round,
                position: arm as u32,
                purpose: Purpose::Pair,
                arm: if arm == 1 { "winner".into() } else { "qemu-default".into() },
                count: 1,
                together: None,
                workload: workload.clone(),
                seed: 1,
                started: started.clone(),
                seconds: 4.0,
                outcome: outcome(value),
            })
            .collect();
        let arm = |number: usize, path: DiskPath, fate| {
            let (to_default, median) = to_default_and_median(&turns, number, 1);
            ArmResult {
                path,
                id: path.id(),
                source: format!("/dev/x{number}"),
                effect: Effect::Shown { evidence: vec!["test".into()] },
                cannot_win: None,
                fate: Some(fate),
                rounds: 3,
                median,
                to_default,
            }
        };
        MatrixResults {
            schema: MATRIX_SCHEMA.into(),
            created: started.clone(),
            version: "0".into(),
            environment: Environment::Lab { machine: "quad".into() },
            ground: GroundKey { device: "QEMU NVMe Ctrl".into(), kernel: "6.12.41".into(), qemu: "10.0.8".into() },
            guest: "web1".into(),
            slice: Slice {
                cpus: CpuSet::one(6),
                nodes: NodeSet::one(2),
                page_size: None,
                device: "/dev/nvme0n2".into(),
                region: Bytes::from_mib(256),
                cpus_on_top: CpuSet::one(8),
            },
            workload,
            seed: 1,
            budget: 600,
            took: 100.0,
            error: 0.05,
            looks: vec![3],
            arms: vec![arm(0, default, Fate::ShownWorse { look: 0, than: 1 }), arm(1, other, Fate::Racing)],
            left_out: vec![],
            turns: turns.clone(),
            winner: Some(1),
            slack: Some(1.0),
            confirmation: Some(Confirmation::of(runs, 1)),
            caveats: vec![],
            provenance: BTreeMap::new(),
        }
    }

    #[test]
    fn a_matrix_survives_json_and_advises_what_was_shown() {
        let results = sample_matrix(PathCache::None);
        let text = serde_json::to_string(&results).unwrap();
        let back = MatrixResults::parse(&text).unwrap();
        assert_eq!(back.turns, results.turns);
        let Advice::Use(arm, estimate) = back.advice() else { panic!("{:?}", back.advice()) };
        assert_eq!(arm.path.engine, DiskEngine::IoUring);
        assert!(estimate.ratio > 1.9 && estimate.interval().low > 1.5, "{estimate:?}");
    }

    #[test]
    fn nothing_is_advised_that_was_not_shown_or_that_loses_data() {
        assert_eq!(sample_matrix(PathCache::Unsafe).advice(), Advice::Unknown);
        let results = sample_matrix(PathCache::None);
        let without = MatrixResults { confirmation: None, ..results.clone() };
        assert_eq!(without.advice(), Advice::Unknown);
        assert_eq!(MatrixResults { winner: Some(0), ..results.clone() }.advice(), Advice::Default);
        let mut equal = results.clone();
        for run in equal.confirmation.iter_mut().flat_map(|confirmation| confirmation.runs.iter_mut()) {
            run.arm = if run.arm == "winner" { "qemu-default".into() } else { "winner".into() };
        }
        equal.confirmation = equal.confirmation.map(|confirmation| Confirmation::of(confirmation.runs, 1));
        assert!(matches!(equal.advice(), Advice::NoneFaster(_, estimate) if estimate.ratio < 0.6));
    }

    #[test]
    fn what_is_no_matrix_is_refused() {
        let good = serde_json::to_string(&sample_matrix(PathCache::None)).unwrap();
        for junk in [
            "".to_owned(),
            "{}".to_owned(),
            good.replace(MATRIX_SCHEMA, "nearmetal.matrix/2"),
            good.replace("\"winner\":1", "\"winner\":7"),
            good.replace("io_uring", "magic"),
        ] {
            assert!(MatrixResults::parse(&junk).is_err(), "{}", junk.chars().take(60).collect::<String>());
        }
    }
}
