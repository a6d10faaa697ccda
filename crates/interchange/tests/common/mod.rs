//! Plans that have all there is to export: shared by tests and by `./dev check-exports`.
#![allow(clippy::unwrap_used, reason = "a plan that cannot be made fails the test")]
#![allow(dead_code, reason = "each user needs a part")]

use nearmetal_change::{AnyPlan, FLEET_PLAN_SCHEMA, FleetPlanFile, HostPart, PlanFile, Reach, compose_with_new};
use nearmetal_domain::{DiskBus, ImageFormat, NewDisk, NewDiskSource, NewDomain, NewInterface, NewInterfaceSource};
use nearmetal_fleet::{CoreSupply, Fleet, FleetHost, FleetPlan, NodeSupply, Vm};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_place::{
    CacheMode, DevicePlacement, DiskEngine, DiskPlacement, FunctionKind, GuestCell, MemoryPlacement, NetworkBackend,
    NetworkPlacement, Placement, Plan, PoolChange, VcpuPin,
};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize, VlanId};

/// A set of PUs or nodes.
pub(crate) fn set<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().unwrap()
}

/// A UUID that ends in this number.
pub(crate) fn uuid(number: u32) -> String {
    format!("11111111-2222-3333-4444-{number:012}")
}

/// A guest with a PU for each vCPU, on one node.
pub(crate) fn pinned(name: &str, number: u32, pus: &[u32], emulator: &str, node: u32) -> (NewDomain, Placement) {
    let memory = Bytes::from_mib(4096);
    let mut new = NewDomain::new(name, uuid(number), pus.len() as u32, memory);
    new.disks.push(NewDisk { source: NewDiskSource::Block("/dev/nvme0n1".to_owned()), bus: DiskBus::Virtio });
    let mac = format!("52:54:00:00:00:{number:02x}");
    new.interfaces.push(NewInterface {
        source: NewInterfaceSource::Bridge("br0".to_owned()),
        mac: Some(mac.parse().unwrap()),
        backend: None,
        queues: None,
    });
    let pin = |(vcpu, pu): (u32, &u32)| VcpuPin { vcpu, cpus: CpuSet::one(*pu) };
    let placement = Placement {
        guest: name.to_owned(),
        uuid: uuid(number),
        vcpus: (0..).zip(pus).map(pin).collect(),
        emulator: set(emulator),
        iothreads: vec![set(emulator)],
        memory: MemoryPlacement { nodes: NodeSet::one(node), page_size: Some(PageSize::HUGE_2M), pages: 2048 },
        disks: vec![DiskPlacement {
            target: "vda".to_owned(),
            block_device: None,
            cache: CacheMode::None,
            engine: DiskEngine::Native,
            iothread: Some(1),
            iothreads: None,
            queues: Some(pus.len() as u32),
        }],
        networks: vec![NetworkPlacement {
            mac: mac.parse().unwrap(),
            backend: NetworkBackend::Vhost,
            queues: pus.len() as u32,
            offloads_off: false,
        }],
        cells: vec![],
        devices: vec![],
        vhost: vec![],
        interrupts: CpuSet::new(),
        threads_per_core: None,
        guest_polls: None,
        reasons: vec![],
    };
    (new, placement)
}

/// A guest of two cells, in pages of 1 GiB, with siblings, two iothreads, a virtual function and a whole one.
pub(crate) fn wide(name: &str, number: u32) -> (NewDomain, Placement) {
    let (mut new, mut placement) = pinned(name, number, &[8, 9, 10, 11, 16, 17, 18, 19], "12-13", 1);
    new.memory = Bytes::from_mib(8192);
    new.disks.push(NewDisk {
        source: NewDiskSource::File { path: "/srv/db.qcow2".to_owned(), format: ImageFormat::Qcow2 },
        bus: DiskBus::Virtio,
    });
    placement.iothreads = vec![set("12"), set("13")];
    placement.memory = MemoryPlacement { nodes: set("1-2"), page_size: Some(PageSize::HUGE_1G), pages: 8 };
    placement.disks.push(DiskPlacement {
        target: "vdb".to_owned(),
        block_device: None,
        cache: CacheMode::Writeback,
        engine: DiskEngine::IoUring,
        iothread: Some(2),
        iothreads: None,
        queues: Some(2),
    });
    placement.networks[0].offloads_off = true;
    let cell = |vcpus: &str, node: u32, distances: [u32; 2]| GuestCell {
        vcpus: set(vcpus),
        memory: Bytes::from_mib(4096),
        node,
        distances: distances.to_vec(),
    };
    placement.cells = vec![cell("0-3", 1, [10, 21]), cell("4-7", 2, [21, 10])];
    placement.threads_per_core = Some(2);
    placement.vhost = vec![set("13")];
    placement.interrupts = set("13");
    let kind = FunctionKind::NetworkVirtual {
        mac: Some("52:54:00:aa:00:01".parse().unwrap()),
        vlan: Some(VlanId::try_from(100).unwrap()),
    };
    placement.devices = vec![
        DevicePlacement { function: "0000:41:02.1".parse().unwrap(), kind, cell: Some(0), node: Some(1) },
        DevicePlacement {
            function: "0000:61:00.0".parse().unwrap(),
            kind: FunctionKind::Whole,
            cell: Some(1),
            node: Some(2),
        },
    ];
    (new, placement)
}

/// A guest that floats.
pub(crate) fn floating(name: &str, number: u32) -> (NewDomain, Placement) {
    let (new, mut placement) = pinned(name, number, &[0, 1], "2", 0);
    placement.vcpus.clear();
    placement.emulator = CpuSet::new();
    placement.iothreads.clear();
    placement.memory = MemoryPlacement { nodes: NodeSet::new(), page_size: None, pages: 0 };
    placement.disks.clear();
    placement.networks.clear();
    (new, placement)
}

