//! What an engine cannot express.

use nearmetal_change::AnyPlan;
use nearmetal_place::{NetworkBackend, Placement};
use serde::{Deserialize, Serialize};

use crate::guests::{Guest, Host};
use crate::names::one_line;

/// A part of a plan that is in no file of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Host it is about; `None`: the VM has no host.
    pub host: Option<String>,
    /// VM it is about; `None`: the host.
    pub vm: Option<String>,
    /// What of the plan: `vCPU pins`, `disk vda`, ….
    pub what: String,
    /// What the plan says.
    pub planned: String,
    /// Why the engine cannot say it.
    pub why: String,
    /// What to do by hand.
    pub by_hand: String,
}

impl Limit {
    /// Of a guest.
    pub(crate) fn of(guest: &Guest<'_>, what: &str, planned: impl ToString, why: &str, by_hand: &str) -> Self {
        Self {
            host: Some(guest.host.to_owned()),
            vm: Some(guest.name.to_owned()),
            what: what.to_owned(),
            planned: planned.to_string(),
            why: why.to_owned(),
            by_hand: by_hand.to_owned(),
        }
    }

    /// Of a host.
    pub(crate) fn on(host: &Host<'_>, what: &str, planned: impl ToString, why: &str, by_hand: &str) -> Self {
        Self {
            host: Some(host.name.to_owned()),
            vm: None,
            what: what.to_owned(),
            planned: planned.to_string(),
            why: why.to_owned(),
            by_hand: by_hand.to_owned(),
        }
    }

    /// Of the distances between a guest's cells, if the plan has any: for an engine that tells guests none.
    pub(crate) fn distances(guest: &Guest<'_>, placement: &Placement, engine: &str) -> Option<Self> {
        let has = placement.cells.iter().any(|cell| !cell.distances.is_empty());
        let (why, by_hand) =
            (format!("{engine} tells guests no distances"), "nothing to do: the guest takes all for equal");
        has.then(|| Self::of(guest, "distances of its cells", "", &why, by_hand))
    }

    /// Functions that the plan shows to the guest on a cell of its own, for an engine that shows them on none.
    pub(crate) fn cells_of_functions(guest: &Guest<'_>, placement: &Placement, engine: &str) -> Vec<Self> {
        let why = format!("{engine} shows functions on no guest cell");
        let on = placement.devices.iter().filter_map(|device| Some((device.function, device.cell?)));
        on.map(|(function, cell)| {
            Self::of(guest, &format!("function {function}"), format!("on guest cell {cell}"), &why, "nothing to do")
        })
        .collect()
    }

    /// Interfaces that the plan has QEMU serve, for an engine whose interfaces are always vhost-net's.
    pub(crate) fn served_by_qemu(guest: &Guest<'_>, placement: &Placement, engine: &str) -> Vec<Self> {
        let why = format!("{engine} always serves virtio interfaces by vhost-net");
        let by_qemu = placement.networks.iter().filter(|network| network.backend == NetworkBackend::Qemu);
        by_qemu
            .map(|network| {
                Self::of(guest, &format!("interface {}", network.mac), "served by QEMU", &why, "nothing to do")
            })
            .collect()
    }

    /// A line for people: `kvm7 web1: vCPU pins 0=2 1=3: the reason; what to do`.
    pub fn line(&self) -> String {
        let place = [&self.host, &self.vm].into_iter().flatten().map(|name| one_line(name)).collect::<Vec<_>>();
        let place = if place.is_empty() { String::new() } else { format!("{}: ", place.join(" ")) };
        let planned = if self.planned.is_empty() { String::new() } else { format!(" {}", one_line(&self.planned)) };
        format!("{place}{}{planned}: {}; {}", one_line(&self.what), self.why, self.by_hand)
    }
}

/// Pools of hugepages: why the engine does not make them.
pub(crate) fn pools(host: &Host<'_>, why: &str) -> Vec<Limit> {
    let pool = |pool: &nearmetal_place::PoolChange| {
        let (after, size, node) = (pool.after, pool.size.bytes(), pool.node);
        let file = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages", size.kib());
        let planned = format!("{after} pages of {size} on node {node}");
        let by_hand = format!("after each boot, before its VMs start: write {after} into {file}");
        Limit::on(host, "hugepage pool", planned, why, &by_hand)
    };
    host.plan.plan.pools.iter().map(pool).collect()
}

