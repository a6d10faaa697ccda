//! What a network matrix leaves: every run, how each arm fared, the winner measured again. Schema `nearmetal.net-matrix/1`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nearmetal_load::{NetTest, Unit};
use nearmetal_stats::{Fate, RatioEstimate, Sample, ratio};
use serde::{Deserialize, Serialize};

use super::costs::is_cost;
use super::path::{Link, NetPath};
use crate::advice::Advice;
use crate::compare::CONFIDENCE;
use crate::document;
use crate::effect::Effect;
use crate::error::ResultsError;
use crate::ground::GroundKey;
use crate::left_out::LeftOut;
use crate::results::{Environment, Slice};
use crate::turn::Turn;

/// Value of [`NetMatrixResults::schema`].
pub const NET_MATRIX_SCHEMA: &str = "nearmetal.net-matrix/1";

/// A figure from this part of the peer's ceiling on may be the peer's, not the arm's.
pub const PEER_BOUND: f64 = 0.9;

/// One matrix of network paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetMatrixResults {
    /// Always [`NET_MATRIX_SCHEMA`] for this version.
    pub schema: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// nearmetal's version.
    pub version: String,
    /// On what the figures were taken.
    pub environment: Environment,
    /// What a later plan must agree with to use this: `device` is the port's driver and ids.
    pub ground: GroundKey,
    /// Domain.
    pub guest: String,
    /// What the guest owns, and bare metal is confined to; its `device` is the port.
    pub slice: Slice,
    /// Interface of the port.
    pub port: String,
    /// Node of the port; `None` where the firmware gave no affinity.
    pub port_node: Option<u32>,
    /// Where netserver answers.
    pub peer: IpAddr,
    /// What was run; the first decided the race.
    pub tests: Vec<NetTest>,
    /// Measured seconds of each run.
    pub seconds: u32,
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
    /// What this machine and the peer get together without a guest, before the race.
    pub ceiling: Vec<Ceiling>,
    /// The arms; libvirt's default is the first.
    pub arms: Vec<NetArmResult>,
    /// Number of the arm that all others are compared with: libvirt's default, or where that took no effect the first that did.
    #[serde(default)]
    pub reference: usize,
    /// Arms that were not measured.
    pub left_out: Vec<LeftOut>,
    /// Runs of the race, in the order they ran.
    pub turns: Vec<Turn>,
    /// Number of the winner; `None` if no arm could win.
    pub winner: Option<usize>,
    /// The factor by which an arm not shown worse may be better than the winner, but for `error`.
    pub slack: Option<f64>,
    /// The winner measured again.
    pub confirmation: Option<NetConfirmation>,
    /// What a reader must know.
    pub caveats: Vec<String>,
    /// Versions, kernel, arguments.
    pub provenance: BTreeMap<String, String>,
}

/// What the peer was seen to take, in one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Test.
    pub test: NetTest,
    /// Unit of the rates.
    pub unit: Unit,
    /// Rates of bare metal on all PUs.
    pub unconfined: Vec<f64>,
    /// Rates of bare metal on the guest's PUs and node; empty where bare metal was left out.
    pub confined: Vec<f64>,
}

impl Ceiling {
    /// The larger of the two medians.
    pub fn rate(&self) -> Option<f64> {
        let median = |values: &[f64]| Sample::new(values.to_vec()).ok().map(|sample| sample.median());
        [median(&self.unconfined), median(&self.confined)].into_iter().flatten().max_by(f64::total_cmp)
    }
}

