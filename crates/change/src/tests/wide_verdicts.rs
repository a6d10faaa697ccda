//! Verdicts on guest cells and on functions handed through: as planned, then one thing broken at a time.

use nearmetal_host::guests::{CommandLine, QemuCell};
use nearmetal_host::{Entry, GuestProcess, HostFs, MemoryTree, Residency};
use nearmetal_hypervisor::{Fake, Hypervisor as _};
use nearmetal_place::{DevicePlacement, FunctionKind, GuestCell, Placement, Plan};
use nearmetal_units::{Bytes, PageSize};

use super::stage::*;
use crate::devices::link::Link;
use crate::devices::{NetworkSettings, Vlan};
use crate::shared::Seen;
use crate::verify::*;

const FUNCTION: &str = "0000:3b:02.0";

fn planned() -> Placement {
    let cell = |vcpus, node, distances: [u32; 2]| GuestCell {
        vcpus: cpus(vcpus),
        memory: Bytes::from_mib(256),
        node,
        distances: distances.to_vec(),
    };
    let device = DevicePlacement {
        function: FUNCTION.parse().unwrap(),
        kind: FunctionKind::NetworkVirtual {
            mac: Some("52:54:00:00:00:01".parse().unwrap()),
            vlan: Some(7.try_into().unwrap()),
        },
        cell: Some(1),
        node: Some(3),
    };
    let mut placement = placement();
    placement.cells = vec![cell("0-1", 2, [10, 21]), cell("2-3", 3, [21, 10])];
    placement.memory.nodes = "2-3".parse().unwrap();
    placement.devices = vec![device];
    placement
}

fn memory(node: u32, file: Option<&str>) -> Residency {
    Residency {
        start: 0x7f00_0000_0000 + u64::from(node),
        page_size: PageSize::HUGE_2M,
        length: Bytes::from_mib(256),
        guest_memory: true,
        pages: vec![(node, 128)],
        policy: format!("bind:{node}"),
        file: file.map(str::to_owned),
    }
}

fn card() -> ObservedCard {
    let row = NetworkSettings {
        mac: Some("52:54:00:00:00:01".to_owned()),
        vlan: Some(Vlan { id: 7, ..Vlan::default() }),
        ..NetworkSettings::default()
    };
    let function = "0000:3b:00.0".parse().unwrap();
    ObservedCard { function, interface: "eth0".to_owned(), link: Link::Up, row: Ok((0, row)) }
}

fn interrupt(number: u32, effective: &str) -> ObservedInterrupt {
    ObservedInterrupt { number, effective: Some(cpus(effective)), allowed: Some(cpus("0-3")) }
}

/// Two alike, one on each of the guest's nodes.
fn guest_function(node: u32) -> GuestFunction {
    let address = format!("0000:0{node}:00.0").parse().unwrap();
    GuestFunction { address, id: (0x8086, 0x10ca), driver: Some("igbvf".to_owned()), node: Some(node) }
}

fn observed() -> Observed {
    let cell = |id, vcpus, node: &str| QemuCell {
        id,
        vcpus: cpus(vcpus),
        memory: Some(Bytes::from_mib(256)),
        nodes: Some(node.parse().unwrap()),
    };
    let file = |number| format!("/dev/hugepages/libvirt/qemu/1-web1/ram-node{number} (deleted)");
    let guest = GuestProcess {
        pid: 4700,
        residency: vec![memory(2, Some(&file(0))), memory(3, Some(&file(1)))],
        ..GuestProcess::default()
    };
    let node = |index, vcpus| GuestNode { index, cpus: cpus(vcpus), memory: None };
    Observed {
        another: None,
        guest: Ok(Some(guest)),
        state: None,
        pools: Vec::new(),
        stored: Err("not asked".to_owned()),
        live: None,
        cells: Some(Ok(ObservedCells {
            cells: vec![cell(0, "0-1", "2"), cell(1, "2-3", "3")],
            distances: vec![(0, 1, 21), (1, 0, 21)],
        })),
        functions: vec![ObservedFunction {
            function: FUNCTION.parse().unwrap(),
            driver: Ok(Some("vfio-pci".to_owned())),
            node: Ok(Some(3)),
            held: Ok(Some("/dev/vfio/41".to_owned())),
            present: true,
            holder: None,
            group: Ok(Some(ObservedGroup { number: "41".to_owned(), domain: Some("DMA-FQ".to_owned()) })),
            card: Some(card()),
            id: Some((0x8086, 0x10ca)),
            interrupts: Ok(vec![interrupt(74, "3"), interrupt(75, "3")]),
        }],
        boot_unit: Some(Ok(Seen::InForce)),
        hook: Some(Ok(Seen::InForce)),
        queues: None,
        touched: None,
        vhost_queues: None,
        disks: Vec::new(),
        view: Ok(GuestView {
            nodes: vec![node(0, "0-1"), node(1, "2-3")],
            functions: vec![guest_function(0), guest_function(1)],
            ..GuestView::default()
        }),
    }
}

