//! What an experiment leaves: every run with its raw values, and enough to judge them later. Schema `nearmetal.results/1`.

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};
use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::workload::Workload;

/// Value of [`Results::schema`].
pub const SCHEMA: &str = "nearmetal.results/1";

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`SCHEMA`] for this version.
    pub schema: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// nearmetal's version.
    pub version: String,
    /// On what the figures were taken.
    pub environment: Environment,
    /// Quick mode: guests stay up between samples, and only one block size is paired.
    pub quick: bool,
    /// Seed of order and bootstrap.
    pub seed: u64,
    /// Domain measured.
    pub guest: String,
    /// What the guest owns, and bare metal is confined to.
    pub slice: Slice,
    /// Arms, bare metal first.
    pub arms: Vec<Arm>,
    /// Runs in the order they ran.
    pub runs: Vec<Run>,
    /// What a reader must know to judge the figures.
    pub caveats: Vec<String>,
    /// Versions, kernel, command lines: name to value.
    pub provenance: BTreeMap<String, String>,
}

/// Silicon, or a lab whose clock is emulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Environment {
    /// A machine of silicon.
    Silicon,
    /// A lab: emulated time, never to be mixed with silicon's figures.
    Lab {
        /// Machine definition.
        machine: String,
    },
}

/// What a lab's firmware tables give as its vendor; the product name is then the machine definition's.
const LAB_VENDOR: &str = "nearmetal lab";

impl Environment {
    /// Lab or silicon, by the vendor in the firmware's tables (DMI), which guests of any kind cannot mistake.
    pub fn detect(fs: &nearmetal_host::HostFs) -> Self {
        let field = |name: &str| fs.read(&format!("/sys/class/dmi/id/{name}")).map(|text| text.trim().to_owned());
        match (field("sys_vendor"), field("product_name")) {
            (Ok(vendor), Ok(machine)) if vendor == LAB_VENDOR => Self::Lab { machine },
            _ => Self::Silicon,
        }
    }
}

/// The PUs, nodes, page size and device both sides are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The vCPUs' PUs: what bare metal is confined to.
    pub cpus: CpuSet,
    /// Nodes.
    pub nodes: NodeSet,
    /// Page size behind the guest's memory.
    pub page_size: Option<PageSize>,
    /// Scratch device.
    pub device: String,
    /// Size of each arm's region of it.
    pub region: Bytes,
    /// PUs the emulator thread and iothreads use beside the slice: what virtualization costs on top.
    pub cpus_on_top: CpuSet,
}

/// What an arm is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmKind {
    /// The workload on the host, confined to the slice.
    BareSlice,
    /// The domain as it was found.
    AsFound,
    /// The domain as planned.
    Planned,
    /// As found, with the driver options virt-install writes: cache=none, io=native.
    VirtInstall,
}

impl ArmKind {
    /// The arm's id in tables and files.
    pub fn id(self) -> &'static str {
        match self {
            Self::BareSlice => "bare-slice",
            Self::AsFound => "as-found",
            Self::Planned => "planned",
            Self::VirtInstall => "virt-install",
        }
    }

    /// What a person calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::BareSlice => "bare slice",
            Self::AsFound => "as found",
            Self::Planned => "planned",
            Self::VirtInstall => "virt-install",
        }
    }
}

/// One arm as it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Kind; its id names the arm in runs.
    pub kind: ArmKind,
    /// One sentence.
    pub description: String,
    /// Region of the scratch device it works on.
    pub region: String,
    /// Domain XML as libvirt ran it; `None` for bare metal.
    pub xml: Option<String>,
    /// QEMU's command line from /proc; `None` for bare metal.
    pub command_line: Option<String>,
    /// Affinity of its threads as read from /proc, one line per thread; for bare metal the binding the probe verified.
    pub placement: Vec<String>,
}

/// Why a run was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// One side of a pair: all arms of a round are paired with each other.
    Pair,
    /// One half of an A/A pair: the same arm twice, for the noise floor.
    SameArm,
    /// Once, without a pair: shown, never claimed.
    SingleShot,
}

