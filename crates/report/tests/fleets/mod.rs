//! Fleets nobody owns, planned without a clock: the same every time.
#![allow(dead_code, reason = "each user takes what it needs")]
#![allow(clippy::unwrap_used)] // a fixture that cannot be made is a failed test

#[path = "told.rs"]
mod told;

#[allow(unused_imports, reason = "each user takes what it needs")]
pub(crate) use told::{told, told_without_beta};

use nearmetal_fleet::*;
use nearmetal_host::ledger::{self, Ledger};
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_host::{GuestProcess, Host, Residency, Thread, ThreadRole};
use nearmetal_report::fleet::{FleetReport, HostPicture};
use nearmetal_units::{Bytes, PageSize};

/// A fleet, its plan, and hosts to draw.
pub(crate) struct Invented {
    pub(crate) fleet: Fleet,
    pub(crate) plan: FleetPlan,
    pub(crate) hosts: Vec<(Host, Ledger)>,
}

impl Invented {
    /// Plans the fleet with so many steps.
    pub(crate) fn new(fleet: Fleet, hosts: Vec<(Host, Ledger)>, steps: u64) -> Self {
        let options = Options { seed: 7, steps, budget: None, arrival: Arrival::Batch };
        let plan = plan(&fleet, &options).unwrap();
        assert_eq!(check(&fleet, &plan), [], "the plan itself is sound");
        Self { fleet, plan, hosts }
    }

    pub(crate) fn pictures(&self) -> Vec<HostPicture<'_>> {
        let hosts = self.fleet.hosts.iter().zip(&self.hosts);
        hosts.map(|(own, (host, ledger))| HostPicture::new(&own.name, host, ledger)).collect()
    }

    pub(crate) fn report(&self) -> FleetReport<'_> {
        FleetReport::new(&self.fleet, &self.plan, &self.pictures())
    }
}

pub(crate) fn gib(gib: u64) -> Bytes {
    Bytes::from_mib(gib << 10)
}

pub(crate) fn vm(name: impl Into<String>, vcpus: u32, memory: u64) -> Vm {
    Vm::new(name, vcpus, gib(memory))
}

pub(crate) fn vf(of: Option<&str>, locality: Locality) -> DeviceDemand {
    let selector = DeviceSelector::VirtualFunction { of: of.map(str::to_owned) };
    DeviceDemand { selector, count: 1, locality }
}

/// A guest with its vCPUs bound to `cpus` and its memory on `node`.
pub(crate) fn guest(name: &str, node: u32, memory: u64, cpus: &str) -> GuestProcess {
    let thread =
        |id, role| Thread { id, name: String::new(), role, affinity: Some(cpus.parse().unwrap()), scheduling: None };
    GuestProcess {
        pid: 4100,
        name: Some(name.to_owned()),
        memory: Some(gib(memory)),
        threads: vec![thread(4100, ThreadRole::Emulator), thread(4101, ThreadRole::Vcpu(0))],
        residency: vec![Residency {
            start: 0,
            page_size: PageSize::HUGE_2M,
            length: gib(memory),
            guest_memory: true,
            pages: vec![(node, memory * 512)],
            policy: format!("bind:{node}"),
            file: None,
        }],
        ..GuestProcess::default()
    }
}

/// Two hosts of two packages, four nodes and 16 PUs; one runs a guest of somebody else, one a VM of the fleet. Six VMs:
/// one finds no place, one is better left floating.
pub(crate) fn two_hosts() -> Invented {
    let machine = || {
        Synthetic::new()
            .packages(2)
            .nodes_per_package(2)
            .cores_per_node(2)
            .threads(2)
            .memory_per_node(gib(16))
            .pool(PageSize::HUGE_1G, 4)
            .network(1, 7, 3)
            .nvme(2)
    };
    let mut other = machine().guest(guest("billing", 3, 6, "12-13")).build();
    other.nodes[3].memory_free = other.nodes[3].memory_free.map(|free| free.less(gib(6)));
    let hosts: Vec<(Host, Ledger)> =
        [other, machine().build()].map(|host| (host.clone(), ledger::of(&host, &[]))).into();
    let reserve = Reserve { memory_per_node: Some(Bytes::from_mib(1024)), ..Reserve::default() };
    let own = |name: &str, at: usize| FleetHost::of(name, &hosts[at].0, &hosts[at].1, &reserve);
    let fleet_hosts = vec![own("alpha", 0), own("beta", 1)];
    let mut web = vm("web", 4, 6);
    web.devices = vec![vf(None, Locality::Required)];
    let mut database = vm("database", 4, 4);
    database.page_size = Some(PageSize::HUGE_1G);
    database.smt = SmtPolicy::Require;
    let mut trading = vm("trading", 2, 4);
    trading.smt = SmtPolicy::Isolate;
    let mut batch = vm("batch", 6, 3);
    batch.cpus = CpuSharing::Shared { ratio_percent: 300 };
    let wide = vm("analytics", 7, 14);
    let mut huge = vm("archive", 2, 24);
    huge.page_size = Some(PageSize::HUGE_1G);
    let mut fleet =
        Fleet { vms: vec![web, database, trading, batch, wide, huge], hosts: fleet_hosts, ..Fleet::default() };
    // The database runs already, on a node it may leave.
    let place = VmPlacement {
        vm: "database".to_owned(),
        host: "beta".to_owned(),
        cells: vec![CellPlacement { node: 3, vcpus: 4, pus: vec![12, 13, 14, 15], idle: vec![], memory: gib(4) }],
        helpers: "0-1".parse().unwrap(),
        page_size: Some(PageSize::HUGE_1G),
        devices: vec![],
        floating: None,
        reasons: vec![],
        second_best: None,
    };
    fleet.vms[1].current = Some(place);
    Invented::new(fleet, hosts, 200)
}

