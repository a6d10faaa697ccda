//! A plan written by hand, with every kind of thing a plan can say: what the planner does today is not its concern.

use super::*;
use nearmetal_units::PciAddress;

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn cell(node: u32, pus: &[u32], idle: &[u32], memory: u64) -> CellPlacement {
    CellPlacement { node, vcpus: pus.len() as u32, pus: pus.to_vec(), idle: idle.to_vec(), memory: gib(memory) }
}

fn placement(vm: &str, host: &str, cells: Vec<CellPlacement>) -> VmPlacement {
    let reason = format!("node {} holds all its vCPUs and memory", cells[0].node);
    VmPlacement {
        vm: vm.to_owned(),
        host: host.to_owned(),
        cells,
        helpers: "0-1".parse().unwrap(),
        page_size: None,
        devices: Vec::new(),
        floating: None,
        reasons: vec![reason],
        second_best: None,
    }
}

/// Two hosts of four nodes of 4 PUs and the plan for eight VMs, six of which get a place.
pub(crate) fn told() -> Invented {
    let machine = || {
        Synthetic::new()
            .packages(2)
            .nodes_per_package(2)
            .cores_per_node(2)
            .threads(2)
            .memory_per_node(gib(16))
            .pool(PageSize::HUGE_1G, 4)
            .pool(PageSize::HUGE_2M, 0)
            .network(1, 7, 3)
            .nvme(2)
    };
    let mut other = machine().guest(guest("billing", 3, 6, "12-13")).build();
    other.nodes[3].memory_free = other.nodes[3].memory_free.map(|free| free.less(gib(6)));
    let hosts: Vec<(Host, Ledger)> =
        [other, machine().build()].map(|host| (host.clone(), ledger::of(&host, &[]))).into();
    let reserve = Reserve { memory_per_node: Some(gib(1)), ..Reserve::default() };
    let own = |name: &str, at: usize| FleetHost::of(name, &hosts[at].0, &hosts[at].1, &reserve);
    let mut vms = vec![
        vm("web", 4, 6),
        vm("database", 4, 4),
        vm("trading", 2, 4),
        vm("batch", 6, 3),
        vm("lonely", 1, 2),
        vm("crowd", 4, 2),
        vm("archive", 2, 24),
        vm("render", 9, 8),
    ];
    vms[0].devices = vec![
        vf(None, Locality::Required),
        DeviceDemand {
            selector: DeviceSelector::Shared { name: "nvme0n1".to_owned() },
            count: 1,
            locality: Locality::Preferred,
        },
    ];
    vms[1].page_size = Some(PageSize::HUGE_1G);
    vms[2].page_size = Some(PageSize::HUGE_2M);
    let supply = |kind: &str| {
        let own = own("alpha", 0);
        let wanted = |device: &DeviceSupply| match &device.kind {
            DeviceKind::VirtualFunctions { .. } => kind == "vf",
            DeviceKind::Shared { name } => name == kind,
            DeviceKind::Function { .. } => false,
        };
        own.devices.iter().position(wanted).unwrap() as u32
    };
    let mut web = placement("web", "alpha", vec![cell(1, &[4, 5, 6, 7], &[], 6)]);
    web.reasons.push("not all its devices are on its nodes: they are on node 1, node 2".to_owned());
    web.second_best =
        Some(RunnerUp { host: "beta".to_owned(), nodes: vec![1], cost: "one host more in use".to_owned() });
    web.devices = vec![
        DeviceGrant {
            demand: 0,
            selector: vms[0].devices[0].selector.clone(),
            supply: supply("vf"),
            count: 1,
            functions: vec![address("0000:01:00.1")],
            node: Some(1),
        },
        DeviceGrant {
            demand: 1,
            selector: vms[0].devices[1].selector.clone(),
            supply: supply("nvme0n1"),
            count: 1,
            functions: Vec::new(),
            node: Some(2),
        },
    ];
    let mut database = placement("database", "beta", vec![cell(3, &[12, 13, 14, 15], &[], 4)]);
    database.page_size = Some(PageSize::HUGE_1G);
    vms[1].current = Some(VmPlacement { cells: vec![cell(2, &[8, 9, 10, 11], &[], 4)], ..database.clone() });
    vms[1].movable = true;
    let mut trading = placement("trading", "alpha", vec![cell(2, &[8, 10], &[9, 11], 4)]);
    trading.page_size = Some(PageSize::HUGE_2M);
    trading.second_best =
        Some(RunnerUp { host: "beta".to_owned(), nodes: vec![0, 1], cost: "1 nodes more".to_owned() });
    let float = |name: &str, node: u32, vcpus: u32, memory: u64, why: Floating| {
        let mut placed = placement(name, "beta", vec![CellPlacement { vcpus, ..cell(node, &[], &[], memory) }]);
        placed.floating = Some(why);
        placed.reasons.push(why.reason().to_owned());
        placed
    };
    let batch = float("batch", 0, 6, 3, Floating::Overcommitted);
    let crowd = float("crowd", 0, 4, 2, Floating::Density);
    let mut lonely = float("lonely", 1, 1, 2, Floating::AloneAndSmall);
    lonely.cells[0].pus = vec![4];
    let left = |host: &str, node: u32, pus: u32, free_pus: u32, memory: u64, pages: u64, stranded: Option<&str>| {
        Fragmentation {
            host: host.to_owned(),
            node,
            pus,
            free_pus,
            free_cores: free_pus / 2,
            largest_l3: free_pus,
            free_memory: gib(memory),
            free_pages: vec![(PageSize::HUGE_2M, 0), (PageSize::HUGE_1G, pages)],
            stranded: stranded.map(str::to_owned),
        }
    };
    let objective = Objective {
        levels: vec![
            LevelValue { level: LevelId::Unplaced { priority: 0 }, value: 11, bound: 11, of: Some(32) },
            LevelValue { level: LevelId::ExtraNodes, value: 0, bound: 0, of: None },
            LevelValue { level: LevelId::RemoteMemory, value: 0, bound: 0, of: None },
            LevelValue { level: LevelId::RemoteDevices, value: 2, bound: 0, of: None },
            LevelValue { level: LevelId::Hosts, value: 2, bound: 2, of: None },
            LevelValue { level: LevelId::BrokenNodes, value: 5, bound: 4, of: None },
            LevelValue { level: LevelId::SharedCores, value: 0, bound: 0, of: None },
            LevelValue { level: LevelId::ExtraL3, value: 0, bound: 0, of: None },
        ],
    };
    let plan = FleetPlan {
        placements: vec![web, database, trading, batch, lonely, crowd],
        refusals: vec![
            Refusal {
                vm: "archive".to_owned(),
                reason: "no host has room for it; `alpha` comes nearest".to_owned(),
                remedy: Some(Remedy {
                    host: "alpha".to_owned(),
                    change: "8 GiB more free memory on node 0".to_owned(),
                }),
            },
            Refusal {
                vm: "render".to_owned(),
                reason: "no host has room for it, and on none is a single thing missing".to_owned(),
                remedy: None,
            },
        ],
        pools: vec![HostChange { host: "alpha".to_owned(), node: 2, size: PageSize::HUGE_2M, add: 2048 }],
        headline: objective.headline(),
        objective,
        fragmentation: vec![
            left("alpha", 0, 2, 2, 11, 4, None),
            left("alpha", 1, 4, 0, 5, 4, Some("5 GiB of memory but no PU")),
            left("alpha", 2, 4, 0, 7, 4, Some("7 GiB of memory but no PU")),
            left("alpha", 3, 2, 2, 5, 4, None),
            left("beta", 0, 2, 0, 6, 4, Some("6 GiB of memory but no PU")),
            left("beta", 1, 4, 3, 9, 4, None),
            left("beta", 2, 4, 4, 11, 4, None),
            left("beta", 3, 4, 0, 11, 0, Some("11 GiB of memory but no PU")),
        ],
        search: SearchRecord { seed: 7, steps: 20_000, done: 1234, stopped_early: true },
        assumptions: vec!["alpha: not known: open devices of billing".to_owned()],
    };
    let fleet = Fleet { vms, hosts: vec![own("alpha", 0), own("beta", 1)], ..Fleet::default() };
    Invented { fleet, plan, hosts }
}

