//! The planner itself: vCPUs and memory of every guest first, then their helper threads, then their disks.

use nearmetal_host::Host;
use nearmetal_units::{CpuSet, PageSize};

use crate::anchor::{self, Anchor};
use crate::distances::Distances;
use crate::helpers::Found;
use crate::measured::MeasuredGuest;
use crate::memory::Memory;
use crate::occupied::Occupied;
use crate::plan::{Blocker, MemoryPlacement, NetworkBackend, NetworkPlacement, Placement, Plan, VcpuPin};
use crate::policy::{HelperOn, InterfaceQueues, PinTo, Policy, Polling, Siblings};
use crate::processors::{Level, Processors};
use crate::report::{NodeReport, PlanReport, Planned};
use crate::request::{GuestRequest, WorkloadClass};
use crate::slice::{self, Slice};
use crate::versions::no_shared_queues;
use crate::{blockers, cells, disks, helpers, reasons};

/// A guest on its way through the planner.
struct Draft<'a> {
    guest: &'a GuestRequest,
    anchor: Option<Anchor>,
    outcome: Outcome,
}

enum Outcome {
    Floating,
    Placed(Slice),
    Blocked(Blocker),
}

/// Places guests on one host. Pure: the same arguments give the same plan.
///
/// Guests whose devices are handed through choose first, then those with other devices, then the rest, each group in
/// the order asked: a guest without devices has no reason to be on a particular node. Placements and refusals come out
/// in the order asked.
pub fn plan(host: &Host, occupied: &Occupied, guests: &[GuestRequest], policy: &Policy) -> Planned {
    plan_tuned(host, occupied, guests, policy, &[])
}

/// The same, with what was measured of some guests as a whole: their choices go before the policy's. Their disks are chosen
/// afterwards, by [`crate::use_measured`].
pub fn plan_tuned(
    host: &Host,
    occupied: &Occupied,
    guests: &[GuestRequest],
    policy: &Policy,
    tuned: &[MeasuredGuest],
) -> Planned {
    let own = |guest: &GuestRequest| {
        let choices = tuned.iter().find(|one| one.guest == guest.name).map(|one| one.choices);
        choices.map_or_else(|| policy.clone(), |choices| choices.policy(policy))
    };
    let before = (Processors::new(host, occupied, policy), Memory::new(host, occupied, policy));
    let (mut processors, mut memory) = before.clone();
    let distances = Distances::new(host);
    let mut drafts = draft(host, guests);
    let mut order: Vec<usize> = (0..drafts.len()).collect();
    order.sort_by_key(|index| match &drafts[*index].anchor {
        Some(anchor) if anchor.passthrough => 0,
        Some(_) => 1,
        None => 2,
    });
    for index in order {
        let draft = &mut drafts[index];
        if !matches!(draft.outcome, Outcome::Floating) || draft.guest.class == WorkloadClass::Density {
            continue;
        }
        let anchor = draft.anchor.as_ref().map(|anchor| anchor.node);
        draft.outcome = match slice::find(&distances, &processors, &memory, &own(draft.guest), draft.guest, anchor) {
            Some(slice) => {
                slice.cpus.iter().for_each(|cpu| {
                    processors.vcpus.insert(*cpu);
                });
                if own(draft.guest).siblings == Siblings::Spare {
                    processors.idle = processors.idle.union(&processors.siblings(&slice.cpus));
                }
                memory.take(&slice.memory, slice.page_size.unwrap_or(PageSize::SMALL));
                Outcome::Placed(slice)
            }
            None => Outcome::Blocked(blockers::no_room(
                &processors,
                &memory,
                occupied,
                &own(draft.guest),
                draft.guest,
                anchor,
            )),
        };
    }
    let mut plan = Plan::default();
    for draft in &drafts {
        match &draft.outcome {
            Outcome::Floating => plan.placements.push(floating(draft.guest)),
            Outcome::Blocked(blocker) => plan.blocked.push(blocker.clone()),
            Outcome::Placed(slice) => {
                let placement = place(
                    host,
                    &distances,
                    &mut processors,
                    &own(draft.guest),
                    draft.guest,
                    draft.anchor.as_ref(),
                    slice,
                );
                plan.placements.push(placement);
            }
        }
    }
    for draft in &drafts {
        let (Outcome::Placed(slice), policy) = (&draft.outcome, own(draft.guest)) else { continue };
        let placement = plan.placements.iter_mut().find(|placement| placement.guest == draft.guest.name);
        placement.into_iter().for_each(|placement| share_nodes(placement, slice, &processors, &policy));
    }
    plan.pools = memory.pool_changes();
    reasons::add_pools(&mut plan);
    let report = PlanReport {
        nodes: NodeReport::of((&before.0, &before.1), (&processors, &memory)),
        housekeeping: processors.housekeeping.clone(),
        neighbours: neighbours(occupied, &plan),
        assumptions: reasons::assumptions(host, guests, occupied),
    };
    Planned { plan, report }
}