/// The plan of these guests on a host of this name.
pub(crate) fn plan(host: &str, guests: Vec<(NewDomain, Placement)>) -> PlanFile {
    let mut machine = Synthetic::new().packages(4).cores_per_node(8).memory_per_node(Bytes::from_mib(64 << 10)).build();
    machine.system.hostname = Some(host.to_owned());
    let (new, placements): (Vec<NewDomain>, Vec<Placement>) = guests.into_iter().unzip();
    let pools = vec![PoolChange { node: 1, size: PageSize::HUGE_1G, before: 0, after: 8 }];
    let plan = Plan { placements, pools, blocked: vec![] };
    compose_with_new(&machine, &plan, &[], &new).unwrap()
}

/// The plan of one host with a guest of each kind.
pub(crate) fn host_plan() -> AnyPlan {
    let guests = vec![pinned("web1", 1, &[2, 3, 4, 5], "6", 0), wide("db", 2), floating("tiny", 3)];
    AnyPlan::Host(Box::new(plan("kvm7", guests)))
}

/// Names that somebody chose badly, as far as libvirt takes them.
pub(crate) fn hostile_names() -> Vec<String> {
    let long = "n".repeat(255);
    let names = ["<b>&'\"]]>--", "🦀🔥", "-rf", "$(reboot)`reboot`;reboot", "{{ 7*7 }}", "a b\\c", "..", long.as_str()];
    names.map(str::to_owned).to_vec()
}

/// The plan of one host whose guests have hostile names, each with a PU of its own.
pub(crate) fn hostile_plan() -> AnyPlan {
    let guests = (0u32..).zip(hostile_names());
    let guests = guests.map(|(number, name)| pinned(&name, number + 1, &[number], "31", 0)).collect();
    AnyPlan::Host(Box::new(plan("<host> 'x' \"y\" $(z)", guests)))
}

/// The plan of a fleet of two hosts.
pub(crate) fn fleet_plan() -> AnyPlan {
    let cores = || (0..8).map(|pu| CoreSupply { free: vec![pu], threads: 1, ..CoreSupply::default() }).collect();
    let node = || NodeSupply { cores: cores(), memory: Bytes::from_mib(65536), ..NodeSupply::default() };
    let host = |name: &str| FleetHost { name: name.to_owned(), nodes: vec![node()], ..FleetHost::default() };
    let vms = ["web1", "web2"].map(|name| Vm::new(name, 4, Bytes::from_mib(4096))).to_vec();
    let fleet = Fleet { vms, hosts: vec![host("alpha"), host("beta")], ..Fleet::default() };
    let mut planned: FleetPlan = nearmetal_fleet::plan(&fleet, &nearmetal_fleet::Options::default()).unwrap();
    let mut parts = Vec::new();
    for (number, (host, vm)) in [("alpha", "web1"), ("beta", "web2")].into_iter().enumerate() {
        let placed = planned.placements.iter_mut().find(|placed| placed.vm == vm).unwrap();
        placed.host = host.to_owned();
        let plan = plan(host, vec![pinned(vm, number as u32 + 1, &[2, 3, 4, 5], "6", 0)]);
        let reach = Reach::Ssh { destination: format!("root@{host}"), command: None };
        parts.push(HostPart { name: host.to_owned(), reach, plan });
    }
    AnyPlan::Fleet(Box::new(FleetPlanFile {
        schema: FLEET_PLAN_SCHEMA.to_owned(),
        created: "2026-01-01T00:00:00Z".to_owned(),
        nearmetal: "0.1.0".to_owned(),
        fleet: planned,
        steps: vec![],
        hosts: parts,
    }))
}

/// All of them, by name.
pub(crate) fn plans() -> [(&'static str, AnyPlan); 3] {
    [("host", host_plan()), ("hostile", hostile_plan()), ("fleet", fleet_plan())]
}

/// As JSON.
pub(crate) fn json(plan: &AnyPlan) -> String {
    match plan {
        AnyPlan::Host(plan) => plan.to_json(),
        AnyPlan::Fleet(plan) => plan.to_json(),
    }
}

/// Every host's plan.
pub(crate) fn parts(plan: &AnyPlan) -> Vec<&PlanFile> {
    match plan {
        AnyPlan::Host(plan) => vec![plan],
        AnyPlan::Fleet(plan) => plan.hosts.iter().map(|part| &part.plan).collect(),
    }
}

/// Compares a text with a golden beside the tests; `UPDATE_GOLDENS=1` writes it.
#[allow(clippy::disallowed_methods, reason = "the golden is written where the tests are")]
pub(crate) fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text.len() < 20_000, "{name}: goldens stay under 20 kB");
    assert_eq!(text, golden, "{name}: UPDATE_GOLDENS=1 cargo test -p nearmetal-interchange");
}

/// Everything of an export as one text, for a golden.
pub(crate) fn whole(exported: &nearmetal_interchange::Exported) -> String {
    let mut text: String = exported.files.iter().map(|file| format!("--- {}\n{}", file.path, file.text)).collect();
    text.push_str("--- limits\n");
    exported.limits.iter().for_each(|limit| text.push_str(&format!("{}\n", limit.line())));
    text
}

/// A guest that polls by itself, and whose disk two iothreads share.
pub(crate) fn tuned() -> AnyPlan {
    let (new, mut placement) = pinned("web1", 1, &[1, 2], "3", 0);
    placement.iothreads.push(set("4"));
    (placement.disks[0].iothread, placement.disks[0].iothreads) = (None, Some(2));
    placement.guest_polls = Some(true);
    AnyPlan::Host(Box::new(plan("alpha", vec![(new, placement)])))
}
