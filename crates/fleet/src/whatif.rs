//! The same fleet, otherwise: what a plan would be if.

use std::collections::BTreeMap;

use crate::error::FleetError;
use crate::model::{Fleet, Vm};

/// A change to try.
#[derive(Debug, Clone, PartialEq)]
pub enum WhatIf {
    /// One VM more.
    AddVm(Box<Vm>),
    /// One host less. VMs that run there have to move.
    RemoveHost(String),
    /// No second threads, on one host or on all: each core keeps its first free PU.
    SmtOff(Option<String>),
}

impl Fleet {
    /// The fleet with this change.
    pub fn what_if(&self, change: &WhatIf) -> Result<Self, FleetError> {
        let mut fleet = self.clone();
        match change {
            WhatIf::AddVm(vm) => fleet.vms.push((**vm).clone()),
            WhatIf::RemoveHost(name) => {
                fleet.hosts.retain(|host| host.name != *name);
                if fleet.hosts.len() == self.hosts.len() {
                    return Err(FleetError::Unknown { what: "host", name: name.clone() });
                }
                let there = |vm: &&mut Vm| vm.current.as_ref().is_some_and(|current| current.host == *name);
                fleet.vms.iter_mut().filter(there).for_each(|vm| vm.current = None);
            }
            WhatIf::SmtOff(name) => {
                let chosen = |host: &str| name.as_deref().is_none_or(|name| name == host);
                if !fleet.hosts.iter().any(|host| chosen(&host.name)) {
                    return Err(FleetError::Unknown { what: "host", name: name.clone().unwrap_or_default() });
                }
                for host in fleet.hosts.iter_mut().filter(|host| chosen(&host.name)) {
                    for core in host.nodes.iter_mut().flat_map(|node| &mut node.cores) {
                        // A core somebody else uses in part has no thread left once its others are off.
                        let whole = core.free.len() as u32 == core.threads;
                        core.free.truncate(usize::from(whole));
                        core.threads = 1;
                    }
                    host.nodes.iter_mut().for_each(|node| node.cores.retain(|core| !core.free.is_empty()));
                }
                // Where PUs go away, VMs on them are placed anew.
                let left: BTreeMap<&str, std::collections::BTreeSet<u32>> = fleet
                    .hosts
                    .iter()
                    .map(|host| {
                        let cores = host.nodes.iter().flat_map(|node| &node.cores);
                        (host.name.as_str(), cores.flat_map(|core| core.free.iter().copied()).collect())
                    })
                    .collect();
                for vm in &mut fleet.vms {
                    let gone = vm.current.as_ref().is_some_and(|current| {
                        let mut pus = current.cells.iter().flat_map(|cell| cell.pus.iter().chain(&cell.idle));
                        pus.any(|pu| left.get(current.host.as_str()).is_none_or(|left| !left.contains(pu)))
                    });
                    if gone {
                        vm.current = None;
                    }
                }
            }
        }
        Ok(fleet)
    }
}
