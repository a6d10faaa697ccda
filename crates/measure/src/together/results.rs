//! What comes of it: every sample with the rate and the times of each member. Schema `nearmetal.together/3`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nearmetal_stats::{Pair, RatioEstimate, ShownRatio, ratio};
use serde::{Deserialize, Serialize};

use super::window::Window;
use crate::compare::CONFIDENCE;
use crate::cost::{Cost, CostsOf, Each, cost_figures, lift_text};
use crate::error::MeasureError;
use crate::metric::{Metric, Unit};
use crate::net::{NetTest, PEER_BOUND};
use crate::results::{Environment, Slice};
use crate::workload::{FioJob, Workload};

/// Value of [`TogetherResults::schema`].
pub const TOGETHER_SCHEMA: &str = "nearmetal.together/3";

/// One experiment with several guests at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TogetherResults {
    /// Always [`TOGETHER_SCHEMA`] for this version.
    pub schema: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// nearmetal's version.
    pub version: String,
    /// On what the figures were taken.
    pub environment: Environment,
    /// Seed of order, workloads and bootstrap.
    pub seed: u64,
    /// The guests, in the order in which they join: two at once are the first two.
    pub members: Vec<MemberInfo>,
    /// What each of them ran.
    pub load: TogetherLoad,
    /// The most the machine was seen to do with as many processes as there are members on all PUs, in the unit of the load;
    /// `None` where that is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// The least overlap of a sample that counts, from 0 to 1.
    pub least_overlap: f64,
    /// Samples in the order in which they ran, those thrown away too.
    pub samples: Vec<TogetherSample>,
    /// What a reader must know to judge the figures.
    pub caveats: Vec<String>,
    /// Versions, kernel, command lines: name to value.
    pub provenance: BTreeMap<String, String>,
}

/// What the members ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TogetherLoad {
    /// fio, each member on a drive of its own.
    Disk {
        /// The job.
        job: FioJob,
    },
    /// fio, each member on a drive of its own that host and guest take turns on by PCI passthrough.
    Function {
        /// The job.
        job: FioJob,
    },
    /// netperf, all members through one port to one peer.
    Net {
        /// The test.
        test: NetTest,
        /// Id of the way the guests' packets take.
        way: String,
        /// The port.
        port: String,
        /// The peer.
        peer: IpAddr,
        /// Seconds of a sample.
        seconds: u32,
    },
}

impl TogetherLoad {
    /// What a rate counts in.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Disk { .. } | Self::Function { .. } => Unit::Iops,
            Self::Net { test, .. } if test.is_stream() => Unit::BitsPerSecond,
            Self::Net { .. } => Unit::TransactionsPerSecond,
        }
    }

    /// A rate in words.
    fn shown(&self, rate: f64) -> String {
        match self.unit() {
            Unit::BitsPerSecond => format!("{:.1} Mbit/s", rate / 1e6),
            unit => format!("{rate:.0} {}", unit.symbol()),
        }
    }

    /// What costs are given for.
    fn each(&self) -> Each {
        match self {
            Self::Disk { .. } | Self::Function { .. } => Each::Io,
            Self::Net { test, .. } => test.each(),
        }
    }
}

/// One guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Domain.
    pub guest: String,
    /// What it owns, and its bare slice is confined to.
    pub slice: Slice,
    /// Affinity of its clone's threads, as read from /proc.
    pub placement: Vec<String>,
}

/// Which side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The bare slices.
    Bare,
    /// The guests as planned.
    Guests,
}

impl Side {
    /// What a person calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare slices",
            Self::Guests => "guests",
        }
    }
}