/// How one arm fared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetArmResult {
    /// The arm.
    pub path: NetPath,
    /// Its id.
    pub id: String,
    /// Interface, or function, it lay on.
    pub source: String,
    /// What was read back before its first run.
    pub effect: Effect,
    /// Why it is measured and cannot win; `None` if it can.
    pub cannot_win: Option<String>,
    /// How far it came; `None` if it did not take effect.
    pub fate: Option<Fate>,
    /// Rounds it was measured in.
    pub rounds: usize,
    /// Median of the deciding test's rate.
    pub median: Option<f64>,
    /// Medians of its other metrics in the race, by name.
    pub medians: BTreeMap<String, f64>,
    /// Whether the median is within 10 % of the peer's ceiling, or above it; `None` if one of them is unknown.
    pub peer_bound: Option<bool>,
    /// Against the reference in the same rounds; the interval is this arm's alone, without regard to the others.
    pub to_default: Option<RatioEstimate>,
    /// Against bare metal in the same rounds, likewise; `None` for bare metal itself, and where it was not measured.
    #[serde(default)]
    pub to_bare: Option<RatioEstimate>,
}

/// The winner, libvirt's default and bare metal in fresh rounds, each guest with one card, booted for each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetConfirmation {
    /// Runs; each has the metrics of all tests, and the arm's number in [`NetMatrixResults::arms`].
    pub turns: Vec<Turn>,
    /// What may be said of each metric.
    pub figures: Vec<NetFigure>,
}

/// One metric of the fresh rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetFigure {
    /// `tcp-rr.rate`, `tcp-rr.p99`, `tcp-stream.cpu`, ….
    pub metric: String,
    /// Its unit.
    pub unit: Unit,
    /// Medians by arm number, in the order winner, reference, bare; an arm that was not measured is missing.
    pub medians: Vec<(usize, f64)>,
    /// Winner over the reference; `None` where that won, or rounds are missing.
    pub to_default: Option<RatioEstimate>,
    /// Winner over bare metal.
    pub to_bare: Option<RatioEstimate>,
    /// Reference over bare metal.
    pub default_to_bare: Option<RatioEstimate>,
    /// Whether the winner's rate is within 10 % of the peer's ceiling; `None` for other metrics.
    pub peer_bound: Option<bool>,
}

impl NetConfirmation {
    /// Works out the ratios of fresh runs.
    pub fn of(
        turns: Vec<Turn>,
        (winner, default): (usize, usize),
        bare: Option<usize>,
        ceiling: &[Ceiling],
        seed: u64,
    ) -> Self {
        let mut names: Vec<(String, Unit)> = Vec::new();
        for metric in turns.iter().flat_map(Turn::metrics).filter(|metric| !is_cost(&metric.name)) {
            if !names.iter().any(|(name, _)| *name == metric.name) {
                names.push((metric.name.clone(), metric.unit));
            }
        }
        let figure = |(metric, unit): (String, Unit)| {
            let against = |subject: usize, reference: Option<usize>| {
                let reference = reference.filter(|reference| *reference != subject)?;
                ratio(&Turn::pairs(&turns, &metric, subject, reference), CONFIDENCE, seed).ok()
            };
            let mut arms = vec![winner];
            arms.extend([Some(default), bare].into_iter().flatten().filter(|arm| *arm != winner));
            let medians: Vec<(usize, f64)> =
                arms.into_iter().filter_map(|arm| Some((arm, Turn::median(&turns, &metric, arm)?))).collect();
            let own = medians.iter().find(|(arm, _)| *arm == winner).map(|(_, value)| *value);
            NetFigure {
                unit,
                to_default: against(winner, Some(default)),
                to_bare: against(winner, bare),
                default_to_bare: against(default, bare),
                peer_bound: is_peer_bound(ceiling, &metric, own),
                medians,
                metric,
            }
        };
        let figures = names.into_iter().map(figure).collect();
        Self { turns, figures }
    }

    /// What may be said of the rate of one test.
    pub fn of_test(&self, test: NetTest) -> Option<&NetFigure> {
        self.figures.iter().find(|figure| figure.metric == test.rate())
    }
}

