//! A plan as the exports see it: hosts, and on each its guests with placement and definition.

use std::collections::BTreeSet;

use nearmetal_change::{AnyPlan, DomainChange, PlanFile};
use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_fleet::VmPlacement;
use nearmetal_place::{GuestCell, Placement};
use nearmetal_units::{CpuSet, NodeSet};

use crate::InterchangeError;

/// A host of a plan.
pub(crate) struct Host<'a> {
    /// Its name in the fleet; of a plan for one host, its own name.
    pub(crate) name: &'a str,
    /// Its plan.
    pub(crate) plan: &'a PlanFile,
    /// Its guests, in the order of the plan.
    pub(crate) guests: Vec<Guest<'a>>,
}

/// A guest with a place.
pub(crate) struct Guest<'a> {
    pub(crate) name: &'a str,
    pub(crate) host: &'a str,
    pub(crate) placement: &'a Placement,
    pub(crate) change: &'a DomainChange,
    /// Its definition after the plan.
    pub(crate) facts: DomainFacts,
    /// What the fleet's planner says of it; `None` in the plan of one host.
    pub(crate) fleet: Option<&'a VmPlacement>,
}

/// The hosts of a plan.
///
/// # Errors
/// A definition that cannot be read, or that is of another domain than the plan says.
pub(crate) fn hosts(plan: &AnyPlan) -> Result<Vec<Host<'_>>, InterchangeError> {
    match plan {
        AnyPlan::Host(plan) => Ok(vec![host(&plan.host.hostname, plan, &[])?]),
        AnyPlan::Fleet(fleet) => {
            fleet.hosts.iter().map(|part| host(&part.name, &part.plan, &fleet.fleet.placements)).collect()
        }
    }
}

fn host<'a>(name: &'a str, plan: &'a PlanFile, fleet: &'a [VmPlacement]) -> Result<Host<'a>, InterchangeError> {
    let guests = plan.plan.placements.iter().zip(&plan.domains).map(|(placement, change)| {
        let failed = |problem: String| InterchangeError::Definition { vm: change.name.clone(), problem };
        let facts = DomainXml::parse(&change.xml_after).and_then(|xml| xml.facts());
        let facts = facts.map_err(|error| failed(error.to_string()))?;
        // libvirt trims white space around a name, and so does the reader.
        if facts.name != change.name.trim() {
            return Err(failed(format!("it is the definition of `{}`", facts.name)));
        }
        let counted = placement.vcpus.len();
        if counted != 0 && counted as u64 != u64::from(facts.vcpus.maximum) {
            return Err(failed(format!("the plan pins {counted} vCPUs, but it has {}", facts.vcpus.maximum)));
        }
        let fleet = fleet.iter().find(|planned| planned.vm == change.name);
        Ok(Guest { name: &change.name, host: name, placement, change, facts, fleet })
    });
    Ok(Host { name, plan, guests: guests.collect::<Result<_, _>>()? })
}

impl Guest<'_> {
    /// Whether each vCPU has one PU, and no other vCPU of the guest has the same.
    pub(crate) fn is_one_to_one(&self) -> bool {
        let pins = &self.placement.vcpus;
        let own: BTreeSet<u32> = pins.iter().flat_map(|pin| pin.cpus.iter()).collect();
        !pins.is_empty() && own.len() == pins.len() && pins.iter().all(|pin| pin.cpus.len() == 1)
    }

    /// Whether it boots by UEFI.
    pub(crate) fn is_uefi(&self) -> bool {
        self.facts.boot.firmware.as_deref() == Some("efi") || self.facts.boot.loader.is_some()
    }

    /// All PUs its vCPUs may run on.
    pub(crate) fn vcpu_pus(&self) -> CpuSet {
        self.placement.vcpus.iter().fold(CpuSet::new(), |all, pin| all.union(&pin.cpus))
    }

    /// All PUs its other threads may run on.
    pub(crate) fn helper_pus(&self) -> CpuSet {
        let sets = self.placement.iothreads.iter().chain(&self.placement.vhost);
        sets.fold(self.placement.emulator.clone(), |all, set| all.union(set))
    }

    /// All PUs of its slice.
    pub(crate) fn slice(&self) -> CpuSet {
        self.vcpu_pus().union(&self.helper_pus())
    }

    /// PUs taken besides and left idle: siblings of isolated vCPUs.
    pub(crate) fn idle(&self) -> CpuSet {
        let pus = self.fleet.into_iter().flat_map(|planned| &planned.cells).flat_map(|cell| &cell.idle);
        pus.fold(CpuSet::new(), |all, pu| all.union(&CpuSet::one(*pu)))
    }

    /// The PUs of each vCPU, `0=2,1=3`.
    pub(crate) fn pins_text(&self) -> String {
        let pins = self.placement.vcpus.iter().map(|pin| format!("{}={}", pin.vcpu, pin.cpus));
        pins.collect::<Vec<_>>().join(" ")
    }

    /// Nodes its memory is on: of the plan, or of its cells.
    pub(crate) fn nodes(&self) -> NodeSet {
        let cells = self.placement.cells.iter().fold(NodeSet::new(), |all, cell| all.union(&NodeSet::one(cell.node)));
        self.placement.memory.nodes.union(&cells)
    }

    /// Cells of the guest that the plan decided.
    pub(crate) fn cells(&self) -> &[GuestCell] {
        &self.placement.cells
    }

    /// (sockets, cores of a socket, threads of a core) of its definition; without one, a socket a vCPU as QEMU has it.
    pub(crate) fn topology(&self) -> (u32, u32, u32) {
        match &self.facts.cpu.topology {
            // Dies and clusters are in no engine's words: they count as cores.
            Some(known) => {
                let cores = known.dies.saturating_mul(known.clusters).saturating_mul(known.cores);
                (known.sockets, cores, known.threads)
            }
            None => (1, self.facts.vcpus.maximum, 1),
        }
    }

    /// Functions handed through that the plan did not decide: they are in the definition alone.
    pub(crate) fn undecided_functions(&self) -> Vec<nearmetal_units::PciAddress> {
        let decided = |function: &&nearmetal_units::PciAddress| {
            !self.placement.devices.iter().any(|device| device.function == **function)
        };
        self.facts.hostdevs.iter().filter(decided).copied().collect()
    }
}
