//! Where owners get in each other's way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use super::{Ledger, Owner};
use crate::{Host, ThreadRole};

/// One conflict, with what causes it. Variants are in order of weight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conflict {
    /// vCPUs of several guests are bound to one PU.
    SharedPu {
        /// The PU.
        cpu: u32,
        /// The guests.
        owners: Vec<Owner>,
    },
    /// Several vCPUs of one guest are bound to the same single PU.
    StackedVcpus {
        /// The PU.
        cpu: u32,
        /// The guest.
        owner: Owner,
        /// The vCPUs.
        vcpus: Vec<u32>,
    },
    /// vCPUs of several guests are bound to PUs of one core.
    SharedCore {
        /// The core's PUs.
        cpus: CpuSet,
        /// The guests.
        owners: Vec<Owner>,
    },
    /// An emulator thread, iothread or vhost worker is bound to nothing but PUs of vCPUs.
    HelperOnVcpu {
        /// Its guest.
        owner: Owner,
        /// What the thread does.
        role: ThreadRole,
        /// Where it may run.
        cpus: CpuSet,
        /// Guests whose vCPUs are there.
        vcpus_of: Vec<Owner>,
    },
    /// Guest memory is on nodes where none of the guest's vCPUs may run.
    MemoryElsewhere {
        /// The guest.
        owner: Owner,
        /// The node that holds it.
        node: u32,
        /// How much.
        memory: Bytes,
        /// Nodes of its vCPUs.
        vcpus_on: NodeSet,
    },
    /// A device is on a node where none of its guest's vCPUs may run.
    DeviceElsewhere {
        /// The device.
        device: String,
        /// Its node.
        node: u32,
        /// The guest.
        owner: Owner,
        /// Nodes of its vCPUs.
        vcpus_on: NodeSet,
    },
    /// Interrupts of devices that no guest holds go to PUs of vCPUs.
    InterruptsOnVcpus {
        /// The PUs.
        cpus: CpuSet,
        /// The interrupts' numbers, as a count.
        interrupts: usize,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |owners: &[Owner]| owners.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>().join(" and ");
        match self {
            Self::SharedPu { cpu, owners } => {
                write!(formatter, "PU {cpu}: vCPUs of {} are bound to it", names(owners))
            }
            Self::StackedVcpus { cpu, owner, vcpus } => {
                let vcpus: Vec<String> = vcpus.iter().map(u32::to_string).collect();
                write!(formatter, "PU {cpu}: vCPUs {} of {} share it", vcpus.join(", "), owner.name)
            }
            Self::SharedCore { cpus, owners } => {
                write!(formatter, "core of PUs {cpus}: {} share it", names(owners))
            }
            Self::HelperOnVcpu { owner, role, cpus, vcpus_of } => write!(
                formatter,
                "{} of {} may run on PUs {cpus} alone, where vCPUs of {} are",
                role_name(role),
                owner.name,
                names(vcpus_of)
            ),
            Self::MemoryElsewhere { owner, node, memory, vcpus_on } => {
                write!(formatter, "{}: {memory} of its memory are on node {node}, its vCPUs on {vcpus_on}", owner.name)
            }
            Self::DeviceElsewhere { device, node, owner, vcpus_on } => {
                write!(formatter, "{device}: on node {node}, the vCPUs of its guest {} on {vcpus_on}", owner.name)
            }
            Self::InterruptsOnVcpus { cpus, interrupts } => {
                write!(formatter, "PUs {cpus} have vCPUs bound to them and take {interrupts} interrupts of the host")
            }
        }
    }
}

pub(super) fn role_name(role: &ThreadRole) -> String {
    match role {
        ThreadRole::Vcpu(number) => format!("vCPU {number}"),
        ThreadRole::Emulator => "emulator thread".to_owned(),
        ThreadRole::Iothread(number) => format!("iothread {number}"),
        ThreadRole::Vhost => "vhost worker".to_owned(),
        ThreadRole::Worker => "block worker".to_owned(),
        ThreadRole::Other => "other thread".to_owned(),
    }
}

pub(super) fn find(host: &Host, ledger: &Ledger) -> Vec<Conflict> {
    let mut found = Vec::new();
    let vcpus = vcpus_by_pu(ledger);
    processors(host, ledger, &vcpus, &mut found);
    helpers(ledger, &vcpus, &mut found);
    elsewhere(host, ledger, &mut found);
    interrupts(host, ledger, &vcpus, &mut found);
    found.sort();
    found
}

/// Owners of vCPUs by PU. A vCPU bound to several PUs claims each of them.
fn vcpus_by_pu(ledger: &Ledger) -> BTreeMap<u32, BTreeSet<Owner>> {
    let mut owners: BTreeMap<u32, BTreeSet<Owner>> = BTreeMap::new();
    for claim in ledger.vcpus() {
        for cpu in claim.cpus.iter() {
            owners.entry(cpu).or_default().insert(claim.owner.clone());
        }
    }
    owners
}