/// Checks of cells and functions that did not come out well.
fn broken(change: impl FnOnce(&mut Observed, &mut Placement)) -> Vec<Check> {
    let (mut observed, mut placement) = (observed(), planned());
    placement.interrupts = cpus("3");
    change(&mut observed, &mut placement);
    let plan = Plan { placements: vec![placement], ..Plan::default() };
    let checks = judge(&plan, &plan.placements[0], &observed).checks;
    let ours = |check: &Check| {
        let of_guest = check.kind == CheckKind::Guest && !check.subject.starts_with("disk");
        let kinds = [CheckKind::Cell, CheckKind::Function, CheckKind::Interrupt, CheckKind::Hook, CheckKind::BootUnit];
        kinds.contains(&check.kind) || of_guest
    };
    assert!(checks.iter().filter(|check| ours(check)).count() >= 9, "{checks:?}");
    checks.into_iter().filter(|check| ours(check) && check.outcome != Outcome::Ok).collect()
}

fn residency(observed: &mut Observed) -> &mut Vec<Residency> {
    &mut observed.guest.as_mut().unwrap().as_mut().unwrap().residency
}

fn cells(observed: &mut Observed) -> &mut ObservedCells {
    observed.cells.as_mut().unwrap().as_mut().unwrap()
}

#[test]
fn a_guest_as_planned_has_nothing_against_it() {
    assert_eq!(broken(|_, _| {}), []);
}

#[test]
fn every_sabotage_is_named() {
    type Break = fn(&mut Observed, &mut Placement);
    let function = "PCI function 0000:3b:02.0";
    let in_guest = "PCI function 0000:3b:02.0 as the guest sees it";
    let table: [(&str, &str, Break); 28] = [
        ("cell 0", "vCPUs 0 and 256 MiB", |seen, _| cells(seen).cells[0].vcpus = cpus("0")),
        ("cell 1", "vCPUs 2-3 and 512 MiB", |seen, _| cells(seen).cells[1].memory = Some(Bytes::from_mib(512))),
        ("cell 1", "at distances 20 10", |seen, _| cells(seen).distances.truncate(1)),
        ("cell 1", "bound to nodes 0-3", |seen, _| cells(seen).cells[1].nodes = Some("0-3".parse().unwrap())),
        ("cell 1", "no such cell", |seen, _| cells(seen).cells.truncate(1)),
        ("cells of the guest", "3 of them", |seen, _| {
            cells(seen).cells.push(QemuCell { id: 2, ..QemuCell::default() });
        }),
        ("memory of cell 0", "6 MiB on node 1, 250 MiB on node 2", |seen, _| {
            residency(seen)[0].pages = vec![(1, 3), (2, 125)];
        }),
        ("cell 1 as the guest sees it", "vCPUs 2", |seen, _| seen.view.as_mut().unwrap().nodes[1].cpus = cpus("2")),
        (function, "driver iavf", |seen, _| seen.functions[0].driver = Ok(Some("iavf".to_owned()))),
        (function, "no driver", |seen, _| seen.functions[0].driver = Ok(None)),
        (function, "not held by QEMU", |seen, _| seen.functions[0].held = Ok(None)),
        (function, "on node 0", |seen, _| seen.functions[0].node = Ok(Some(0))),
        (function, "the guest `other` has it", |seen, _| {
            (seen.functions[0].held, seen.functions[0].holder) = (Ok(None), Some("other".to_owned()));
        }),
        (function, "no such function", |seen, _| seen.functions[0].present = false),
        (function, "in no IOMMU group", |seen, _| seen.functions[0].group = Ok(None)),
        (function, "its DMA is not contained", |seen, _| {
            seen.functions[0].held = Ok(Some("/dev/vfio/noiommu-41".to_owned()));
        }),
        ("link of eth0 (0000:3b:00.0)", "down", |seen, _| seen.functions[0].card.as_mut().unwrap().link = Link::Down),
        ("row of 0000:3b:02.0 on its card eth0", "MAC 52:54:00:00:00:99, VLAN 7", |seen, _| {
            row(seen).mac = Some("52:54:00:00:00:99".to_owned());
        }),
        ("row of 0000:3b:02.0 on its card eth0", "VLAN none", |seen, _| row(seen).vlan = Some(Vlan::default())),
        ("interrupt 75 of PCI function 0000:3b:02.0", "on PUs 2", |seen, _| {
            seen.functions[0].interrupts = Ok(vec![interrupt(74, "3"), interrupt(75, "2")]);
        }),
        ("the boot unit", "not enabled", |seen, _| seen.boot_unit = Some(Ok(Seen::Idle))),
        ("the boot unit", "masked", |seen, _| seen.boot_unit = Some(Ok(Seen::Foreign))),
        ("the boot unit", "missing", |seen, _| seen.boot_unit = Some(Ok(Seen::Missing))),
        ("libvirt's qemu hook", "missing", |seen, _| seen.hook = Some(Ok(Seen::Missing))),
        ("libvirt's qemu hook", "another one", |seen, _| seen.hook = Some(Ok(Seen::Foreign))),
        ("libvirt's qemu hook", "not executable", |seen, _| seen.hook = Some(Ok(Seen::Idle))),
        (in_guest, "on its node 0", |seen, _| seen.view.as_mut().unwrap().functions.truncate(1)),
        (in_guest, "no such function", |seen, _| {
            seen.view.as_mut().unwrap().functions.iter_mut().for_each(|own| own.id = (0x1b36, 0x10));
        }),
    ];
    for (subject, found, change) in table {
        let wrong = broken(change);
        let [check] = wrong.as_slice() else { panic!("{subject}: {wrong:?}") };
        assert_eq!((check.subject.as_str(), &check.outcome), (subject, &Outcome::Mismatch), "{check:?}");
        assert!(check.found.as_deref().unwrap_or_default().contains(found), "{found}: {check:?}");
    }
}

