//! Why a guest cannot be placed, and the smallest change that would place it.

use nearmetal_host::Host;
use nearmetal_units::{Bytes, PageSize};

use crate::memory::Memory;
use crate::occupied::Occupied;
use crate::plan::Blocker;
use crate::policy::{Policy, Siblings};
use crate::processors::{Level, Processors};
use crate::request::GuestRequest;
use crate::slice;

/// What is wrong with a request whatever else is on the host.
pub(crate) fn unfit(guest: &GuestRequest, earlier: &[GuestRequest], host: &Host) -> Option<Blocker> {
    let blocker = |problem: &str, remedy: &str| {
        Some(Blocker { guest: guest.name.clone(), problem: problem.into(), remedy: remedy.into() })
    };
    if earlier.iter().any(|other| other.uuid == guest.uuid || other.name == guest.name) {
        return blocker("another guest of this plan has the same name or UUID", "name each guest once");
    }
    if host.nodes.is_empty() {
        return blocker("the host shows no NUMA node", "a kernel with CONFIG_NUMA, as Debian's is");
    }
    if guest.vcpus == 0 {
        return blocker("it has 0 vCPUs, at least 1 is needed", "give it a vCPU");
    }
    if guest.memory == Bytes::ZERO {
        return blocker("it has no memory", "give it memory");
    }
    None
}

/// The host is full, in PUs or in memory, or a node is that a cell of the guest is bound to.
pub(crate) fn no_room(
    processors: &Processors,
    memory: &Memory,
    occupied: &Occupied,
    policy: &Policy,
    guest: &GuestRequest,
    anchor: Option<u32>,
) -> Blocker {
    // The smallest pages that were tried: with them the least memory is lost.
    let size = slice::page_sizes(guest, memory, policy).last().copied().flatten();
    let unit = size.unwrap_or(PageSize::SMALL);
    let (cpus, bytes) = slice::left(processors, memory, policy.siblings, unit);
    let wanted = guest.vcpus as usize;
    let (mut problems, mut remedies) = (Vec::new(), Vec::new());
    let place = anchor.map(|node| format!(" on node {node}")).unwrap_or_default();
    if cpus < wanted {
        let owners: Vec<&str> = occupied.owners.iter().map(|owner| owner.guest.as_str()).collect();
        let owned = if owners.is_empty() { String::new() } else { format!("; others belong to {}", owners.join(", ")) };
        let whose = match processors.allowed() {
            Some(allowed) if policy.siblings == Siblings::Spare => format!(" in the PUs allowed ({allowed})"),
            Some(allowed) => format!(" of the {} allowed (PUs {allowed})", allowed.len()),
            None => String::new(),
        };
        let nodes = per_node(processors, policy.siblings);
        let (what, one) = words(policy.siblings);
        problems.push(format!("it needs {wanted} {what} of its own, {cpus}{whose} have no owner{owned}{nodes}"));
        let missing = wanted - cpus;
        let plural = if missing == 1 { "" } else { "s" };
        remedies.push(format!("{missing} more free {one}{plural}{place}, or {cpus} vCPUs instead of {wanted}"));
    }
    let needed = unit.bytes().times(guest.memory.pages(unit));
    if bytes < needed {
        let pages = size.map(|size| format!(" in pages of {size}")).unwrap_or_default();
        let nodes: Vec<String> = memory
            .nodes()
            .map(|node| {
                format!("node {node} {} beyond its reserve of {}", memory.amount(node, unit), memory.reserve(node))
            })
            .collect();
        problems.push(format!("it needs {needed} of memory{pages}, the nodes can give {bytes} ({})", nodes.join(", ")));
        remedies.push(format!("{} more memory{place}, free or reclaimable, or a smaller reserve", needed.less(bytes)));
    }
    if problems.is_empty() {
        let (problem, remedy) = bound_cells(processors, memory, policy, guest, unit);
        problems.push(problem);
        remedies.push(remedy.to_owned());
    }
    Blocker { guest: guest.name.clone(), problem: problems.join("; "), remedy: remedies.join("; and ") }
}

/// What a vCPU takes, several and one.
fn words(siblings: Siblings) -> (&'static str, &'static str) {
    match siblings {
        Siblings::Use => ("PUs", "PU"),
        Siblings::Spare => ("whole cores", "core"),
    }
}

/// Why a guest that has room as a whole has none where its cells are bound, and what helps.
fn bound_cells(
    processors: &Processors,
    memory: &Memory,
    policy: &Policy,
    guest: &GuestRequest,
    unit: PageSize,
) -> (String, &'static str) {
    let (what, _) = words(policy.siblings);
    let short = guest.shows.cells.iter().enumerate().filter_map(|(number, cell)| {
        let node = cell.node?;
        let (cpus, bytes) = (processors.room(node, Level::Helpers, policy.siblings), memory.amount(node, unit));
        (cpus < cell.vcpus.len() || bytes < cell.memory).then(|| {
            format!(
                "cell {number} is bound to node {node} and needs {} {what} and {} there, the node can give {cpus} and {bytes}",
                cell.vcpus.len(),
                cell.memory
            )
        })
    });
    let short: Vec<String> = short.collect();
    if short.is_empty() {
        let problem = format!(
            "its cells cannot be placed where they are bound: each needs a node of its own, must continue the vCPU numbers of the \
             cell before, and have whole pages of {}",
            unit.bytes()
        );
        return (problem, "change `<numa>` and `<memnode>` accordingly, or bind no cell (without `<memnode>`)");
    }
    (short.join("; "), "more room on these nodes, or cells that are bound to none (without `<memnode>`)")
}

fn per_node(processors: &Processors, siblings: Siblings) -> String {
    let nodes: Vec<String> = processors
        .nodes()
        .map(|node| format!("node {node}: {}", processors.room(node, Level::Helpers, siblings)))
        .collect();
    format!(" ({})", nodes.join(", "))
}