/// One host of 256 PUs as an EPYC of two packages in NPS4 has them, and 32 VMs.
pub(crate) fn epyc() -> Invented {
    let host = Synthetic::new()
        .packages(2)
        .nodes_per_package(4)
        .caches_per_node(2)
        .cores_per_node(16)
        .threads(2)
        .numbering(Numbering::Split)
        .memory_per_node(gib(128))
        .pool(PageSize::HUGE_1G, 64)
        .network(1, 63, 16)
        .network(6, 63, 16)
        .nvme(3)
        .nvme(5)
        .build();
    of_one("epyc-01", host, 32)
}

/// 32 VMs of several kinds on one host.
pub(crate) fn of_one(name: &str, host: Host, vms: u32) -> Invented {
    let ledger = ledger::of(&host, &[]);
    let own = FleetHost::of(name, &host, &ledger, &Reserve::default());
    let has_vfs = own.devices.iter().any(|device| matches!(device.kind, DeviceKind::VirtualFunctions { .. }));
    let has_pages = own.nodes.iter().any(|node| node.pools.iter().any(|pool| pool.size == PageSize::HUGE_1G));
    let least = own.nodes.iter().map(|node| node.memory).max().unwrap_or_default().get() >> 30;
    let kinds = |number: u32| {
        let mut one = match number % 8 {
            0 => vm(format!("web-{number:02}"), 4, 8),
            1 => vm(format!("db-{number:02}"), 8, 24),
            2 => vm(format!("cache-{number:02}"), 4, 16),
            3 => vm(format!("rt-{number:02}"), 2, 4),
            4 => vm(format!("ci-{number:02}"), 16, 16),
            5 => vm(format!("win-{number:02}"), 6, 12),
            6 => vm(format!("desk-{number:02}"), 8, 4),
            _ => vm(format!("app-{number:02}"), 4, 8),
        };
        one.memory = one.memory.min(gib((least / 4).max(1)));
        match number % 8 {
            0 if has_vfs => one.devices = vec![vf(None, Locality::Preferred)],
            1 if has_pages => one.page_size = Some(PageSize::HUGE_1G),
            3 => one.smt = SmtPolicy::Isolate,
            6 => one.cpus = CpuSharing::Shared { ratio_percent: 400 },
            _ => {}
        }
        one
    };
    let fleet = Fleet { vms: (0..vms).map(kinds).collect(), hosts: vec![own], ..Fleet::default() };
    Invented::new(fleet, vec![(host, ledger)], 300)
}

/// Twelve hosts of two nodes of 32 PUs: many of them get the same.
pub(crate) fn twelve_hosts() -> Invented {
    let machine = Synthetic::new()
        .packages(2)
        .cores_per_node(16)
        .threads(2)
        .numbering(Numbering::Split)
        .memory_per_node(gib(128))
        .network(0, 31, 8)
        .build();
    let ledger = ledger::of(&machine, &[]);
    let hosts: Vec<FleetHost> =
        (1..=12).map(|at| FleetHost::of(format!("kvm{at:02}"), &machine, &ledger, &Reserve::default())).collect();
    let mut vms: Vec<Vm> = (0..40).map(|number| vm(format!("shop-{number:02}"), 12, 32)).collect();
    vms.extend((0..16).map(|number| vm(format!("small-{number:02}"), 4, 12)));
    vms.extend((0..3).map(|number| vm(format!("large-{number}"), 48, 160)));
    vms[0].devices = vec![vf(None, Locality::Required)];
    let fleet = Fleet { vms, hosts, ..Fleet::default() };
    Invented::new(fleet, vec![(machine, ledger); 12], 200)
}

/// Many hosts of two nodes of 16 PUs, without pictures, and more VMs than fit.
pub(crate) fn many(hosts: u32, vms: u32) -> Invented {
    let node = |index: u32| NodeSupply {
        index,
        package: Some(index),
        cores: (0..8)
            .map(|core| {
                let first = index * 16 + core * 2;
                CoreSupply { free: vec![first, first + 1], threads: 2, l3: index * 16, ..CoreSupply::default() }
            })
            .collect(),
        memory: gib(64),
        ..NodeSupply::default()
    };
    let host = |at: u32| FleetHost {
        name: format!("rack{:02}-{:02}", at / 40, at % 40),
        nodes: vec![node(0), node(1)],
        distances: vec![vec![10, 21], vec![21, 10]],
        ..FleetHost::default()
    };
    let kind = |number: u32| match number % 4 {
        0 => vm(format!("vm-{number:05}"), 8, 12),
        1 => vm(format!("vm-{number:05}"), 4, 24),
        2 => vm(format!("vm-{number:05}"), 2, 8),
        _ => vm(format!("vm-{number:05}"), 1, 3),
    };
    let fleet = Fleet { vms: (0..vms).map(kind).collect(), hosts: (0..hosts).map(host).collect(), ..Fleet::default() };
    Invented::new(fleet, Vec::new(), 0)
}
