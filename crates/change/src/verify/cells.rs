//! NUMA as the guest sees it: what QEMU was told, where each cell's pages are, and what the guest itself says.

use nearmetal_host::guests::CommandLine;
use nearmetal_host::{GuestProcess, HostFs, Residency};
use nearmetal_place::{GuestCell, Placement};
use nearmetal_units::Bytes;

use super::{Check, CheckKind, GuestView, ObservedCells};

/// Reads the cells off QEMU's command line.
pub(super) fn look(files: &HostFs, pid: u32) -> Result<ObservedCells, String> {
    let path = format!("/proc/{pid}/cmdline");
    let bytes = files.read_bytes(&path).map_err(|error| error.to_string())?;
    let line = CommandLine::parse(&bytes).ok_or_else(|| format!("`{path}` is not a QEMU command line"))?;
    Ok(ObservedCells { cells: line.cells, distances: line.distances })
}

/// One check for what each cell is, one for where its pages are.
pub(super) fn judge(
    placement: &Placement,
    guest: &GuestProcess,
    seen: Option<&Result<ObservedCells, String>>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    for (cell, number) in placement.cells.iter().zip(0u32..) {
        let subject = format!("cell {number}");
        let planned = planned_text(cell);
        let command_line = format!("/proc/{}/cmdline", guest.pid);
        checks.push(match seen {
            None => Check::cannot_tell(CheckKind::Cell, subject, planned, "it was not read"),
            Some(Err(why)) => Check::cannot_tell(CheckKind::Cell, subject, planned, why).at(command_line),
            Some(Ok(seen)) => {
                let (found, equal) = told(cell, number, seen);
                Check::compared(CheckKind::Cell, subject, planned, found, equal).at(command_line)
            }
        });
        checks.push(pages(placement, cell, number, guest));
    }
    if let (Some(Ok(seen)), false) = (seen, placement.cells.is_empty()) {
        let (planned, found) = (placement.cells.len(), seen.cells.len());
        if found > planned {
            let text = |count: usize| format!("{count} of them");
            let check = Check::compared(CheckKind::Cell, "cells of the guest", text(planned), text(found), false);
            checks.push(check.at(format!("/proc/{}/cmdline", guest.pid)));
        }
    }
    checks
}

fn planned_text(cell: &GuestCell) -> String {
    let mut text = format!("vCPUs {} and {}", cell.vcpus, cell.memory);
    if !cell.distances.is_empty() {
        text.push_str(&format!(", at distances {}", words(&cell.distances)));
    }
    text
}

