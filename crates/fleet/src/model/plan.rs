//! What the planner answers.

use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

use super::objective::Objective;
use super::vm::DeviceSelector;

/// A whole plan: complete, immutable data. Applying it makes no choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetPlan {
    /// Placed VMs, in the order asked.
    pub placements: Vec<VmPlacement>,
    /// VMs without a place, in the order asked.
    pub refusals: Vec<Refusal>,
    /// Pages that must be added to pools first.
    pub pools: Vec<HostChange>,
    /// How good the plan is, level by level.
    pub objective: Objective,
    /// The objective in a line.
    pub headline: String,
    /// How free memory and PUs lie after the plan, by host and node.
    pub fragmentation: Vec<Fragmentation>,
    /// How it was searched: what it takes to get the same plan again.
    pub search: SearchRecord,
    /// What was not known and taken as said here.
    pub assumptions: Vec<String>,
}

/// How a plan was searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// Seed of the improvement.
    pub seed: u64,
    /// Steps allowed.
    pub steps: u64,
    /// Steps done. The same seed and this many steps give the same plan, bit for bit.
    pub done: u64,
    /// Whether the time budget ended the search before its steps did.
    pub stopped_early: bool,
}

/// Where a VM goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPlacement {
    /// Name of the VM.
    pub vm: String,
    /// Name of the host.
    pub host: String,
    /// One entry for each node it is on; guest cells, where the guest sees any, in this order.
    pub cells: Vec<CellPlacement>,
    /// Where its emulator, iothread and vhost threads run; empty: with the vCPUs, for want of other PUs.
    pub helpers: CpuSet,
    /// Page size of its memory; `None` for the kernel's own pages.
    pub page_size: Option<PageSize>,
    /// Devices it is given.
    pub devices: Vec<DeviceGrant>,
    /// Set where floating vCPUs are better than pinned ones.
    pub floating: Option<Floating>,
    /// Why here.
    pub reasons: Vec<String>,
    /// The next best place and what it would have cost; `None` if there was no other.
    pub second_best: Option<RunnerUp>,
}

/// vCPUs and memory on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellPlacement {
    /// Operating-system index of the node.
    pub node: u32,
    /// vCPUs there.
    pub vcpus: u32,
    /// One PU for each vCPU, siblings next to each other; empty where they float over the node.
    pub pus: Vec<u32>,
    /// PUs taken besides and left idle: siblings of isolated vCPUs.
    pub idle: Vec<u32>,
    /// Memory there.
    pub memory: Bytes,
}

/// Devices given to a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGrant {
    /// Which demand of the VM it answers, by position.
    pub demand: u32,
    /// What was asked for.
    pub selector: DeviceSelector,
    /// Position of the supply in the host's `devices`.
    pub supply: u32,
    /// How many of it.
    pub count: u32,
    /// The functions, where they are known.
    pub functions: Vec<PciAddress>,
    /// Its node, by operating-system index; `None` where unknown.
    pub node: Option<u32>,
}

/// Why a VM's vCPUs are better left floating. Unpinned stays a candidate for measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Floating {
    /// Its class is density: many guests on few PUs.
    Density,
    /// It shares PUs with others.
    Overcommitted,
    /// It is alone on its host and far smaller than a node.
    AloneAndSmall,
}

/// The next best place of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Host.
    pub host: String,
    /// Nodes.
    pub nodes: Vec<u32>,
    /// What it would have cost, in words.
    pub cost: String,
}

/// A VM without a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the VM.
    pub vm: String,
    /// Why, in a sentence.
    pub reason: String,
    /// The one smallest change that would place it beside everything the plan places; `None` if no single change does.
    pub remedy: Option<Remedy>,
}

/// The smallest change that would place a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// Host to change.
    pub host: String,
    /// What is missing there, in words: `two more 1 GiB pages on node 3`.
    pub change: String,
}

/// Pages to add to a pool before the VMs start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostChange {
    /// Host.
    pub host: String,
    /// Operating-system index of the node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// Pages to add.
    pub add: u64,
}

/// What is left of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// Host.
    pub host: String,
    /// Operating-system index of the node.
    pub node: u32,
    /// PUs given to the fleet at the start.
    pub pus: u32,
    /// PUs left.
    pub free_pus: u32,
    /// Whole cores left.
    pub free_cores: u32,
    /// PUs in the L3 domain with most of them left.
    pub largest_l3: u32,
    /// Memory left in the kernel's own pages.
    pub free_memory: Bytes,
    /// Free pages left by page size.
    pub free_pages: Vec<(PageSize, u64)>,
    /// Why some of it can hardly be used: `8 PUs but no memory`; `None` where nothing is stranded.
    pub stranded: Option<String>,
}