impl NetMatrixResults {
    /// Reads a document.
    ///
    /// # Errors
    /// Another schema, or not of its form.
    pub fn parse(text: &str) -> Result<Self, ResultsError> {
        const WHAT: &str = "the results of a network matrix";
        let results: Self = document::parse(text, WHAT, NET_MATRIX_SCHEMA, |results: &Self| &results.schema)?;
        if results.winner.is_some_and(|winner| results.arms.get(winner).is_none_or(|arm| arm.path.link == Link::Bare)) {
            return Err(document::unreadable(WHAT, "a guest cannot use its winner".to_owned(), text));
        }
        Ok(results)
    }

    /// The test that decided.
    pub fn decided_by(&self) -> NetTest {
        self.tests.first().copied().unwrap_or(NetTest::TcpRr)
    }

    /// What to use.
    pub fn advice(&self) -> Advice<'_, NetArmResult> {
        let figure = self.confirmation.as_ref().and_then(|confirmation| confirmation.of_test(self.decided_by()));
        let to_default = figure.and_then(|figure| figure.to_default.as_ref());
        Advice::of(&self.arms, self.winner, self.reference, |arm| arm.cannot_win.is_none(), to_default)
    }
}

/// Medians of all metrics of an arm but its costs.
pub fn net_medians(turns: &[Turn], arm: usize) -> BTreeMap<String, f64> {
    Turn::medians(turns, arm, |name| !is_cost(name))
}

