//! What the planner saw and assumed, beside the plan.

use nearmetal_units::{Bytes, CpuSet};
use serde::{Deserialize, Serialize};

use crate::memory::Memory;
use crate::plan::Plan;
use crate::processors::{Level, Processors};

/// A plan, and what is worth knowing about it.
#[must_use = "a plan may have blocked guests"]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Where everything goes.
    pub plan: Plan,
    /// What was seen and assumed.
    pub report: PlanReport,
}

/// What was seen and assumed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanReport {
    /// Every node, before and after.
    pub nodes: Vec<NodeReport>,
    /// PUs kept for the host where possible.
    pub housekeeping: CpuSet,
    /// Running guests that own no PU and may run on any, those of the plan included.
    pub neighbours: Vec<String>,
    /// Facts that were missing, and what was taken instead.
    pub assumptions: Vec<String>,
}

/// A node before and after the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Node.
    pub node: u32,
    /// PUs without an owner before.
    pub free_before: CpuSet,
    /// PUs without an owner after.
    pub free_after: CpuSet,
    /// Memory that could become guest memory before; `None` if unknown.
    pub memory_before: Option<Bytes>,
    /// The same after.
    pub memory_after: Option<Bytes>,
}

impl NodeReport {
    /// One for each node.
    pub(crate) fn of(before: (&Processors, &Memory), after: (&Processors, &Memory)) -> Vec<Self> {
        // Helper threads hold PUs too: `Helpers` is the level that would take those away from them.
        let free =
            |processors: &Processors, node| processors.free(node, Level::Helpers).difference(&processors.helpers);
        let of_node = |node| Self {
            node,
            free_before: free(before.0, node),
            free_after: free(after.0, node),
            memory_before: before.1.room(node),
            memory_after: after.1.room(node),
        };
        before.0.nodes().map(of_node).collect()
    }
}
