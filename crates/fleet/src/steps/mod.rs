//! From what runs to what is planned, one VM at a time: the order in which VMs move so that each finds its place free.
//!
//! While a VM moves it has both places. To another host it takes all of the new one first: PUs, memory and devices, as
//! QEMU does, which starts there before it stops here. Within its host its vCPUs go to PUs that are free or its own;
//! its memory is moved by migrate_pages(2), page by page, so that the destination must be free before, but what stays on
//! its node is never counted twice; a device it is to have instead of another must be free too. Pools that may grow are
//! given the pages each step needs.

mod both;
mod walk;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::checker::check;
use crate::error::FleetError;
use crate::model::{Fleet, FleetPlan, HostChange, Objective, Refusal, SearchRecord, VmPlacement};

/// The way from what runs to a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Steps {
    /// In this order, each done before the next begins.
    pub steps: Vec<Step>,
    /// VMs that run in the plan too and must be shut down on the way: others wait for their place, they for another's,
    /// and there is no free one to step aside to. In the order they are.
    pub shut_down: Vec<String>,
}

/// One VM that starts, moves or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The VM.
    pub vm: String,
    /// What is done.
    pub action: Action,
    /// Where it is afterwards; `None`: it does not run.
    pub to: Option<VmPlacement>,
    /// Pages pools on the host must have beyond the free ones they have without the fleet's VMs, while this step lasts.
    pub pools: Vec<HostChange>,
    /// Whether it leaves functions behind and gets others: unplugged and plugged within the guest's sight.
    pub swaps_devices: bool,
    /// Why now.
    pub reason: String,
}

/// What is done with a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Moved on its host.
    Move {
        /// The host.
        host: String,
        /// Memory that changes its node.
        memory: Bytes,
    },
    /// Migrated live.
    Migrate {
        /// From this host.
        from: String,
        /// To this one.
        to: String,
    },
    /// Shut down.
    ShutDown {
        /// On this host.
        host: String,
    },
    /// Started.
    Start {
        /// On this host.
        host: String,
    },
}

/// The steps from where the fleet's VMs run (`current`) to where the plan has them. After each of them no rule is
/// broken that was not broken before. A VM the plan refuses is shut down first, one that does not run is started last.
///
/// # Errors
/// [`FleetError::Plan`] if the plan breaks a rule of this fleet.
pub fn steps(fleet: &Fleet, plan: &FleetPlan) -> Result<Steps, FleetError> {
    if let Some(breach) = check(fleet, plan).into_iter().next() {
        return Err(FleetError::Plan { breach: breach.0 });
    }
    Ok(walk::Walk::new(fleet, plan).run())
}

/// What runs at some moment, in the form of a plan that [`check`] can judge: no levels, and the pages that pools must
/// have grown by. VMs of the fleet that are not among `placements` do not run.
pub fn in_force(fleet: &Fleet, placements: &[VmPlacement]) -> FleetPlan {
    let of = |name: &str| placements.iter().find(|placement| placement.vm == name);
    let idle = fleet.vms.iter().filter(|vm| of(&vm.name).is_none());
    let refusal =
        |vm: &crate::model::Vm| Refusal { vm: vm.name.clone(), reason: "it does not run".to_owned(), remedy: None };
    let placements: Vec<VmPlacement> = fleet.vms.iter().filter_map(|vm| of(&vm.name).cloned()).collect();
    let hosts: Vec<&crate::model::FleetHost> = fleet.hosts.iter().collect();
    FleetPlan {
        refusals: idle.map(refusal).collect(),
        pools: both::growth(&hosts, &placements),
        placements,
        objective: Objective::default(),
        headline: String::new(),
        fragmentation: Vec::new(),
        search: SearchRecord { seed: 0, steps: 0, done: 0, stopped_early: false },
        assumptions: Vec::new(),
    }
}

impl Steps {
    /// What runs after the first `count` steps, in the order VMs are asked for.
    pub fn after(&self, fleet: &Fleet, count: usize) -> Vec<VmPlacement> {
        let place = |vm: &crate::model::Vm| {
            let step = self.steps.iter().take(count).rfind(|step| step.vm == vm.name);
            step.map_or_else(|| vm.current.clone(), |step| step.to.clone())
        };
        fleet.vms.iter().filter_map(place).collect()
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let vm = &self.vm;
        match &self.action {
            Action::Move { host, memory } if *memory == Bytes::ZERO => {
                write!(formatter, "move `{vm}` to other PUs of `{host}`")?;
            }
            Action::Move { host, memory } => {
                let cells = self.to.iter().flat_map(|to| &to.cells);
                let nodes: Vec<String> = cells.map(|cell| cell.node.to_string()).collect();
                let word = if nodes.len() == 1 { "node" } else { "nodes" };
                write!(formatter, "move `{vm}` to {word} {} of `{host}`, {memory} with it", nodes.join(", "))?;
            }
            Action::Migrate { from, to } => write!(formatter, "migrate `{vm}` from `{from}` to `{to}`")?,
            Action::ShutDown { host } => write!(formatter, "shut `{vm}` down on `{host}`")?,
            Action::Start { host } => write!(formatter, "start `{vm}` on `{host}`")?,
        }
        if self.swaps_devices {
            formatter.write_str(", with other functions")?;
        }
        write!(formatter, ": {}", self.reason)
    }
}