/// One run of one workload in one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round: runs of one round belong together.
    pub round: u32,
    /// Position inside the round.
    pub position: u32,
    /// Why.
    pub purpose: Purpose,
    /// Arm.
    pub arm: ArmKind,
    /// Workload.
    pub workload: Workload,
    /// Seed of the workload: one per round, the same for all its arms.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// Wall seconds of the whole run, resume and flush included.
    pub seconds: f64,
    /// What came of it.
    pub outcome: Outcome,
}

/// A run has values or a reason, never a zero that stands for a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran.
    Measured {
        /// Values.
        metrics: Vec<Metric>,
        /// What the workload said of itself (page size that backed it, …).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// It did not.
    Failed {
        /// Why.
        why: String,
    },
}

impl Run {
    /// The value of a metric, if this run has it.
    pub fn value(&self, metric: &str) -> Option<&Metric> {
        match &self.outcome {
            Outcome::Measured { metrics, .. } => metrics.iter().find(|candidate| candidate.name == metric),
            Outcome::Failed { .. } => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::metric::Unit;
    use crate::workload::FioJob;

    /// Three rounds of two arms, A/A pairs, a single shot and a failure: invented values for tests.
    pub(crate) fn sample_results() -> Results {
        let job = |size| Workload::Fio(FioJob::first_seed(Bytes::new(size), 5, 1));
        let run = |round, position, purpose, arm, workload, value: Option<f64>| Run {
            round,
            position,
            purpose,
            arm,
            workload,
            seed: 1,
            started: "2026-01-01T00:00:00Z".into(),
            seconds: 6.0,
            outcome: match value.and_then(|value| Metric::new("iops", Unit::Iops, value)) {
                Some(metric) => Outcome::Measured { metrics: vec![metric], notes: vec![] },
                None => Outcome::Failed { why: "agent timed out".into() },
            },
        };
        let (bare, planned) = (ArmKind::BareSlice, ArmKind::Planned);
        let mut runs = Vec::new();
        for (round, (left, right)) in [(1000.0, 500.0), (1100.0, 540.0), (900.0, 460.0)].into_iter().enumerate() {
            runs.push(run(round as u32, 0, Purpose::Pair, bare, job(4096), Some(left)));
            runs.push(run(round as u32, 1, Purpose::Pair, planned, job(4096), Some(right)));
        }
        for (round, values) in [(3, [1000.0, 1010.0]), (4, [1000.0, 985.0])] {
            for (position, value) in values.into_iter().enumerate() {
                runs.push(run(round, position as u32, Purpose::SameArm, bare, job(4096), Some(value)));
            }
        }
        runs.push(run(5, 0, Purpose::SingleShot, bare, job(512), Some(2000.0)));
        runs.push(run(5, 1, Purpose::SingleShot, planned, job(512), Some(800.0)));
        runs.push(run(6, 0, Purpose::SingleShot, bare, job(8192), Some(700.0)));
        runs.push(run(6, 1, Purpose::SingleShot, planned, job(8192), None));
        let arm = |kind| Arm {
            kind,
            description: "test".into(),
            region: "/dev/x1".into(),
            xml: None,
            command_line: None,
            placement: vec![],
        };
        Results {
            schema: SCHEMA.into(),
            created: "2026-01-01T00:00:00Z".into(),
            version: "0".into(),
            environment: Environment::Lab { machine: "quad".into() },
            quick: true,
            seed: 1,
            guest: "web1".into(),
            slice: Slice {
                cpus: CpuSet::one(2),
                nodes: NodeSet::one(1),
                page_size: Some(PageSize::HUGE_2M),
                device: "/dev/nvme0n2".into(),
                region: Bytes::from_mib(512),
                cpus_on_top: CpuSet::one(3),
            },
            arms: vec![arm(bare), arm(planned)],
            runs,
            caveats: vec![],
            provenance: BTreeMap::new(),
        }
    }

    #[test]
    fn results_survive_json() {
        let results = sample_results();
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
    }
}