/// Places guests of which some run already. What these own comes free when they start again, and only then: one that is
/// refused goes on as it is, so the others are placed anew around it, until none has what another keeps. `refuse` takes
/// those out of a plan that something else keeps from starting.
///
/// A guest that does not run may come first and then not fit beside one that it has driven out: without it there may be a
/// place for more.
pub fn plan_running(
    host: &Host,
    guests: &[GuestRequest],
    policy: &Policy,
    tuned: &[MeasuredGuest],
    refuse: impl Fn(&mut Plan),
) -> Planned {
    let place = |name: &str| guests.iter().position(|guest| guest.name == name);
    let mut planned = around_those_that_stay(host, guests, policy, tuned, &refuse);
    let is_new = |blocker: &&Blocker| guests.iter().any(|own| own.name == blocker.guest && !runs(host, own));
    let left_out: Vec<Blocker> = planned.plan.blocked.iter().filter(is_new).cloned().collect();
    if !left_out.is_empty() && left_out.len() < planned.plan.blocked.len() {
        let is_left = |guest: &&GuestRequest| !left_out.iter().any(|blocker| blocker.guest == guest.name);
        let others: Vec<GuestRequest> = guests.iter().filter(is_left).cloned().collect();
        let without = around_those_that_stay(host, &others, policy, tuned, &refuse);
        if without.plan.placements.len() > planned.plan.placements.len() {
            planned = without;
            planned.plan.blocked.extend(left_out);
        }
    }
    planned.plan.blocked.sort_by_key(|blocker| place(&blocker.guest));
    planned
}

fn runs(host: &Host, guest: &GuestRequest) -> bool {
    host.guests.iter().any(|process| process.uuid.as_deref() == Some(guest.uuid.as_str()))
}

fn around_those_that_stay(
    host: &Host,
    guests: &[GuestRequest],
    policy: &Policy,
    tuned: &[MeasuredGuest],
    refuse: &impl Fn(&mut Plan),
) -> Planned {
    let mut asked = guests.to_vec();
    let mut refused: Vec<Blocker> = Vec::new();
    loop {
        let mut planned = plan_tuned(host, &Occupied::around(host, &asked), &asked, policy, tuned);
        refuse(&mut planned.plan);
        let is_placed = |guest: &GuestRequest| planned.plan.placements.iter().any(|own| own.uuid == guest.uuid);
        let (staying, others): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|guest| runs(host, guest) && !is_placed(guest));
        if staying.is_empty() {
            planned.plan.blocked.extend(refused);
            return planned;
        }
        let stays = |blocker: &Blocker| staying.iter().any(|guest| guest.name == blocker.guest);
        refused.extend(planned.plan.blocked.into_iter().filter(stays));
        asked = others;
    }
}

/// Guests that can be refused before anything is placed are.
fn draft<'a>(host: &Host, guests: &'a [GuestRequest]) -> Vec<Draft<'a>> {
    let of_guest = |(index, guest): (usize, &'a GuestRequest)| Draft {
        guest,
        anchor: anchor::of(host, guest),
        outcome: match blockers::unfit(guest, &guests[..index], host) {
            Some(blocker) => Outcome::Blocked(blocker),
            None => Outcome::Floating,
        },
    };
    guests.iter().enumerate().map(of_guest).collect()
}

