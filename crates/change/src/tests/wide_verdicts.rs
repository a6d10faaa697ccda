//! Verdicts on guest cells and on functions handed through: as planned, then one thing broken at a time.

use nearmetal_host::guests::{CommandLine, QemuCell};
use nearmetal_host::{Entry, GuestProcess, HostFs, MemoryTree, Residency};
use nearmetal_hypervisor::Fake;
use nearmetal_place::{DevicePlacement, FunctionKind, GuestCell, Placement, Plan};
use nearmetal_units::{Bytes, PageSize};

use super::stage::*;
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
        kind: FunctionKind::Virtual,
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
        guest: Ok(Some(guest)),
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
        }],
        disks: Vec::new(),
        view: Ok(GuestView { nodes: vec![node(0, "0-1"), node(1, "2-3")], ..GuestView::default() }),
    }
}

/// Checks of cells and functions that did not come out well.
fn broken(change: impl FnOnce(&mut Observed, &mut Placement)) -> Vec<Check> {
    let (mut observed, mut placement) = (observed(), planned());
    change(&mut observed, &mut placement);
    let plan = Plan { placements: vec![placement], ..Plan::default() };
    let checks = judge(&plan, &plan.placements[0], &observed).checks;
    let ours = |check: &Check| {
        let of_guest = check.kind == CheckKind::Guest && check.subject.starts_with("cell");
        matches!(check.kind, CheckKind::Cell | CheckKind::Function) || of_guest
    };
    assert!(checks.iter().filter(|check| ours(check)).count() >= 7, "{checks:?}");
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
    let table: [(&str, &str, Break); 12] = [
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
    ];
    for (subject, found, change) in table {
        let wrong = broken(change);
        let [check] = wrong.as_slice() else { panic!("{subject}: {wrong:?}") };
        assert_eq!((check.subject.as_str(), &check.outcome), (subject, &Outcome::Mismatch), "{check:?}");
        assert!(check.found.as_deref().unwrap_or_default().contains(found), "{found}: {check:?}");
    }
}

#[test]
fn what_cannot_be_read_is_not_called_wrong() {
    type Break = fn(&mut Observed, &mut Placement);
    let table: [(usize, &str, Break); 6] = [
        (2, "no permission", |seen, _| seen.cells = Some(Err("no permission".to_owned()))),
        (1, "no page of it", |seen, _| residency(seen)[0].pages.clear()),
        (2, "bound to that node", |seen, _| {
            residency(seen).iter_mut().for_each(|mapping| {
                (mapping.file, mapping.policy) = (None, "default".to_owned());
            });
        }),
        (1, "no fdinfo", |seen, _| seen.functions[0].held = Err("no fdinfo".to_owned())),
        (1, "not looked at", |seen, _| seen.functions.clear()),
        (2, "no NUMA nodes", |seen, _| seen.view.as_mut().unwrap().nodes.clear()),
    ];
    for (count, says, change) in table {
        let unknown = broken(change);
        assert_eq!(unknown.len(), count, "{says}: {unknown:?}");
        for check in unknown {
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
    let effort = Effort { read_in_guest: false, agent: Default::default(), natural: Default::default() };
    let mut hypervisor = Fake::new("").with_running_domain(&xml(""));
    let seen = observe(&files, &mut hypervisor, &plan(), &planned(), &effort);
    let Some(Ok(cells)) = seen.cells else { panic!("{:?} {:?}", seen.cells, seen.guest) };
    assert_eq!((cells.cells[0].vcpus.clone(), cells.cells[0].memory), (cpus("0-1"), Some(Bytes::from_mib(256))));
    let function = &seen.functions[0];
    assert_eq!(function.driver, Ok(Some("vfio-pci".to_owned())));
    assert_eq!((&function.node, &function.held), (&Ok(None), &Ok(Some("/dev/vfio/41".to_owned()))));
}
