//! Why each decision is as it is, in one sentence with its facts.

use std::collections::BTreeSet;

use nearmetal_host::Host;
use nearmetal_units::{CpuSet, NodeSet, PageSize};

use crate::anchor::Anchor;
use crate::distances::Distances;
use crate::helpers::{Found, Helpers};
use crate::occupied::Occupied;
use crate::plan::{GuestCell, NetworkPlacement, Placement, Plan, Reason};
use crate::policy::{InterfaceQueues, Policy, Siblings};
use crate::processors::Level;
use crate::request::{GuestRequest, WorkloadClass};
use crate::slice::Slice;
use crate::sources;

fn reason(subject: &str, choice: String, because: String, source: Option<&str>) -> Reason {
    Reason { subject: subject.to_owned(), choice, because, source: source.map(str::to_owned) }
}

/// Why a guest is not pinned.
pub(crate) fn floating(guest: &GuestRequest) -> Reason {
    let because = format!(
        "its class is density: with more vCPUs than PUs, {} pinned vCPUs would wait for their PUs while others are idle; the scheduler moves floating ones there",
        guest.vcpus
    );
    reason("vcpu pins", "none: it floats".to_owned(), because, Some(sources::LIBVIRT_CPU_TUNING))
}

/// Node, vCPU pins, emulator, iothreads, memory, page size.
pub(crate) fn of(
    distances: &Distances,
    policy: &Policy,
    guest: &GuestRequest,
    anchor: Option<&Anchor>,
    slice: &Slice,
    cells: &[GuestCell],
    helpers: &Helpers,
) -> Vec<Reason> {
    let mut reasons = vec![node(distances, guest, anchor, slice), pins(policy, slice), emulator(guest, helpers)];
    reasons.extend(iothreads(helpers));
    reasons.push(memory(slice, cells));
    reasons.extend(of_cells(policy, guest, slice, cells));
    reasons.push(pages(policy, guest, slice));
    reasons
}

fn list(nodes: &[u32]) -> String {
    let set: NodeSet = nodes.iter().copied().collect();
    let plural = if set.len() == 1 { "node" } else { "nodes" };
    format!("{plural} {set}")
}

fn node(distances: &Distances, guest: &GuestRequest, anchor: Option<&Anchor>, slice: &Slice) -> Reason {
    let home = slice.cpu_nodes.first().copied().unwrap_or_default();
    let mut because = match anchor {
        Some(anchor) if anchor.node == home => format!("{} hangs on node {home}", anchor.devices.join(", ")),
        Some(anchor) => format!(
            "{} hangs on node {}, which has not enough PUs or memory left; node {home} is at distance {} of it",
            anchor.devices.join(", "),
            anchor.node,
            distances.between(anchor.node, home)
        ),
        None => "no device of the guest has a known node, and of the nodes that hold it this one has most free whole cores and memory".to_owned(),
    };
    for (name, other) in anchor.iter().flat_map(|anchor| &anchor.elsewhere) {
        because.push_str(&format!("; {name} hangs on node {other} and is reached from afar"));
    }
    if slice.cpu_nodes.len() > 1 {
        because.push_str(&format!("; no single node has {} PUs and the memory left", guest.vcpus));
    }
    reason("node", list(&slice.cpu_nodes), because, anchor.map(|_| sources::KERNEL_PCI_NODE))
}

/// What becomes of the other PUs of a vCPU's core.
const IDLE: &str =
    ": other PUs of these cores stay idle as far as this plan goes, and one that is made later may use them";

fn pins(policy: &Policy, slice: &Slice) -> Reason {
    let choice = slice.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let mut because = match slice.shared {
        _ if policy.siblings == Siblings::Spare => format!("a core for each vCPU{IDLE}"),
        0 => "one PU for each vCPU, neighbouring vCPUs on PUs the kernel lists as siblings, no core shared with another guest".to_owned(),
        shared => format!("one PU for each vCPU; whole cores were not left for all, so {shared} of them share a core with others"),
    };
    match slice.level {
        Level::Free => {}
        Level::Housekeeping => because.push_str("; the host's own core was needed to keep the guest together"),
        Level::Helpers => because.push_str("; PUs of other guests' emulator threads were needed, nothing else is left"),
    }
    reason("vcpu pins", choice, because, Some(sources::KERNEL_TOPOLOGY))
}