fn processors(host: &Host, ledger: &Ledger, vcpus: &BTreeMap<u32, BTreeSet<Owner>>, found: &mut Vec<Conflict>) {
    for (cpu, owners) in vcpus.iter().filter(|(_, owners)| owners.len() > 1) {
        found.push(Conflict::SharedPu { cpu: *cpu, owners: owners.iter().cloned().collect() });
    }
    let mut single: BTreeMap<(u32, &Owner), Vec<u32>> = BTreeMap::new();
    for claim in ledger.vcpus().filter(|claim| claim.cpus.len() == 1) {
        if let (Some(cpu), ThreadRole::Vcpu(number)) = (claim.cpus.first(), &claim.role) {
            single.entry((cpu, &claim.owner)).or_default().push(*number);
        }
    }
    for ((cpu, owner), vcpus) in single.into_iter().filter(|(_, vcpus)| vcpus.len() > 1) {
        found.push(Conflict::StackedVcpus { cpu, owner: owner.clone(), vcpus });
    }
    for core in host.cores.iter().filter(|core| core.cpus.len() > 1) {
        let owners: BTreeSet<&Owner> = core.cpus.iter().filter_map(|cpu| vcpus.get(&cpu)).flatten().collect();
        // A PU that is shared was said above.
        let shared = core.cpus.iter().any(|cpu| vcpus.get(&cpu).is_some_and(|owners| owners.len() > 1));
        if owners.len() > 1 && !shared {
            let owners = owners.into_iter().cloned().collect();
            found.push(Conflict::SharedCore { cpus: core.cpus.clone(), owners });
        }
    }
}

fn helpers(ledger: &Ledger, vcpus: &BTreeMap<u32, BTreeSet<Owner>>, found: &mut Vec<Conflict>) {
    for claim in &ledger.claims {
        // Other threads sleep; those that work for the guest's devices are the ones that matter.
        if !matches!(claim.role, ThreadRole::Emulator | ThreadRole::Iothread(_) | ThreadRole::Vhost) {
            continue;
        }
        let owners: Vec<&BTreeSet<Owner>> = claim.cpus.iter().filter_map(|cpu| vcpus.get(&cpu)).collect();
        if !owners.is_empty() && owners.len() == claim.cpus.len() {
            let vcpus_of: BTreeSet<Owner> = owners.into_iter().flatten().cloned().collect();
            found.push(Conflict::HelperOnVcpu {
                owner: claim.owner.clone(),
                role: claim.role.clone(),
                cpus: claim.cpus.clone(),
                vcpus_of: vcpus_of.into_iter().collect(),
            });
        }
    }
}

/// Nodes of each guest's bound vCPUs; a guest with none floats, and nothing is far from it.
fn homes(host: &Host, ledger: &Ledger) -> BTreeMap<Owner, NodeSet> {
    let mut homes: BTreeMap<Owner, NodeSet> = BTreeMap::new();
    for claim in ledger.vcpus() {
        let nodes = homes.entry(claim.owner.clone()).or_default();
        for node in claim.cpus.iter().filter_map(|cpu| host.node_of_cpu(cpu)) {
            nodes.insert(node.index);
        }
    }
    homes.retain(|_, nodes| !nodes.is_empty());
    homes
}

fn elsewhere(host: &Host, ledger: &Ledger, found: &mut Vec<Conflict>) {
    let homes = homes(host, ledger);
    for memory in &ledger.memory {
        let Some(home) = homes.get(&memory.owner).filter(|home| !home.contains(memory.node)) else { continue };
        found.push(Conflict::MemoryElsewhere {
            owner: memory.owner.clone(),
            node: memory.node,
            memory: memory.memory,
            vcpus_on: home.clone(),
        });
    }
    for device in &ledger.devices {
        let (Some(node), Some(owner)) = (device.node, &device.owner) else { continue };
        let Some(home) = homes.get(owner).filter(|home| !home.contains(node)) else { continue };
        found.push(Conflict::DeviceElsewhere {
            device: device.name.clone(),
            node,
            owner: owner.clone(),
            vcpus_on: home.clone(),
        });
    }
}

fn interrupts(host: &Host, ledger: &Ledger, vcpus: &BTreeMap<u32, BTreeSet<Owner>>, found: &mut Vec<Conflict>) {
    let held: BTreeSet<_> = ledger.devices.iter().filter(|device| device.owner.is_some()).map(|d| d.function).collect();
    let mut cpus = CpuSet::new();
    let mut count = 0;
    for interrupt in &host.interrupts {
        let Some(device) = interrupt.device.filter(|device| !held.contains(&Some(*device))) else { continue };
        let Some(effective) = interrupt.effective.as_ref().filter(|_| !interrupt.actions.is_empty()) else { continue };
        let hit: Vec<u32> = effective.iter().filter(|cpu| vcpus.contains_key(cpu)).collect();
        let _ = device;
        count += usize::from(!hit.is_empty());
        hit.into_iter().for_each(|cpu| _ = cpus.insert(cpu));
    }
    if count > 0 {
        found.push(Conflict::InterruptsOnVcpus { cpus, interrupts: count });
    }
}
