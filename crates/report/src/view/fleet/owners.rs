//! Who is on a host, before and after a plan, with the labels the pictures use.

use nearmetal_fleet::{CellPlacement, Fleet, FleetHost, FleetPlan, Vm, VmPlacement};
use nearmetal_host::ledger::Ledger;

use super::refused::asks;
use super::rows::same_place;

/// Whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerKind {
    /// A VM of the fleet.
    Vm,
    /// A guest the fleet does not know; the plan leaves it alone.
    Other,
}

/// An owner of PUs, memory or devices of one host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SheetOwner {
    pub(crate) name: String,
    /// Letters for VMs of the fleet, figures for others.
    pub(crate) label: String,
    pub(crate) kind: OwnerKind,
    /// What it asks for; empty for others.
    pub(crate) asks: String,
    /// What the plan does with it: `new here`, `stays`, `leaves for a`.
    pub(crate) change: String,
}

/// An owner with its two placements on this host.
pub(super) struct Resident<'a> {
    pub(super) owner: SheetOwner,
    pub(super) before: Option<&'a VmPlacement>,
    pub(super) after: Option<&'a VmPlacement>,
}

/// VMs on the host before or after, by where they are then where they were, so that hosts that get the same give it the
/// same labels. Others follow, in the ledger's order.
pub(super) fn residents<'a>(
    fleet: &'a Fleet,
    plan: &'a FleetPlan,
    host: &FleetHost,
    ledger: Option<&Ledger>,
) -> Vec<Resident<'a>> {
    let after = |vm: &Vm| plan.placements.iter().find(|placement| placement.vm == vm.name);
    let mut here: Vec<(&Vm, Option<&VmPlacement>, Option<&VmPlacement>)> = Vec::new();
    let placed = plan.placements.iter().filter(|placement| placement.host == host.name);
    for placement in placed {
        if let Some(vm) = fleet.vms.iter().find(|vm| vm.name == placement.vm) {
            here.push((vm, vm.current.as_ref().filter(|current| current.host == host.name), Some(placement)));
        }
    }
    for vm in &fleet.vms {
        let current = vm.current.as_ref().filter(|current| current.host == host.name);
        if current.is_some() && !here.iter().any(|(known, ..)| known.name == vm.name) {
            here.push((vm, current, None));
        }
    }
    let corner = |placement: &VmPlacement| {
        let cell: Option<&CellPlacement> = placement.cells.first();
        cell.map(|cell| (cell.node, cell.pus.first().copied().unwrap_or(u32::MAX), cell.vcpus, cell.memory))
    };
    here.sort_by_key(|(vm, before, now)| {
        let at = now.or(*before).and_then(corner);
        (now.is_none(), at, vm.name.clone())
    });
    let mut residents: Vec<Resident<'a>> = Vec::new();
    for (number, (vm, before, now)) in here.into_iter().enumerate() {
        let change = match (vm.current.as_ref(), before, now) {
            (_, Some(before), Some(now)) if same_place(before, now) => "stays".to_owned(),
            (_, Some(_), Some(_)) => "moves to other nodes".to_owned(),
            (_, Some(_), None) => match after(vm) {
                Some(there) => format!("leaves for {}", there.host),
                None => "loses its place".to_owned(),
            },
            (Some(current), None, _) => format!("comes from {}", current.host),
            (None, ..) => "new here".to_owned(),
        };
        let floats = now.is_some_and(|now| now.floating.is_some());
        let change = if floats { format!("{change}, better left floating") } else { change };
        let owner =
            SheetOwner { name: vm.name.clone(), label: letters(number), kind: OwnerKind::Vm, asks: asks(vm), change };
        residents.push(Resident { owner, before, after: now });
    }
    let vms = residents.len();
    for name in others(ledger, fleet, &host.name) {
        let owner = SheetOwner {
            label: (residents.len() - vms + 1).to_string(),
            name,
            kind: OwnerKind::Other,
            asks: String::new(),
            change: "not of this fleet: left alone".to_owned(),
        };
        residents.push(Resident { owner, before: None, after: None });
    }
    residents
}

/// Guests the ledger knows and the fleet does not run here, each once.
fn others(ledger: Option<&Ledger>, fleet: &Fleet, host: &str) -> Vec<String> {
    let Some(ledger) = ledger else { return Vec::new() };
    let own = |name: &str| {
        fleet.vms.iter().any(|vm| vm.name == name && vm.current.as_ref().is_some_and(|current| current.host == host))
    };
    let vcpus = ledger.vcpus().map(|claim| &claim.owner.name);
    let floating = ledger.floating.iter().map(|(owner, _)| &owner.name);
    let memory = ledger.memory.iter().map(|used| &used.owner.name);
    let devices = ledger.devices.iter().filter_map(|device| device.owner.as_ref().map(|owner| &owner.name));
    let mut names: Vec<String> = Vec::new();
    for name in vcpus.chain(floating).chain(memory).chain(devices) {
        if !own(name) && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// A to Z, a to z, then two letters: AA, AB, …
fn letters(number: usize) -> String {
    let letter = |number: usize, first: u8| char::from(first + (number % 26) as u8);
    match number {
        0..=25 => letter(number, b'A').to_string(),
        26..=51 => letter(number, b'a').to_string(),
        _ => [letter((number - 52) / 26, b'A'), letter(number, b'A')].iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_letters_and_differ() {
        assert_eq!([0, 25, 26, 51, 52, 78].map(letters), ["A", "Z", "a", "z", "AA", "BA"]);
        let all: std::collections::BTreeSet<String> = (0..500).map(letters).collect();
        assert_eq!(all.len(), 500);
    }
}