/// All members of one side, begun at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TogetherSample {
    /// Round: the two sides of one round are a pair.
    pub round: u32,
    /// How many members ran: the first so many.
    pub count: usize,
    /// Which side.
    pub side: Side,
    /// RFC 3339, UTC.
    pub started: String,
    /// One for each member; empty if it failed.
    pub members: Vec<MemberSample>,
    /// The part of the longest job during which all ran, from 0 to 1.
    pub overlap: f64,
    /// How much the clocks of the members may be apart beyond what was taken into account, ms.
    pub clocks_within: f64,
    /// Why it does not count; `None` if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thrown_away: Option<String>,
    /// What all of it cost for each I/O, transaction or gigabit, in the middle of the sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<Metric>,
    /// What could not be counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One member of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberSample {
    /// Domain.
    pub guest: String,
    /// Its rate, in the unit of the load.
    pub rate: f64,
    /// When it measured, on the host's clock.
    pub window: Window,
}

impl TogetherSample {
    /// The rates of all members added up.
    pub fn aggregate(&self) -> f64 {
        self.members.iter().map(|member| member.rate).sum()
    }
}

/// Guests over bare slices for one number of members.
#[derive(Debug, Clone, PartialEq)]
pub struct TogetherRatio {
    /// Members at once.
    pub count: usize,
    /// Aggregate of the guests over that of the bare slices, with its interval.
    pub ratio: RatioEstimate,
    /// Mean aggregate of the guests, in the unit of the load.
    pub guests: f64,
    /// Mean aggregate of the bare slices, likewise.
    pub bare: f64,
}

impl TogetherResults {
    /// Rounds of which both sides count.
    fn pairs(&self, count: usize) -> Vec<Pair> {
        let good = |round: u32, side: Side| {
            let mut of = self.samples.iter().filter(|sample| sample.round == round && sample.side == side);
            of.find(|sample| sample.count == count && sample.thrown_away.is_none()).map(TogetherSample::aggregate)
        };
        let mut rounds: Vec<u32> =
            self.samples.iter().filter(|sample| sample.count == count).map(|sample| sample.round).collect();
        rounds.dedup();
        rounds
            .into_iter()
            .filter_map(|round| Some(Pair { subject: good(round, Side::Guests)?, reference: good(round, Side::Bare)? }))
            .collect()
    }

    /// The ratio for each number of members of which at least two pairs count, fewest members first.
    ///
    /// # Errors
    /// A rate that is none.
    pub fn ratios(&self) -> Result<Vec<TogetherRatio>, MeasureError> {
        let mut found = Vec::new();
        for count in 1..=self.members.len() {
            let pairs = self.pairs(count);
            if pairs.len() < 2 {
                continue;
            }
            let mean = |value: fn(&Pair) -> f64| pairs.iter().map(value).sum::<f64>() / pairs.len() as f64;
            found.push(TogetherRatio {
                count,
                ratio: ratio(&pairs, CONFIDENCE, self.seed)?,
                guests: mean(|pair| pair.subject),
                bare: mean(|pair| pair.reference),
            });
        }
        Ok(found)
    }

    /// Words for a rate that the peer may have bounded.
    fn peer_bound(&self, rate: f64) -> &'static str {
        match self.ceiling {
            Some(ceiling) if rate >= PEER_BOUND * ceiling => ", peer-bound",
            _ => "",
        }
    }

    /// The means of the costs of one side with so many members, the largest of a group first.
    fn costs(&self, count: usize, side: Side) -> Vec<(Cost, String, f64)> {
        let of = |sample: &&TogetherSample| {
            sample.count == count && sample.side == side && sample.thrown_away.is_none() && !sample.costs.is_empty()
        };
        let samples: Vec<&TogetherSample> = self.samples.iter().filter(of).collect();
        let mut sums: BTreeMap<(Cost, String), f64> = BTreeMap::new();
        for metric in samples.iter().flat_map(|sample| &sample.costs) {
            let Some((cost, name)) = Cost::of(&metric.name) else { continue };
            *sums.entry((cost, name.to_owned())).or_default() += metric.value / samples.len() as f64;
        }
        let mut means: Vec<_> = sums.into_iter().map(|((cost, name), value)| (cost, name, value)).collect();
        means.sort_by(|left, right| left.0.cmp(&right.0).then(right.2.total_cmp(&left.2)));
        means
    }
}