/// The same fleet without the host `beta`: three VMs lose their place, one moves.
pub(crate) fn told_without_beta() -> Invented {
    let mut changed = told();
    changed.fleet.hosts.pop();
    changed.hosts.pop();
    changed.fleet.vms[1].current = None;
    let plan = &mut changed.plan;
    plan.placements.retain(|placement| ["web", "trading", "database"].contains(&placement.vm.as_str()));
    plan.placements[1].host = "alpha".to_owned();
    plan.placements[1].cells = vec![cell(0, &[2, 3], &[], 2), cell(3, &[14, 15], &[], 2)];
    for vm in ["crowd", "lonely", "batch"] {
        let reason = "no host has room for it; `alpha` comes nearest".to_owned();
        let change = "room for 2 more shared vCPUs on node 0".to_owned();
        let remedy = Some(Remedy { host: "alpha".to_owned(), change }).filter(|_| vm != "lonely");
        plan.refusals.insert(0, Refusal { vm: vm.to_owned(), reason, remedy });
    }
    plan.fragmentation.retain(|left| left.host == "alpha");
    plan.objective.levels[0] = LevelValue { value: 22, bound: 20, ..plan.objective.levels[0] };
    plan.objective.levels[1] = LevelValue { value: 1, bound: 1, ..plan.objective.levels[1] };
    plan.objective.levels[4] = LevelValue { value: 1, bound: 1, ..plan.objective.levels[4] };
    plan.headline = plan.objective.headline();
    changed
}