/// A placement that pins nothing.
fn floating(guest: &GuestRequest) -> Placement {
    Placement {
        guest: guest.name.clone(),
        uuid: guest.uuid.clone(),
        vcpus: Vec::new(),
        emulator: CpuSet::new(),
        iothreads: Vec::new(),
        memory: MemoryPlacement { nodes: Default::default(), page_size: None, pages: 0 },
        disks: Vec::new(),
        networks: Vec::new(),
        cells: Vec::new(),
        devices: Vec::new(),
        vhost: Vec::new(),
        interrupts: CpuSet::new(),
        threads_per_core: None,
        guest_polls: None,
        reasons: vec![reasons::floating(guest)],
    }
}

/// Finds the helper threads' PUs and the disks' options of a guest whose vCPUs are placed.
fn place(
    host: &Host,
    distances: &Distances,
    processors: &mut Processors,
    policy: &Policy,
    guest: &GuestRequest,
    anchor: Option<&Anchor>,
    slice: &Slice,
) -> Placement {
    let wanted = if disks::wants_iothread(guest) { policy.iothreads } else { 0 };
    let find = |iothreads: u32| helpers::find(distances, processors, slice, iothreads as usize);
    let cannot_share = no_shared_queues(&host.system).filter(|_| policy.share_queues && wanted > 1);
    let first = if cannot_share.is_some() { 1 } else { wanted };
    let (mut iothreads, mut helpers) = (first, find(first));
    // Two that share a PU would only take it from each other.
    while policy.share_queues && iothreads > 1 && !helpers.are_apart() {
        iothreads -= 1;
        helpers = find(iothreads);
    }
    let (disks, why_disks) = disks::disk_placements(host, policy, guest, iothreads);
    let cells = cells::of(distances, processors, guest, slice);
    let mut reasons = reasons::of(distances, policy, guest, anchor, slice, &cells, &helpers);
    if iothreads < wanted {
        reasons.push(reasons::fewer_iothreads(iothreads, wanted, cannot_share));
    }
    reasons.extend(why_disks);
    // A vCPU that shares its PU would poll in the time of another, or of the thread that it waits for.
    let is_alone = policy.pins == PinTo::Pu && slice.level != Level::Helpers && helpers.found != Found::SharedWithVcpus;
    let guest_polls = match policy.polling {
        Polling::Keep => None,
        Polling::Host => Some(false),
        Polling::Guest => Some(is_alone),
    };
    if let Some(guest_polls) = guest_polls {
        reasons.push(reasons::polling(guest_polls, is_alone));
    }
    let networks = interface_queues(guest, policy);
    reasons.extend(networks.iter().map(|own| reasons::interface_queues(policy, own)));
    let used = helpers.iothreads.iter().fold(helpers.emulator.clone(), |all, set| all.union(set));
    processors.helpers = processors.helpers.union(&used);
    processors.idle = processors.idle.difference(&used);
    let vhost = match guest.networks.iter().any(|network| network.uses_vhost) {
        true => helpers::spare(processors, slice, policy.vhost_pus as usize),
        false => Vec::new(),
    };
    if policy.vhost_pus > 0 {
        reasons.push(reasons::vhost(guest, &vhost));
    }
    let own: CpuSet = vhost.iter().copied().collect();
    processors.helpers = processors.helpers.union(&own);
    // Beside the vCPUs and never on their PUs, whoever else is there.
    let vcpus: CpuSet = slice.cpus.iter().copied().collect();
    let interrupts = match policy.place_interrupts && !guest.passthrough.is_empty() {
        true => helpers.emulator.difference(&vcpus),
        false => CpuSet::new(),
    };
    if !interrupts.is_empty() {
        reasons.push(reasons::interrupts(&interrupts));
    }
    Placement {
        guest: guest.name.clone(),
        uuid: guest.uuid.clone(),
        vcpus: (0u32..).zip(&slice.cpus).map(|(vcpu, cpu)| VcpuPin { vcpu, cpus: CpuSet::one(*cpu) }).collect(),
        // vhost workers can be pinned only inside the emulator thread's cpuset.
        emulator: helpers.emulator.union(&own),
        iothreads: helpers.iothreads,
        memory: MemoryPlacement {
            nodes: slice.memory.iter().map(|(node, _)| *node).collect(),
            page_size: slice.page_size,
            pages: slice.page_size.map_or(0, |size| guest.memory.pages(size)),
        },
        disks,
        // The rules leave interfaces as they are; what was measured in a race of networks comes in afterwards.
        networks,
        cells,
        // This planner gives guests no devices.
        devices: Vec::new(),
        vhost: vhost.into_iter().map(CpuSet::one).collect(),
        interrupts,
        // Two vCPUs on two cores are no threads of one.
        guest_polls,
        threads_per_core: (policy.siblings == Siblings::Spare && guest.shows.threads > 1).then_some(1),
        reasons,
    }
}

