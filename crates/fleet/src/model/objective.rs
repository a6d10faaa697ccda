//! What a plan is judged by: named levels, compared one after the other.

use serde::{Deserialize, Serialize};

/// Whether VMs are gathered on few hosts or spread over many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadHosts {
    /// As few hosts as possible.
    #[default]
    Fewest,
    /// As many as possible.
    Most,
}

/// A level of the objective. Every value is a whole number, and smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelId {
    /// vCPUs of VMs of one priority that are not placed.
    Unplaced {
        /// The priority.
        priority: i32,
    },
    /// Nodes VMs are on beyond the one each, or beyond the cells its owner asked for.
    ExtraNodes,
    /// Guest memory away from the node with most of the VM's vCPUs: MiB times (distance - 10).
    RemoteMemory,
    /// Devices away from their VM's nodes: 1 in the same package, 2 beyond, or where the node is unknown.
    RemoteDevices,
    /// Hosts with a VM, or hosts without one where VMs are to be spread.
    Hosts,
    /// VMs of class throughput or latency beyond one on a node, as far as other nodes of their host with PUs have none:
    /// each such node could relieve one. Below the hosts, since no bandwidth is worth another host to whoever wants few;
    /// above the nodes in use, since the fewest nodes are always shared ones, and it would never decide.
    SharedBandwidth,
    /// Nodes with a VM: the fewer, the more are left whole for large VMs.
    BrokenNodes,
    /// Free functions and free pages of 1 GiB, each counted as one, on nodes with no PU left, and free functions on nodes
    /// with no memory left. Below the nodes in use: a node opened to keep one PU beside a page would leave more of both
    /// broken. Nodes that have no PUs at the start do not count.
    Stranded,
    /// Cores two or more VMs share.
    SharedCores,
    /// L3 domains VMs are on beyond the fewest their size allows on that node.
    ExtraL3,
}

/// A level, what the plan reached, and what no plan can beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelValue {
    /// The level.
    pub level: LevelId,
    /// What the plan reached.
    pub value: u64,
    /// No plan that reaches the same at the levels before has less than this.
    pub bound: u64,
    /// All there is at this level, where that is meaningful: vCPUs asked for. The gap is shown against it.
    pub of: Option<u64>,
}

/// All levels, the most important first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Objective {
    /// The levels.
    pub levels: Vec<LevelValue>,
}

impl LevelValue {
    /// Whether the plan is proven to be best here.
    pub fn is_proven(&self) -> bool {
        self.value <= self.bound
    }

    /// How far the plan can be from the best, in percent of what the level is counted in. `None` where it is proven.
    pub fn gap_percent(&self) -> Option<f64> {
        if self.is_proven() {
            return None;
        }
        let excess = (self.value - self.bound) as f64;
        let base = match self.of {
            // Placed at least, against placed at most.
            Some(all) => (all.saturating_sub(self.bound)) as f64,
            None => self.bound as f64,
        };
        Some(if base > 0.0 { excess / base * 100.0 } else { f64::INFINITY })
    }
}

impl LevelId {
    /// What is counted, in words.
    pub fn words(&self) -> String {
        match self {
            Self::Unplaced { priority } => format!("vCPUs not placed (priority {priority})"),
            Self::ExtraNodes => "extra nodes".to_owned(),
            Self::RemoteMemory => "remote memory".to_owned(),
            Self::RemoteDevices => "remote devices".to_owned(),
            Self::Hosts => "hosts".to_owned(),
            Self::SharedBandwidth => "VMs sharing bandwidth".to_owned(),
            Self::BrokenNodes => "nodes in use".to_owned(),
            Self::Stranded => "stranded functions and 1 GiB pages".to_owned(),
            Self::SharedCores => "shared cores".to_owned(),
            Self::ExtraL3 => "extra L3 domains".to_owned(),
        }
    }
}

impl Objective {
    /// The value of a level.
    pub fn value(&self, level: LevelId) -> Option<u64> {
        self.levels.iter().find(|entry| entry.level == level).map(|entry| entry.value)
    }

    /// How good the plan is, in a line: "optimal", or what is proven and the first level that is not.
    pub fn headline(&self) -> String {
        let placed = self.levels.iter().take_while(|entry| matches!(entry.level, LevelId::Unplaced { .. }));
        let all_placed = placed.clone().all(|entry| entry.value == 0);
        let most_placed = placed.clone().all(LevelValue::is_proven);
        let Some(open) = self.levels.iter().find(|entry| !entry.is_proven()) else {
            return if all_placed {
                "optimal".to_owned()
            } else {
                "optimal; not all VMs can be placed (proven)".to_owned()
            };
        };
        let start = match (all_placed, most_placed) {
            (true, _) => "all VMs placed (proven); ",
            (false, true) => "no plan places more (proven); ",
            (false, false) => "",
        };
        if let LevelId::Unplaced { priority } = open.level {
            let (value, best) = (open.value, open.bound);
            let of = open.of.unwrap_or(0);
            let at_most = open.gap_percent().unwrap_or(0.0);
            return format!(
                "{} of {of} vCPUs of priority {priority} placed; no plan places more than {} ({at_most:.1} % above)",
                of.saturating_sub(value),
                of.saturating_sub(best)
            );
        }
        let words = open.level.words();
        match open.gap_percent() {
            Some(gap) if gap.is_finite() => format!("{start}{words} at most {gap:.1} % above the bound"),
            _ => format!("{start}{words}: {}, bound {}", open.value, open.bound),
        }
    }
}
