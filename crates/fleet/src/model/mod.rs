//! What the fleet planner is asked, what it plans on, and what it answers: plain data.

mod host;
mod objective;
mod plan;
mod vm;

pub use host::{CoreSupply, DeviceKind, DeviceSupply, FleetHost, NodeSupply, PoolSupply};
pub use objective::{LevelId, LevelValue, Objective, SpreadHosts};
pub use plan::{
    CellPlacement, DeviceGrant, FleetPlan, Floating, Fragmentation, HostChange, Refusal, Remedy, RunnerUp,
    SearchRecord, VmPlacement,
};
pub use vm::{
    CpuSharing, DeviceDemand, DeviceSelector, GroupRule, GuestNuma, HostSelector, Locality, Scope, SmtPolicy, Together,
    Vm,
};

use serde::{Deserialize, Serialize};

/// VMs to place and the hosts to place them on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Fleet {
    /// VMs in the order asked. Names are unique.
    pub vms: Vec<Vm>,
    /// Hosts. Names are unique.
    pub hosts: Vec<FleetHost>,
    /// Whether VMs are gathered on few hosts or spread over many.
    #[serde(default)]
    pub spread: SpreadHosts,
}