/// Puts the reason of what was decided last in the place of the one before.
pub(crate) fn replace(placement: &mut Placement, subject: &str, by: impl Fn(&Placement) -> Reason) {
    let reason = by(placement);
    let before = placement.reasons.iter_mut().find(|reason| reason.subject == subject);
    before.into_iter().for_each(|before| *before = reason.clone());
}

/// Why vCPUs share the PUs of their nodes.
pub(crate) fn pinned_to_node(policy: &Policy, placement: &Placement) -> Reason {
    let sets: BTreeSet<String> = placement.vcpus.iter().map(|pin| pin.cpus.to_string()).collect();
    let choice = match sets.len() {
        1 => format!("PUs {} for all of them", sets.into_iter().collect::<String>()),
        _ => format!("PUs {} for those of each cell", sets.into_iter().collect::<Vec<_>>().join(" and ")),
    };
    let idle = if policy.siblings == Siblings::Spare { IDLE } else { "" };
    let because = format!(
        "every vCPU may use each of these PUs of the guest's nodes: none of them carries another guest's vCPUs or helper threads, and \
         memory stays near{idle}"
    );
    reason("vcpu pins", choice, because, Some(sources::LIBVIRT_CPU_TUNING))
}

/// Why QEMU's own threads share the PUs of the guest's nodes.
pub(crate) fn emulator_on_node(placement: &Placement) -> Reason {
    let because = "QEMU's own threads, and the workers of the engine `threads`, may use each of these PUs of the guest's nodes that \
                   carries nobody else's vCPUs or helper threads; a plan that is made later may put vCPUs there";
    let choice = format!("PUs {}", placement.emulator);
    reason("emulator", choice, because.to_owned(), Some(sources::LIBVIRT_CPU_TUNING))
}

/// The guest's cells, where the policy asks for them, or why there are none.
fn of_cells(policy: &Policy, guest: &GuestRequest, slice: &Slice, cells: &[GuestCell]) -> Option<Reason> {
    let one = |cell: &GuestCell| format!("vCPUs {} and {} of node {}", cell.vcpus, cell.memory, cell.node);
    let (choice, because) = match cells {
        [] if !guest.shows.cells.is_empty() => {
            ("as they are".to_owned(), "its definition shows it cells, which do not lie on a node each here")
        }
        [] if !policy.guest_cells => return None,
        [] if slice.nodes().len() < 2 => ("none".to_owned(), "it lies on one node"),
        [] => (
            "none".to_owned(),
            "its vCPUs and its memory cannot be dealt to its nodes in equal parts of whole cores, pages and MiB",
        ),
        _ => (
            cells.iter().map(one).collect::<Vec<_>>().join("; "),
            "the guest's kernel sees the nodes that it lies on, and keeps threads near their memory",
        ),
    };
    Some(reason("guest cells", choice, because.to_owned(), Some(sources::LIBVIRT_NUMA_TUNING)))
}

/// What the place of the helper threads means.
fn place(found: Found) -> String {
    match found {
        Found::Near(node) => format!("a PU of node {node} that carries no vCPU"),
        Found::Away { node, distance } => {
            format!("no PU is left on the guest's node; node {node}, at distance {distance}, is the nearest with one")
        }
        Found::Idle(node) => {
            format!("no PU is free; on node {node} it is the sibling of a vCPU's, which was to stay idle")
        }
        Found::SharedWithHelpers(node) => {
            format!("no PU without a user is left; on node {node} it is shared with other guests' helper threads")
        }
        Found::SharedWithVcpus => {
            "every PU of the host carries a vCPU: it is shared with the host's own work and that vCPU".to_owned()
        }
    }
}

fn emulator(guest: &GuestRequest, helpers: &Helpers) -> Reason {
    let mut because = place(helpers.found);
    if guest.networks.iter().any(|network| network.uses_vhost) {
        because.push_str("; vhost workers of its network interfaces run there too");
    }
    if helpers.iothreads.contains(&helpers.emulator) {
        because.push_str("; shared with an iothread, since no other is left there");
    }
    reason("emulator", format!("PU {}", helpers.emulator), because, Some(sources::LIBVIRT_CPU_TUNING))
}