/// Why most engines make no pages.
pub(crate) const NO_PAGES: &str = "it takes pages that the host has, and makes none";

/// What is in the definition because a rule asks for it.
pub(crate) fn followed(guest: &Guest<'_>, why: &str, by_hand: &str) -> Vec<Limit> {
    let followed = guest.change.followed.iter();
    followed.map(|one| Limit::of(guest, &one.what, format!("{} ({})", one.wanted, one.rule), why, by_hand)).collect()
}

/// Of disks that several iothreads share: an engine gives one to each at most.
pub(crate) fn shared_disks(guest: &Guest<'_>, engine: &str) -> Vec<Limit> {
    let shared = guest.placement.disks.iter().filter_map(|disk| Some((&disk.target, disk.iothreads?)));
    let limit = |(target, count): (&String, u32)| {
        let why = format!("{engine} gives a disk one iothread at most");
        let planned = format!("iothreads 1 to {count} share its queues");
        Limit::of(guest, &format!("disk {target}"), planned, &why, "plan it with --no-measured")
    };
    shared.map(limit).collect()
}

/// Of who polls before a vCPU sleeps, where the plan decides it.
pub(crate) fn polling(guest: &Guest<'_>, engine: &str) -> Option<Limit> {
    let planned = if guest.placement.guest_polls? { "the guest polls" } else { "the host polls" };
    let why = format!("what is written for {engine} says nothing of KVM's hint-dedicated and poll-control");
    Some(Limit::of(guest, "halt polling", planned, &why, "set both in the domain's <features><kvm> by hand"))
}

/// Threads and interrupts that are placed after every start.
pub(crate) fn after_start(guest: &Guest<'_>, why: &str, by_hand: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    if !guest.placement.vhost.is_empty() {
        let sets = guest.placement.vhost.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        limits.push(Limit::of(guest, "vhost workers", format!("on PUs {sets}"), why, by_hand));
    }
    if !guest.placement.interrupts.is_empty() {
        let set = format!("on PUs {}", guest.placement.interrupts);
        limits.push(Limit::of(guest, "interrupts of its functions", set, why, by_hand));
    }
    limits
}

/// Guests without a place, and guests the plan has no definition of.
pub(crate) fn without_place(plan: &AnyPlan) -> Vec<Limit> {
    let limit = |host: Option<&str>, vm: &str, what: &str, why: &str, by_hand: &str| Limit {
        host: host.map(str::to_owned),
        vm: Some(vm.to_owned()),
        what: what.to_owned(),
        planned: String::new(),
        why: why.to_owned(),
        by_hand: by_hand.to_owned(),
    };
    let blocked = |host: Option<&str>, plan: &nearmetal_place::Plan| {
        let blocked = plan.blocked.iter();
        blocked.map(|one| limit(host, &one.guest, "place", &one.problem, &one.remedy)).collect::<Vec<_>>()
    };
    match plan {
        AnyPlan::Host(plan) => blocked(Some(&plan.host.hostname), &plan.plan),
        AnyPlan::Fleet(fleet) => {
            let mut limits = Vec::new();
            for refusal in &fleet.fleet.refusals {
                let by_hand = refusal.remedy.as_ref().map_or_else(
                    || "no single change makes room for it".to_owned(),
                    |remedy| format!("on {}: {}", remedy.host, remedy.change),
                );
                limits.push(limit(None, &refusal.vm, "place", &refusal.reason, &by_hand));
            }
            for planned in &fleet.fleet.placements {
                let part = fleet.hosts.iter().find(|part| part.name == planned.host);
                let is_in = |plan: &nearmetal_change::PlanFile| plan.domains.iter().any(|one| one.name == planned.vm);
                if !part.is_some_and(|part| is_in(&part.plan)) {
                    limits.push(limit(
                        Some(&planned.host),
                        &planned.vm,
                        "place",
                        "the plan leaves it as it is, and so has no definition of it",
                        "plan its host again with `nearmetal plan`, and export that plan",
                    ));
                }
            }
            limits.extend(fleet.hosts.iter().flat_map(|part| blocked(Some(&part.name), &part.plan.plan)));
            limits
        }
    }
}