fn row(observed: &mut Observed) -> &mut NetworkSettings {
    &mut observed.functions[0].card.as_mut().unwrap().row.as_mut().unwrap().1
}

#[test]
fn a_function_of_a_guest_that_is_off_is_nobody_elses() {
    let (mut seen, placement) = (observed(), planned());
    seen.guest = Ok(None);
    seen.functions[0].held = Ok(None);
    let plan = Plan { placements: vec![placement], ..Plan::default() };
    let wrong = |seen: &Observed| {
        judge(&plan, &plan.placements[0], seen)
            .checks
            .into_iter()
            .find(|check| check.kind == CheckKind::Function && check.outcome == Outcome::Mismatch)
    };
    assert_eq!(wrong(&seen), None);
    seen.functions[0].holder = Some("other".to_owned());
    let check = wrong(&seen).unwrap();
    assert_eq!(check.found.as_deref(), Some("held by the guest `other`"));
}

#[test]
fn what_cannot_be_read_is_not_called_wrong() {
    type Break = fn(&mut Observed, &mut Placement);
    let table: [(usize, &str, Break); 10] = [
        (1, "none is enabled", |seen, _| seen.functions[0].interrupts = Ok(Vec::new())),
        (1, "no carrier file", |seen, _| {
            seen.functions[0].card.as_mut().unwrap().link = Link::Unknown("no carrier file".to_owned());
        }),
        (1, "the host cannot read what it is", |seen, _| seen.functions[0].id = None),
        (1, "no hook directory", |seen, _| seen.hook = Some(Err("no hook directory".to_owned()))),
        (2, "no permission", |seen, _| seen.cells = Some(Err("no permission".to_owned()))),
        (1, "the guest has not touched any of it", |seen, _| residency(seen)[0].pages.clear()),
        (2, "bound to that node", |seen, _| {
            residency(seen).iter_mut().for_each(|mapping| {
                (mapping.file, mapping.policy) = (None, "default".to_owned());
            });
        }),
        (1, "no fdinfo", |seen, _| seen.functions[0].held = Err("no fdinfo".to_owned())),
        (2, "not looked at", |seen, _| {
            seen.functions.clear();
            seen.view.as_mut().unwrap().functions.clear();
        }),
        (2, "no NUMA nodes", |seen, _| seen.view.as_mut().unwrap().nodes.clear()),
    ];
    for (count, says, change) in table {
        let unknown = broken(change);
        assert_eq!(unknown.len(), count, "{says}: {unknown:?}");
        for check in unknown.into_iter().filter(|check| says != "not looked at" || check.kind != CheckKind::Guest) {
            assert!(matches!(&check.outcome, Outcome::CannotTell { why } if why.contains(says)), "{says}: {check:?}");
        }
    }
}

