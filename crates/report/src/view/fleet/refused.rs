//! VMs without a place, one by one and counted.

use std::collections::BTreeMap;

use nearmetal_fleet::{Fleet, FleetPlan, Vm};

use crate::text::count;

/// A VM without a place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RefusedVm {
    pub(crate) vm: String,
    /// What it asks for: vCPUs and memory.
    pub(crate) asks: String,
    pub(crate) vcpus: u64,
    /// Why, in a sentence.
    pub(crate) reason: String,
    /// The smallest change that would place it, as host and change.
    pub(crate) remedy: Option<(String, String)>,
}

/// VMs refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReasonCount {
    pub(crate) reason: String,
    pub(crate) vms: usize,
    pub(crate) vcpus: u64,
}

pub(crate) fn refused(fleet: &Fleet, plan: &FleetPlan) -> Vec<RefusedVm> {
    let asked: BTreeMap<&str, &Vm> = fleet.vms.iter().map(|vm| (vm.name.as_str(), vm)).collect();
    let row = |refusal: &nearmetal_fleet::Refusal| {
        let vm = asked.get(refusal.vm.as_str());
        RefusedVm {
            vm: refusal.vm.clone(),
            asks: vm.map_or_else(String::new, |vm| asks(vm)),
            vcpus: vm.map_or(0, |vm| u64::from(vm.vcpus)),
            reason: refusal.reason.clone(),
            remedy: refusal.remedy.as_ref().map(|remedy| (remedy.host.clone(), remedy.change.clone())),
        }
    };
    plan.refusals.iter().map(row).collect()
}

/// What a VM asks for: vCPUs, memory, its pages, how many devices.
pub(crate) fn asks(vm: &Vm) -> String {
    let pages = vm.page_size.map(|size| format!(" in {size} pages")).unwrap_or_default();
    let devices: u32 = vm.devices.iter().map(|demand| demand.count).sum();
    let devices = if devices > 0 { format!(", {}", count(devices as usize, "device")) } else { String::new() };
    format!("{}, {}{pages}{devices}", count(vm.vcpus as usize, "vCPU"), vm.memory)
}

/// What a refused VM asks for and is told.
type Told<'a> = (&'a str, &'a str, Option<&'a (String, String)>);

/// Refused VMs that ask for the same and are told the same, by their first, and how many others there are.
pub(crate) fn alike_refused(refused: &[RefusedVm]) -> Vec<(&RefusedVm, usize)> {
    let mut at: BTreeMap<Told<'_>, usize> = BTreeMap::new();
    let mut groups: Vec<(&RefusedVm, usize)> = Vec::new();
    fn told(vm: &RefusedVm) -> Told<'_> {
        (&vm.asks, &vm.reason, vm.remedy.as_ref())
    }
    for vm in refused {
        match at.get(&told(vm)) {
            Some(group) => groups[*group].1 += 1,
            None => {
                at.insert(told(vm), groups.len());
                groups.push((vm, 0));
            }
        }
    }
    groups
}

/// Reasons with how many VMs have each, the most frequent first. What a reason says after its semicolon (the host that
/// comes nearest) differs from VM to VM, and is left out.
pub(crate) fn reasons(refused: &[RefusedVm]) -> Vec<ReasonCount> {
    let mut counts: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for vm in refused {
        let reason = vm.reason.split(';').next().unwrap_or_default();
        let entry = counts.entry(reason).or_default();
        *entry = (entry.0 + 1, entry.1 + vm.vcpus);
    }
    let count = |(reason, (vms, vcpus)): (&str, (usize, u64))| ReasonCount { reason: reason.to_owned(), vms, vcpus };
    let mut counts: Vec<ReasonCount> = counts.into_iter().map(count).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.vms));
    counts
}