/// Whether a rate is within 10 % of the peer's ceiling in its test.
pub fn is_peer_bound(ceiling: &[Ceiling], metric: &str, rate: Option<f64>) -> Option<bool> {
    let ceiling = ceiling.iter().find(|ceiling| ceiling.test.rate() == metric)?;
    Some(rate? >= PEER_BOUND * ceiling.rate()?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::Outcome;
    use nearmetal_load::Metric;
    use nearmetal_units::{Bytes, CpuSet, NodeSet};

    /// Libvirt's default, a function that is twice as fast, and bare metal; invented values for tests.
    pub(crate) fn sample_net_matrix() -> NetMatrixResults {
        let turn = |round: u32, arm: usize, value: f64| Turn {
            round,
            position: arm as u32,
            arm,
            seed: 1,
            started: "2026-01-01T00:00:00Z".to_owned(),
            seconds: 4.0,
            outcome: Outcome::Measured {
                metrics: Metric::new("tcp-rr.rate", Unit::TransactionsPerSecond, value).into_iter().collect(),
                notes: vec![],
            },
        };
        let values = [(0, 1000.0, 2000.0, 2100.0), (1, 1100.0, 2300.0, 2350.0), (2, 900.0, 1850.0, 2000.0)];
        let turns: Vec<Turn> = values
            .iter()
            .flat_map(|(round, default, function, bare)| {
                [turn(*round, 0, *default), turn(*round, 1, *function), turn(*round, 2, *bare)]
            })
            .collect();
        let ceiling = vec![Ceiling {
            test: NetTest::TcpRr,
            unit: Unit::TransactionsPerSecond,
            unconfined: vec![2100.0, 2200.0, 2150.0],
            confined: vec![2000.0, 2050.0, 2100.0],
        }];
        let arm = |number: usize, path: NetPath, fate| NetArmResult {
            path,
            id: path.id(),
            source: "enp57s0".into(),
            effect: Effect::Shown { evidence: vec!["test".into()] },
            cannot_win: (path.link == Link::Bare).then(|| "no guest".to_owned()),
            fate: Some(fate),
            rounds: 3,
            median: Turn::median(&turns, "tcp-rr.rate", number),
            medians: net_medians(&turns, number),
            peer_bound: is_peer_bound(&ceiling, "tcp-rr.rate", Turn::median(&turns, "tcp-rr.rate", number)),
            to_default: ratio(&Turn::pairs(&turns, "tcp-rr.rate", number, 0), CONFIDENCE, 1)
                .ok()
                .filter(|_| number != 0),
            to_bare: ratio(&Turn::pairs(&turns, "tcp-rr.rate", number, 2), CONFIDENCE, 1).ok().filter(|_| number != 2),
        };
        NetMatrixResults {
            schema: NET_MATRIX_SCHEMA.into(),
            created: "2026-01-01T00:00:00Z".into(),
            version: "0".into(),
            environment: Environment::Lab { machine: "quad".into() },
            ground: GroundKey { device: "igb 8086:10c9".into(), kernel: "6.12.41".into(), qemu: "10.0.8".into() },
            guest: "web1".into(),
            slice: Slice {
                cpus: CpuSet::one(3),
                nodes: NodeSet::one(1),
                page_size: None,
                device: "enp57s0".into(),
                region: Bytes::new(0),
                cpus_on_top: CpuSet::one(5),
            },
            port: "enp57s0".into(),
            port_node: Some(1),
            peer: "192.0.2.1".parse().unwrap(),
            tests: vec![NetTest::TcpRr],
            seconds: 3,
            seed: 1,
            budget: 600,
            took: 100.0,
            error: 0.05,
            looks: vec![3],
            arms: vec![
                arm(0, NetPath::libvirt_default(), Fate::ShownWorse { look: 0, than: 1 }),
                arm(1, NetPath::hardware(Link::VfHostdev), Fate::Racing),
                arm(2, NetPath::hardware(Link::Bare), Fate::Racing),
            ],
            reference: 0,
            left_out: vec![],
            confirmation: Some(NetConfirmation::of(turns.clone(), (1, 0), Some(2), &ceiling, 1)),
            turns,
            winner: Some(1),
            slack: Some(1.0),
            ceiling,
            caveats: vec![],
            provenance: BTreeMap::new(),
        }
    }

    #[test]
    fn a_matrix_survives_json_and_advises_what_was_shown() {
        let results = sample_net_matrix();
        let back = NetMatrixResults::parse(&serde_json::to_string(&results).unwrap()).unwrap();
        assert_eq!(back.turns, results.turns);
        let Advice::Use(arm, estimate) = back.advice() else { panic!("{:?}", back.advice()) };
        assert!(arm.path.link == Link::VfHostdev && estimate.ratio > 1.9);
        let figure = back.confirmation.as_ref().unwrap().of_test(NetTest::TcpRr).unwrap();
        assert!(figure.to_bare.as_ref().unwrap().ratio < 1.0 && figure.default_to_bare.as_ref().unwrap().ratio < 0.6);
        assert_eq!(figure.medians.iter().map(|(arm, _)| *arm).collect::<Vec<_>>(), [1, 0, 2]);
    }

    #[test]
    fn what_is_near_the_ceiling_is_called_the_peers() {
        let results = sample_net_matrix();
        // The ceiling is 2150, the larger of both medians: 2000 is within 10 %, 1000 is not.
        assert_eq!(results.ceiling[0].rate(), Some(2150.0));
        assert_eq!(
            results.arms.iter().map(|arm| arm.peer_bound).collect::<Vec<_>>(),
            [Some(false), Some(true), Some(true)]
        );
        assert_eq!(is_peer_bound(&results.ceiling, "udp-rr.rate", Some(1.0)), None, "nobody measured it");
    }

    #[test]
    fn nothing_is_advised_that_was_not_shown_and_bare_metal_never() {
        let results = sample_net_matrix();
        assert_eq!(NetMatrixResults { confirmation: None, ..results.clone() }.advice(), Advice::Unknown);
        assert_eq!(NetMatrixResults { winner: Some(0), ..results.clone() }.advice(), Advice::Default);
        let good = serde_json::to_string(&results).unwrap();
        for junk in [
            String::new(),
            "{}".to_owned(),
            good.replace(NET_MATRIX_SCHEMA, "nearmetal.net-matrix/2"),
            good.replace("\"winner\":1", "\"winner\":7"),
            good.replace("\"winner\":1", "\"winner\":2"),
            good.replace("vf-hostdev", "magic"),
        ] {
            assert!(NetMatrixResults::parse(&junk).is_err(), "{}", junk.chars().take(60).collect::<String>());
        }
    }
}