#[test]
fn memory_without_files_is_told_by_its_policy() {
    let anonymous = |seen: &mut Observed| residency(seen).iter_mut().for_each(|mapping| mapping.file = None);
    assert_eq!(broken(|seen, _| anonymous(seen)), []);
    let wrong = broken(|seen, _| {
        anonymous(seen);
        residency(seen)[1].pages = vec![(0, 128)];
    });
    assert_eq!((wrong[0].subject.as_str(), wrong[0].outcome.clone()), ("memory of cell 1", Outcome::Mismatch));
}

#[test]
fn a_running_guest_is_looked_at_in_the_kernels_own_files() {
    let arguments = [
        "qemu-system-x86_64",
        "-uuid",
        UUID,
        "-object",
        "memory-backend-ram,id=ram-node0,size=256M,host-nodes=2",
        "-numa",
        "node,nodeid=0,cpus=0-1,memdev=ram-node0",
        "",
    ];
    let line = arguments.join("\0");
    assert_eq!(CommandLine::parse(line.as_bytes()).unwrap().cells.len(), 1);
    let mut tree = MemoryTree::new();
    let mut file = |path: &str, text: &str| tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
    file("/proc/4700/cmdline", &line);
    file("/proc/4700/stat", "4700 (qemu-system-x86) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 77 0 0 0\n");
    file("/proc/4700/task/4700/comm", "qemu-system-x86\n");
    file("/proc/4700/task/4700/status", "Name:\tqemu-system-x86\nPPid:\t1\nCpus_allowed_list:\t3\n");
    file("/proc/4700/status", "Name:\tqemu-system-x86\n");
    file("/proc/4700/fdinfo/9", "pos:\t0\nflags:\t02\n");
    file("/sys/bus/pci/devices/0000:3b:02.0/numa_node", "-1\n");
    let links = [
        ("/proc/4700/fd/9", "/dev/vfio/41"),
        ("/sys/bus/pci/devices/0000:3b:02.0/driver", "../../../../bus/pci/drivers/vfio-pci"),
        ("/sys/bus/pci/devices/0000:3b:02.0/iommu_group", "../../../../kernel/iommu_groups/41"),
    ];
    for (path, target) in links {
        tree.put(path, Entry::Link(target.to_owned())).unwrap();
    }
    let files = HostFs::of_tree(tree, "a test");
    let none = std::time::Duration::ZERO;
    let effort = Effort { read_in_guest: false, agent: Some(none), natural: none, hook: none, ..Effort::default() };
    let mut hypervisor = Fake::new("").with_running_domain(&xml(""));
    let seen = observe(&files, &mut hypervisor, &plan(), &planned(), &effort);
    let Some(Ok(cells)) = seen.cells else { panic!("{:?} {:?}", seen.cells, seen.guest) };
    assert_eq!((cells.cells[0].vcpus.clone(), cells.cells[0].memory), (cpus("0-1"), Some(Bytes::from_mib(256))));
    let function = &seen.functions[0];
    assert_eq!(function.driver, Ok(Some("vfio-pci".to_owned())));
    assert_eq!((&function.node, &function.held), (&Ok(None), &Ok(Some("/dev/vfio/41".to_owned()))));
    assert_eq!(seen.another, None);
    let another = |mut hypervisor: Fake, planned: &Placement| {
        observe(&files, &mut hypervisor, &plan(), planned, &effort).another.unwrap_or_default()
    };
    assert_eq!(another(Fake::new(""), &planned()), "no domain of that name");
    let made_anew = Placement { uuid: "00000000-0000-4000-8000-000000000000".to_owned(), ..planned() };
    assert!(another(Fake::new("").with_running_domain(&xml("")), &made_anew).contains("another domain of that name"));
    let mut gone_once_it_stops = Fake::new("");
    gone_once_it_stops.create_transient(&xml(""), false).unwrap();
    assert!(another(gone_once_it_stops, &planned()).contains("gone once it stops"));
}