/// The results as text.
///
/// # Errors
/// A rate that is none.
pub fn together_text(results: &TogetherResults) -> Result<String, MeasureError> {
    let mut text = String::new();
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare sides, not machines\n"));
    }
    text.push_str(&match &results.load {
        TogetherLoad::Disk { job } => format!("{}, each on a drive of its own\n", Workload::Fio(job.clone()).label()),
        TogetherLoad::Function { job } => {
            format!("{}, each on a drive of its own by PCI passthrough\n", Workload::Fio(job.clone()).label())
        }
        TogetherLoad::Net { test, way, port, peer, .. } => {
            format!("{}, {way}, all through {port} to {peer}\n", test.label())
        }
    });
    if let Some(ceiling) = results.ceiling {
        text.push_str(&format!(
            "the ceiling: {} with {} at once on all PUs, without a guest\n",
            results.load.shown(ceiling),
            results.members.len()
        ));
    }
    let ratios = results.ratios()?;
    for one in &ratios {
        let (guests, slices) = match one.count {
            1 => ("guest", "bare slice"),
            _ => ("guests at once", "bare slices at once"),
        };
        text.push_str(&format!(
            "{} {guests} / {} {slices}: {}, n = {}; {} / {} together{}\n",
            one.count,
            one.count,
            one.ratio,
            one.ratio.n,
            results.load.shown(one.guests),
            results.load.shown(one.bare),
            results.peer_bound(one.guests)
        ));
    }
    if let (Some(first), true) = (ratios.iter().find(|one| one.count == 1), ratios.len() > 1) {
        for one in ratios.iter().filter(|one| one.count > 1) {
            text.push_str(&format!(
                "{} at once do {} of what one does: guests; {}: bare slices (means, no interval)\n",
                one.count,
                ShownRatio::new(one.guests / first.guests, None),
                ShownRatio::new(one.bare / first.bare, None)
            ));
        }
    }
    if ratios.is_empty() {
        text.push_str("no ratio: fewer than two pairs count\n");
    }
    let counted = results.samples.iter().filter(|sample| sample.thrown_away.is_none());
    let least = counted.clone().map(|sample| sample.overlap).fold(f64::INFINITY, f64::min);
    let clocks = counted.clone().map(|sample| sample.clocks_within).fold(0.0, f64::max);
    if least.is_finite() {
        text.push_str(&format!(
            "overlap: {:.0} % or more of every sample that counts, {:.0} % is the limit; clocks known to {clocks:.1} ms\n",
            least * 100.0,
            results.least_overlap * 100.0
        ));
    }
    let thrown: Vec<&str> = results.samples.iter().filter_map(|sample| sample.thrown_away.as_deref()).collect();
    if !thrown.is_empty() {
        let (all, why) = (results.samples.len(), thrown.join("; "));
        text.push_str(&format!("thrown away: {} of {all} samples: {why}\n", thrown.len()));
    }
    let count = results.members.len();
    for side in [Side::Bare, Side::Guests] {
        let costs = results.costs(count, side);
        for group in [Cost::Cpu, Cost::Exits, Cost::Interrupts, Cost::Switches] {
            let of = costs.iter().filter(|(cost, ..)| *cost == group);
            let of: Vec<(&str, f64)> = of.map(|(_, name, value)| (name.as_str(), *value)).collect();
            if !of.is_empty() {
                text.push_str(&format!(
                    "{} {:12} {:20} {}\n",
                    count,
                    side.title(),
                    format!("{}/{}", group.title(), results.load.each().title()),
                    cost_figures(group, &of)
                ));
            }
        }
    }
    let costs = results.costs(count, Side::Guests);
    let guests = costs.iter().map(|(cost, name, value)| (*cost, name.as_str(), *value)).collect();
    text.push_str(&lift_text(&[CostsOf { who: format!("{count} guests"), costs: guests }]));
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use nearmetal_units::{Bytes, CpuSet, NodeSet};

    use super::*;

    fn sample(round: u32, count: usize, side: Side, each: f64, thrown_away: Option<&str>) -> TogetherSample {
        let member = |number: usize| MemberSample {
            guest: format!("w{number}"),
            rate: each,
            window: Window { began: 0.0, ended: 1000.0 },
        };
        TogetherSample {
            round,
            count,
            side,
            started: String::new(),
            members: (0..count).map(member).collect(),
            overlap: if thrown_away.is_some() { 0.3 } else { 0.9 },
            clocks_within: 2.0,
            thrown_away: thrown_away.map(str::to_owned),
            costs: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn results(samples: Vec<TogetherSample>) -> TogetherResults {
        let slice = Slice {
            cpus: CpuSet::one(1),
            nodes: NodeSet::one(0),
            page_size: None,
            device: "/dev/x".into(),
            region: Bytes::from_mib(64),
            cpus_on_top: CpuSet::new(),
        };
        let member = |guest: &str| MemberInfo { guest: guest.into(), slice: slice.clone(), placement: Vec::new() };
        TogetherResults {
            schema: TOGETHER_SCHEMA.into(),
            created: String::new(),
            version: "0".into(),
            environment: Environment::Lab { machine: "quad-4nvme".into() },
            seed: 1,
            members: vec![member("w0"), member("w1")],
            load: TogetherLoad::Disk { job: FioJob::first_seed(Bytes::from_kib(4), 5, 1) },
            ceiling: None,
            least_overlap: 0.8,
            samples,
            caveats: Vec::new(),
            provenance: BTreeMap::new(),
        }
    }

    #[test]
    fn sides_are_paired_by_round_and_thrown_samples_drop_their_pair() {
        let (bare, guests) = (Side::Bare, Side::Guests);
        let results = results(vec![
            sample(0, 2, bare, 100.0, None),
            sample(0, 2, guests, 50.0, Some("overlap of 30 %")),
            sample(0, 2, guests, 40.0, None),
            sample(1, 2, guests, 40.0, None),
            sample(1, 2, bare, 100.0, None),
            sample(2, 2, bare, 100.0, None),
            sample(2, 2, guests, 90.0, Some("overlap of 10 %")),
            sample(3, 1, bare, 100.0, None),
            sample(3, 1, guests, 50.0, None),
        ]);
        let ratios = results.ratios().unwrap();
        assert_eq!(ratios.len(), 1, "one pair alone gives no interval");
        assert_eq!((ratios[0].count, ratios[0].ratio.n), (2, 2));
        assert!((ratios[0].ratio.ratio - 0.4).abs() < 1e-12 && (ratios[0].bare - 200.0).abs() < 1e-9);
        let text = together_text(&results).unwrap();
        assert!(text.contains("lab: emulated time") && text.contains("thrown away: 2 of 9"), "{text}");
        assert!(text.contains("overlap: 90 %"), "{text}");
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<TogetherResults>(&text).unwrap(), results);
    }
    #[test]
    fn a_network_says_its_unit_its_ceiling_and_what_is_near_it() {
        let (bare, guests) = (Side::Bare, Side::Guests);
        let samples = (0..3).flat_map(|round| {
            [sample(round, 2, bare, 100e6, None), sample(round, 2, guests, 80e6 + f64::from(round), None)]
        });
        let results = TogetherResults {
            load: TogetherLoad::Net {
                test: NetTest::TcpStream,
                way: "bridge.vhost.q1".into(),
                port: "enp57s0".into(),
                peer: "192.0.2.1".parse().unwrap(),
                seconds: 3,
            },
            ceiling: Some(210e6),
            ..results(samples.collect())
        };
        let text = together_text(&results).unwrap();
        for words in
            ["the ceiling: 210.0 Mbit/s with 2", "bridge.vhost.q1, all through enp57s0", "160.0 Mbit/s / 200.0 Mbit/s"]
        {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        assert!(!text.contains("peer-bound"), "{text}");
        let near = TogetherResults { ceiling: Some(170e6), ..results };
        assert!(together_text(&near).unwrap().contains("peer-bound"));
    }
}