fn iothreads(helpers: &Helpers) -> Option<Reason> {
    if helpers.iothreads.is_empty() {
        return None;
    }
    let sets: Vec<String> = helpers.iothreads.iter().map(CpuSet::to_string).collect();
    let because = format!("disk requests take no time from vCPUs or the emulator thread; {}", place(helpers.found));
    let choice = format!("{}, on PU {}", sets.len(), sets.join(" and "));
    Some(reason("iothread", choice, because, Some(sources::LIBVIRT_IOTHREADS)))
}

/// Why iothreads share the PUs of the guest's nodes.
pub(crate) fn iothreads_on_node(placement: &Placement) -> Reason {
    let sets: BTreeSet<String> = placement.iothreads.iter().map(CpuSet::to_string).collect();
    let because = "disk requests may be handled on each of these PUs of the guest's nodes that carries nobody else's vCPUs or helper \
                   threads; a plan that is made later may put vCPUs there";
    let choice =
        format!("{}, on PUs {}", placement.iothreads.len(), sets.into_iter().collect::<Vec<_>>().join(" and "));
    reason("iothread", choice, because.to_owned(), Some(sources::LIBVIRT_CPU_TUNING))
}

/// Why there are fewer iothreads than the policy wants: `cannot_share`, or else there is no room.
pub(crate) fn fewer_iothreads(have: u32, wanted: u32, cannot_share: Option<String>) -> Reason {
    let no_room = "no other PU is free near the guest, and iothreads that share one would only take it from each other";
    reason(
        "further iothreads",
        format!("{have} instead of {wanted}"),
        cannot_share.unwrap_or_else(|| no_room.to_owned()),
        Some(sources::LIBVIRT_IOTHREADS),
    )
}

/// Who polls before a vCPU sleeps.
pub(crate) fn polling(guest_polls: bool, is_alone: bool) -> Reason {
    let (choice, because) = match (guest_polls, is_alone) {
        (true, _) => (
            "the guest polls",
            "it is told that its PUs are its own (hint-dedicated), and may switch the host's polling off (poll-control): a wake-up \
             then costs no exit",
        ),
        (false, false) => {
            ("the host polls", "its vCPUs have no PUs of their own, so a guest that polls would take time from others")
        }
        (false, true) => ("the host polls", "the guest is not told that its PUs are its own, and sleeps at once"),
    };
    reason("halt polling", choice.to_owned(), because.to_owned(), Some(sources::KERNEL_GUEST_HALTPOLL))
}

/// Queues of an interface that the policy decides.
pub(crate) fn interface_queues(policy: &Policy, own: &NetworkPlacement) -> Reason {
    let (choice, because) = match policy.interface_queues {
        InterfaceQueues::EachVcpu => (
            format!("{} queues", own.queues),
            "one for each vCPU, as far as the policy's limit lets, with a vhost worker each: packets are handled beside each other",
        ),
        _ => ("1 queue".to_owned(), "one vhost worker: packets stay in order, and fewer threads wake up"),
    };
    reason(&format!("interface {}", own.mac), choice, because.to_owned(), Some(sources::QEMU_QUEUES))
}

/// The vhost workers' own PUs, or why there are none.
pub(crate) fn vhost(guest: &GuestRequest, cpus: &[u32]) -> Reason {
    let set: CpuSet = cpus.iter().copied().collect();
    let (choice, because) = match cpus {
        [] if !guest.networks.iter().any(|network| network.uses_vhost) => {
            ("none".to_owned(), "the guest has no interface that vhost-net carries")
        }
        [] => ("with the emulator thread".to_owned(), "no PU of the guest's node is left for them"),
        _ => (
            format!("PUs {set}, in turns"),
            "packets take no time from vCPUs or the emulator thread; libvirt has no element for it, so its qemu hook sets it \
             after every start",
        ),
    };
    reason("vhost workers", choice, because.to_owned(), Some(sources::LIBVIRT_HOOKS))
}

/// Where interrupts of functions handed through go.
pub(crate) fn interrupts(cpus: &CpuSet) -> Reason {
    let because = "beside the vCPUs, which they then do not interrupt; they exist only while the guest runs, so libvirt's \
                   qemu hook sets it after every start";
    reason("interrupts", format!("PUs {cpus}"), because.to_owned(), Some(sources::LIBVIRT_HOOKS))
}

