//! One guest spread over more and more NUMA nodes, in several modes: what each mode did at each number of nodes.

use serde::{Deserialize, Serialize};

use super::{ArmRole, ArmView, RatioView};

/// One guest over 1, 2, 4 … nodes, mode by mode. A mode is an arm of the report: [`ArmRole::Bare`] is native, one process on
/// each node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByNodesView {
    /// What every mode ran.
    pub load: String,
    /// Numbers of nodes that were measured, the fewest first.
    pub nodes: Vec<u32>,
    /// What was measured, in any order; renderers show what was counted before emulated time.
    pub quantities: Vec<NodesQuantity>,
    /// What papers say of the order of the modes, and what was found here: [`crate::papers::order_said`]; empty without
    /// figures.
    pub papers: Vec<OrderSaid>,
}

/// The unit of what a model gives: no clock measured it, and nothing counted it.
pub const MODELLED: &str = "modelled ns";

/// One quantity, by mode and number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodesQuantity {
    /// For people: "accesses that stay on their node".
    pub label: String,
    /// Unit of every value: `loads/s`, `%` of accesses, `distance` (mean of an access; a node's own is 10), `instructions` for
    /// each load, [`MODELLED`]. A unit that ends in `/s` is a rate.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// Whether it rests on the lab's emulated clock: then it is shown last and in grey, and says nothing of silicon.
    pub emulated: bool,
    /// One for each mode, in the order of the report's arms; a mode without a value is missing.
    pub series: Vec<ModeSeries>,
}

/// One mode's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModeSeries {
    /// Arm id.
    pub arm: String,
    /// One for each number of nodes at which it has a sample, the fewest first.
    pub points: Vec<ModePoint>,
}

/// One mode over so many nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModePoint {
    /// How many nodes the guest, or all guests together, were spread over.
    pub nodes: u32,
    /// Mean of the samples, in the quantity's unit.
    pub mean: f64,
    /// The smallest sample, in the quantity's unit.
    pub low: f64,
    /// The largest sample, in the quantity's unit.
    pub high: f64,
    /// How many samples.
    pub samples: u32,
    /// Over native in the same rounds; `None` with fewer than two pairs, and for native itself.
    pub to_bare: Option<RatioView>,
    /// Whether that difference may be claimed: its interval leaves 1 out and lies beyond the noise floor, where one was measured.
    #[serde(default)]
    pub beyond_noise: bool,
}

/// What a paper says of the order of the modes, and what this measurement shows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSaid {
    /// Section and figures of the paper.
    pub section: String,
    /// What it says.
    pub said: String,
    /// What was found here, and what may be concluded from it.
    pub here: String,
}

impl ByNodesView {
    /// The largest number of nodes that was measured.
    pub(crate) fn most_nodes(&self) -> Option<u32> {
        self.nodes.last().copied()
    }

    /// The quantities in the order to show them: counted before emulated time.
    pub(crate) fn shown(&self) -> Vec<&NodesQuantity> {
        let mut shown: Vec<&NodesQuantity> = self.quantities.iter().collect();
        shown.sort_by_key(|quantity| quantity.emulated);
        shown
    }

    /// The rate: loads per second.
    pub(crate) fn rate(&self) -> Option<&NodesQuantity> {
        self.quantities.iter().find(|quantity| quantity.unit.ends_with("/s"))
    }

    /// The share of accesses that stay on their node.
    pub(crate) fn share(&self) -> Option<&NodesQuantity> {
        self.quantities.iter().find(|quantity| quantity.unit == "%")
    }
}

impl NodesQuantity {
    /// The unit where the label does not say it already, as "mean distance of an access" does.
    pub(crate) fn unit_beside(&self) -> Option<&str> {
        (!self.label.to_lowercase().contains(&self.unit)).then_some(&self.unit)
    }

    /// Whether any mode has a ratio to native.
    pub(crate) fn is_paired(&self) -> bool {
        self.series.iter().flat_map(|series| &series.points).any(|point| point.to_bare.is_some())
    }

    /// One mode's point at one number of nodes.
    pub(crate) fn point(&self, arm: &str, nodes: u32) -> Option<&ModePoint> {
        let series = self.series.iter().find(|series| series.arm == arm)?;
        series.points.iter().find(|point| point.nodes == nodes && point.mean.is_finite())
    }

    /// The modes with a figure at one number of nodes, the best first.
    pub(crate) fn best_first<'a>(&self, arms: &'a [ArmView], nodes: u32) -> Vec<(&'a ArmView, &ModePoint)> {
        let mut modes: Vec<_> = arms.iter().filter_map(|arm| Some((arm, self.point(&arm.id, nodes)?))).collect();
        modes.sort_by(|(_, one), (_, other)| match self.higher_is_better {
            true => other.mean.total_cmp(&one.mean),
            false => one.mean.total_cmp(&other.mean),
        });
        modes
    }
}

/// The arm of a mode: by role where only one has it, else by the id that `bench modes` gives it.
pub(crate) fn mode<'a>(arms: &'a [ArmView], role: ArmRole, id: &str) -> Option<&'a ArmView> {
    let of_role = || arms.iter().filter(|arm| arm.role == role);
    match role {
        ArmRole::Other => of_role().find(|arm| arm.id == id),
        _ => of_role().next(),
    }
}