/// Interfaces whose number of queues the policy decides: those that vhost-net carries.
fn interface_queues(guest: &GuestRequest, policy: &Policy) -> Vec<NetworkPlacement> {
    let queues = match policy.interface_queues {
        InterfaceQueues::Keep => return Vec::new(),
        InterfaceQueues::One => 1,
        InterfaceQueues::EachVcpu => guest.vcpus.min(policy.max_queues).max(1),
    };
    let of = |mac: &str| {
        let (backend, offloads_off) = (NetworkBackend::Vhost, false);
        mac.parse().ok().map(|mac| NetworkPlacement { mac, backend, queues, offloads_off })
    };
    guest.networks.iter().filter(|network| network.uses_vhost).filter_map(|network| of(&network.mac)).collect()
}

/// Lets threads run on each PU of their nodes that is free once all guests and their helper threads are placed: vCPUs, the
/// emulator thread and iothreads, as the policy has it.
fn share_nodes(placement: &mut Placement, slice: &Slice, processors: &Processors, policy: &Policy) {
    let free = |node: u32| match policy.siblings {
        Siblings::Use => processors.free(node, Level::Free),
        Siblings::Spare => processors.free(node, Level::Free).intersection(&processors.first_of_cores(node)),
    };
    let of_all = slice.cpu_nodes.iter().fold(CpuSet::new(), |all, node| all.union(&free(*node)));
    // Where nothing is free, what was said of its PU still holds.
    if policy.emulator == HelperOn::Node && !of_all.is_empty() {
        placement.emulator = placement.emulator.union(&of_all);
        reasons::replace(placement, "emulator", reasons::emulator_on_node);
    }
    if policy.iothread_on == HelperOn::Node && !of_all.is_empty() && !placement.iothreads.is_empty() {
        placement.iothreads.iter_mut().for_each(|own| *own = own.union(&of_all));
        reasons::replace(placement, "iothread", reasons::iothreads_on_node);
    }
    if policy.pins == PinTo::Node {
        let pinned: CpuSet = slice.cpus.iter().copied().collect();
        for pin in &mut placement.vcpus {
            // A vCPU of a cell stays on the node that the guest was told of.
            let cell = placement.cells.iter().find(|cell| cell.vcpus.contains(pin.vcpu));
            pin.cpus = match cell {
                Some(cell) => processors.all(cell.node).intersection(&pinned).union(&free(cell.node)),
                None => pinned.union(&of_all),
            };
        }
        reasons::replace(placement, "vcpu pins", |own| reasons::pinned_to_node(policy, own));
    }
}

fn neighbours(occupied: &Occupied, plan: &Plan) -> Vec<String> {
    let planned = plan.placements.iter().filter(|placement| placement.is_floating());
    occupied.floating.iter().cloned().chain(planned.map(|placement| placement.guest.clone())).collect()
}