fn memory(slice: &Slice, cells: &[GuestCell]) -> Reason {
    let nodes: Vec<u32> = slice.memory.iter().map(|(node, _)| *node).collect();
    let because = match nodes.iter().all(|node| slice.cpu_nodes.contains(node)) {
        _ if !cells.is_empty() => "each cell of the guest has its memory on the node of its vCPUs; strict, so that a shortage is an error and not a silent detour".to_owned(),
        _ if nodes.len() > 1 => {
            "it does not fit on one node, so the fewest near ones give it; the guest sees one node and cannot tell near from far memory".to_owned()
        }
        true => "memory of the vCPUs' own node is nearest; strict, so that a shortage is an error and not a silent detour".to_owned(),
        false => "the vCPUs' node has not enough memory; this is the nearest that has".to_owned(),
    };
    reason("memory", format!("strict on {}", list(&nodes)), because, Some(sources::LIBVIRT_NUMA_TUNING))
}

fn pages(policy: &Policy, guest: &GuestRequest, slice: &Slice) -> Reason {
    let (choice, because) = match slice.page_size {
        Some(size) => {
            let why = match size {
                PageSize::HUGE_1G => "memory is a multiple of 1 GiB, and the policy allows pages of it",
                _ if policy.gigantic_pages => "pages of 1 GiB do not fit, or memory is not a multiple of 1 GiB",
                _ => "512 times fewer entries for the TLB than pages of 4 KiB; pages of 1 GiB are off by policy",
            };
            (format!("{} pages of {size}", guest.memory.pages(size)), why)
        }
        None if !policy.hugepages => ("none".to_owned(), "the policy uses no hugepage pools"),
        None => ("none".to_owned(), "the host has no hugepage pool of a usable size"),
    };
    reason("hugepages", choice, because.to_owned(), Some(sources::KERNEL_HUGETLB))
}

/// Adds to each guest the pools it draws from, once the pools of the whole plan are known.
pub(crate) fn add_pools(plan: &mut Plan) {
    for placement in &mut plan.placements {
        let Some(size) = placement.memory.page_size else { continue };
        let nodes = &placement.memory.nodes;
        for pool in plan.pools.iter().filter(|pool| pool.size == size && nodes.contains(pool.node)) {
            let because = match pool.after > pool.before {
                true => format!(
                    "{} pages more than now, for all guests of this plan there; pages in use by others are kept",
                    pool.after - pool.before
                ),
                false => {
                    "it is large enough; spare pages stay, they may be meant for a guest that is shut down".to_owned()
                }
            };
            let choice = format!("node {}: {} -> {} pages of {size}", pool.node, pool.before, pool.after);
            let position = placement.reasons.iter().position(|reason| reason.subject.starts_with("disk"));
            let position = position.unwrap_or(placement.reasons.len());
            placement.reasons.insert(position, reason("pool", choice, because, Some(sources::KERNEL_HUGETLB)));
        }
    }
}

/// Facts the plan had to do without.
pub(crate) fn assumptions(host: &Host, guests: &[GuestRequest], occupied: &Occupied) -> Vec<String> {
    let mut assumptions = Vec::new();
    for node in host.nodes.iter().filter(|node| node.memory_free.is_none() && !node.cpus.is_empty()) {
        assumptions.push(format!("node {} does not say how much memory is free: taken as enough", node.index));
    }
    for guest in guests.iter().filter(|guest| guest.class != WorkloadClass::Density) {
        for address in &guest.passthrough {
            let known = host.pci_devices.iter().find(|device| device.address == *address);
            let problem = match known {
                None => "is not on this host",
                Some(device) if device.node.is_none() => "has no node according to the firmware",
                Some(_) => continue,
            };
            assumptions.push(format!(
                "{}: PCI function {address} {problem}: it had no say in the choice of the node",
                guest.name
            ));
        }
    }
    for problem in &occupied.unread {
        assumptions
            .push(format!("pages not readable, so memory that comes back when it restarts is not counted: {problem}"));
    }
    if !occupied.floating.is_empty() {
        assumptions.push(format!("{} run without pins and may use any PU of this plan", occupied.floating.join(", ")));
    }
    assumptions
}