fn words(distances: &[u32]) -> String {
    distances.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// What QEMU was told of a cell, and whether it is what was planned.
fn told(cell: &GuestCell, number: u32, seen: &ObservedCells) -> (String, bool) {
    let Some(found) = seen.cells.iter().find(|found| found.id == number) else {
        return ("no such cell".to_owned(), false);
    };
    let memory = found.memory.map_or_else(|| "memory of no backend".to_owned(), |memory| memory.to_string());
    let mut text = format!("vCPUs {} and {memory}", found.vcpus);
    let mut equal = found.vcpus == cell.vcpus && found.memory == Some(cell.memory);
    if !cell.distances.is_empty() {
        // QEMU's own: 10 to itself, 20 to others (hw/core/numa.c).
        let distance = |to: u32| {
            let given = seen.distances.iter().find(|(from, other, _)| (*from, *other) == (number, to));
            given.map_or(if to == number { 10 } else { 20 }, |(_, _, distance)| *distance)
        };
        let distances: Vec<u32> = (0u32..).take(cell.distances.len()).map(distance).collect();
        text.push_str(&format!(", at distances {}", words(&distances)));
        equal &= distances == cell.distances;
    }
    if let Some(nodes) = found.nodes.as_ref().filter(|nodes| nodes.len() != 1 || !nodes.contains(cell.node)) {
        text.push_str(&format!(", bound to nodes {nodes}"));
        equal = false;
    }
    (text, equal)
}

/// Whether all pages of a cell are on its node.
fn pages(placement: &Placement, cell: &GuestCell, number: u32, guest: &GuestProcess) -> Check {
    let place = format!("/proc/{}/numa_maps", guest.pid);
    let subject = format!("memory of cell {number}");
    let planned = format!("every page on node {}", cell.node);
    let cannot_tell = |why: &str| Check::cannot_tell(CheckKind::Cell, &subject, &planned, why).at(place.clone());
    if let Some(why) = &guest.residency_error {
        return cannot_tell(why);
    }
    let own = match mappings(placement, cell, number, guest) {
        Ok(own) => own,
        Err(why) => return cannot_tell(why),
    };
    let mut nodes = std::collections::BTreeMap::<u32, Bytes>::new();
    for mapping in own {
        for (node, count) in mapping.pages.iter().filter(|(_, count)| *count > 0) {
            let sum = nodes.entry(*node).or_insert(Bytes::ZERO);
            *sum = sum.plus(mapping.page_size.bytes().times(*count));
        }
    }
    if nodes.is_empty() {
        return cannot_tell("the guest has not touched any of it yet: verify again once it has");
    }
    let equal = nodes.keys().all(|node| *node == cell.node);
    let found: Vec<String> = nodes.iter().map(|(node, bytes)| format!("{bytes} on node {node}")).collect();
    Check::compared(CheckKind::Cell, &subject, &planned, found.join(", "), equal).at(place.clone())
}

/// The mappings of a cell's memory. libvirt calls the backend of cell n `ram-noden`, and a file behind it ends in that;
/// memory without a file is known by the node it is bound to, where no other cell is bound to the same one.
fn mappings<'a>(
    placement: &Placement,
    cell: &GuestCell,
    number: u32,
    guest: &'a GuestProcess,
) -> Result<Vec<&'a Residency>, &'static str> {
    let memory = || guest.residency.iter().filter(|mapping| mapping.guest_memory);
    let name = format!("ram-node{number}");
    let of_file = |mapping: &&Residency| {
        let file = mapping.file.as_deref().map(|file| file.trim_end_matches(" (deleted)"));
        file.and_then(|file| file.rsplit('/').next()) == Some(name.as_str())
    };
    let own: Vec<&Residency> = memory().filter(of_file).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    if placement.cells.len() == 1 {
        return Ok(memory().collect());
    }
    if placement.cells.iter().filter(|other| other.node == cell.node).count() > 1 {
        return Err("several cells share one node, and no file tells their memory apart");
    }
    // `bind:1`, and since Linux 5.9 also `bind=static:1`.
    let bound = |mapping: &&Residency| {
        mapping.policy.starts_with("bind") && mapping.policy.rsplit(':').next() == Some(&*cell.node.to_string())
    };
    let own: Vec<&Residency> = memory().filter(bound).collect();
    if own.is_empty() {
        Err("no mapping of the guest is bound to that node or has a file of its name")
    } else {
        Ok(own)
    }
}

/// Whether the guest sees the cells it was given.
pub(super) fn in_the_guest(placement: &Placement, view: Result<&GuestView, &String>) -> Vec<Check> {
    let check = |(cell, number): (&GuestCell, u32)| {
        let subject = format!("cell {number} as the guest sees it");
        let planned = format!("vCPUs {}", cell.vcpus);
        match view {
            Err(why) => Check::cannot_tell(CheckKind::Guest, subject, planned, why),
            Ok(view) if view.nodes.is_empty() => {
                Check::cannot_tell(CheckKind::Guest, subject, planned, "the guest's kernel reports no NUMA nodes")
            }
            Ok(view) => {
                let found = view.nodes.iter().find(|node| node.index == number);
                let text = found.map_or_else(|| "no such node".to_owned(), |node| format!("vCPUs {}", node.cpus));
                let equal = found.is_some_and(|node| node.cpus == cell.vcpus);
                Check::compared(CheckKind::Guest, subject, planned, text, equal)
                    .at(format!("/sys/devices/system/node/node{number} in the guest"))
            }
        }
    };
    placement.cells.iter().zip(0u32..).map(check).collect()
}
