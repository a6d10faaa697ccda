//! Machines that are not all alike: one thing each that a plan must respect.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::{host, steps, vm};
use nearmetal_fleet::*;
use nearmetal_host::ledger::{self, OpenDevices};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Cpuset, GuestProcess, Host, HostFs, NetworkInterface, files, tree_text};
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize, PciAddress};

#[track_caller]
fn planned(vms: Vec<Vm>, hosts: Vec<FleetHost>) -> FleetPlan {
    planned_for(&Fleet { vms, hosts, ..Fleet::default() })
}

#[track_caller]
fn planned_for(fleet: &Fleet) -> FleetPlan {
    let plan = plan(fleet, &steps(1000)).unwrap();
    assert_eq!(check(fleet, &plan), []);
    plan
}

/// A machine of fixtures/hosts, with so much free memory on each node that has any.
fn fixture(name: &str, gib: u64) -> FleetHost {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts").join(name).join("tree.txt");
    let tree = tempfile::tempdir().unwrap();
    tree_text::unpack(&files::read_to_string(&path).unwrap(), tree.path()).unwrap();
    let host = Host::read(&HostFs::at(tree.path()).unwrap());
    let mut supply = FleetHost::of(name, &host, &ledger::of(&host, &[]), &Reserve::default());
    for node in &mut supply.nodes {
        let has = host.node(node.index).and_then(|node| node.memory_total).is_some_and(|total| total > Bytes::ZERO);
        node.memory = if has { Bytes::from_mib(gib << 10) } else { Bytes::ZERO };
    }
    supply
}

fn pus(plan: &FleetPlan, vm: &str) -> Vec<u32> {
    let placement = plan.placements.iter().find(|placement| placement.vm == vm).unwrap();
    placement.cells.iter().flat_map(|cell| cell.pus.iter().copied()).collect()
}

fn kinds(host: &FleetHost, pus: &[u32]) -> Vec<u32> {
    let cores = || host.nodes.iter().flat_map(|node| &node.cores);
    let of = |pu: &u32| cores().find(|core| core.free.contains(pu)).unwrap().kind;
    let mut kinds: Vec<u32> = pus.iter().map(of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn fast_cores_are_for_latency_and_no_vm_mixes_kinds_where_one_has_enough() {
    let hybrid = fixture("1p-1n-6c-2t-8c-1t-hybrid", 32);
    let latency = |mut vm: Vm| {
        vm.class = WorkloadClass::Latency;
        vm
    };
    let vms = vec![vm("plain", 6, 2), latency(vm("quick", 8, 2))];
    let plan = planned(vms, vec![hybrid.clone()]);
    assert_eq!(kinds(&hybrid, &pus(&plan, "quick")), [0]);
    assert_eq!(kinds(&hybrid, &pus(&plan, "plain")), [1]);
    // Isolated, it takes large cores though small ones have no siblings to waste.
    let alone = Vm { smt: SmtPolicy::Isolate, ..latency(vm("alone", 3, 2)) };
    let plan = planned(vec![alone], vec![hybrid.clone()]);
    assert_eq!(kinds(&hybrid, &pus(&plan, "alone")), [0]);
    assert_eq!(plan.placements[0].cells[0].idle.len(), 3);
    // More than either kind has.
    let plan = planned(vec![vm("wide", 16, 2)], vec![hybrid.clone()]);
    assert_eq!(kinds(&hybrid, &pus(&plan, "wide")), [0, 1]);
    assert!(plan.placements[0].reasons.iter().any(|reason| reason.contains("several kinds")));
}

#[test]
fn kinds_of_arm_cores_are_told_by_their_speed() {
    let host = fixture("1p-1n-20c-1t-two-kinds", 32);
    let count = |kind: u32| host.nodes[0].cores.iter().filter(|core| core.kind == kind).count();
    // The first core, a slow one, is the host's.
    assert_eq!((count(0), count(1)), (10, 9));
}

#[test]
fn nodes_without_cpus_carry_no_vcpu_and_nodes_without_memory_no_page() {
    let bare = fixture("2p-8n-4c-4t-gpu-nodes", 8);
    let memory_alone: Vec<u32> =
        bare.nodes.iter().filter(|node| node.cores.is_empty()).map(|node| node.index).collect();
    assert!(memory_alone.contains(&255), "{memory_alone:?}");
    let plan = planned(vec![vm("a", 8, 4), vm("b", 2, 20)], vec![bare]);
    let cells: Vec<&CellPlacement> = plan.placements.iter().flat_map(|placement| &placement.cells).collect();
    assert_eq!(plan.refusals, []);
    assert!(cells.iter().all(|cell| !memory_alone.contains(&cell.node) || cell.vcpus == 0));
    let bare = fixture("2p-11n-2c-1t-initiators", 8);
    let no_memory: Vec<u32> =
        bare.nodes.iter().filter(|node| node.memory == Bytes::ZERO).map(|node| node.index).collect();
    assert!(!no_memory.is_empty());
    let plan = planned(vec![vm("a", 2, 4)], vec![bare]);
    let cells = plan.placements.iter().flat_map(|placement| &placement.cells);
    assert!(cells.into_iter().all(|cell| !no_memory.contains(&cell.node) || cell.memory == Bytes::ZERO));
}

#[test]
fn pus_that_are_offline_or_isolated_are_nobodys() {
    let host = fixture("4p-1n-2c-2t-offline", 8);
    // Twelve are online, of which the first core's are the host's.
    let free: usize = host.nodes[0].cores.iter().map(|core| core.free.len()).sum();
    assert_eq!(free + host.nodes[0].housekeeping.len(), 12);
    let mut machine = Synthetic::new().cores_per_node(8).threads(1).build();
    machine.system.isolated = Some("4-5".parse().unwrap());
    let supply = FleetHost::of("one", &machine, &ledger::of(&machine, &[]), &Reserve::default());
    let free: Vec<u32> = supply.nodes[0].cores.iter().flat_map(|core| core.free.clone()).collect();
    assert_eq!(free, [1, 2, 3, 6, 7]);
    let plan = planned(vec![vm("a", 6, 1)], vec![supply]);
    assert_eq!(plan.refusals[0].remedy.as_ref().unwrap().change, "1 more free PU on node 0");
    // The kernel's own list has those of `isolcpus=` alone, on some versions.
    let (cpus, partition) = (Some("6-7".parse().unwrap()), Some("isolated".to_owned()));
    let partition = Cpuset { path: "/rt.slice".to_owned(), effective_cpus: cpus, partition, ..Cpuset::default() };
    machine.cpusets.push(partition);
    let supply = FleetHost::of("one", &machine, &ledger::of(&machine, &[]), &Reserve::default());
    let free: Vec<u32> = supply.nodes[0].cores.iter().flat_map(|core| core.free.clone()).collect();
    assert_eq!(free, [1, 2, 3]);
}

/// Functions a host offers whose guest 7, if it runs, has these files open.
fn offered(host: &Host, files: Option<&[&str]>) -> Vec<PciAddress> {
    let files = files.map(|files| files.iter().map(ToString::to_string).collect());
    let ledger = ledger::of(host, &[OpenDevices { pid: 7, files }]);
    let supply = FleetHost::of("one", host, &ledger, &Reserve::default());
    supply.devices.into_iter().flat_map(|device| device.functions).collect()
}

#[test]
fn functions_that_a_guest_holds_or_may_hold_are_not_offered() {
    let running = GuestProcess { pid: 7, ..GuestProcess::default() };
    let mut machine = Synthetic::new().network(0, 7, 3).guest(running).build();
    let vfs: Vec<PciAddress> = machine.pci_devices[1..].iter().map(|device| device.address).collect();
    machine.pci_devices[2].driver = Some("vfio-pci".to_owned());
    let group = format!("/dev/vfio/{}", machine.pci_devices[2].iommu_group.unwrap());
    assert_eq!(offered(&machine, Some(&[])), vfs);
    assert_eq!(offered(&machine, Some(&[&group])), [vfs[0], vfs[2]]);
    assert_eq!(offered(&machine, None), [vfs[0], vfs[2]], "it may be this one");
    // Another of its group cannot be opened, whatever drives it.
    machine.pci_devices[3].iommu_group = machine.pci_devices[2].iommu_group;
    assert_eq!(offered(&machine, Some(&[&group])), vfs[..1]);
}

#[test]
fn functions_that_the_host_uses_are_not_offered() {
    let mut machine = Synthetic::new().network(0, 7, 3).build();
    let vfs: Vec<PciAddress> = machine.pci_devices[1..].iter().map(|device| device.address).collect();
    machine.network_interfaces.push(NetworkInterface {
        name: "eth1".to_owned(),
        pci: Some(vfs[0]),
        master: Some("br0".to_owned()),
        ..NetworkInterface::default()
    });
    // NetworkManager brings up what it finds; libvirt takes that from the host's driver.
    machine.network_interfaces.push(NetworkInterface {
        name: "eth2".to_owned(),
        pci: Some(vfs[1]),
        state: Some("up".to_owned()),
        ..NetworkInterface::default()
    });
    assert_eq!(offered(&machine, Some(&[])), vfs[1..]);
    let supply = FleetHost::of("one", &machine, &ledger::of(&machine, &[]), &Reserve::default());
    assert_eq!(
        supply.unknown,
        ["virtual functions that the host uses are left to it: 0000:01:00.1 (`eth1` is a port of `br0`: \
          `ip link set eth1 nomaster` first)"]
    );
    // A drive that two controllers lead to: neither is given away under the file system.
    let mut machine = Synthetic::new().nvme(0).nvme(0).build();
    machine.block_devices.truncate(1);
    machine.block_devices[0].paths = machine.pci_devices.iter().map(|device| device.address).collect();
    assert_eq!(offered(&machine, Some(&[])), []);
}

#[test]
fn of_an_iommu_group_one_function_is_offered_and_none_beside_one_of_the_hosts() {
    let mut machine = Synthetic::new().network(0, 7, 3).build();
    let vfs: Vec<PciAddress> = machine.pci_devices[1..].iter().map(|device| device.address).collect();
    machine.pci_devices[3].iommu_group = machine.pci_devices[2].iommu_group;
    assert_eq!(offered(&machine, Some(&[])), vfs[..2]);
    // The host drives the second: VFIO gets the group once that one is given away.
    machine.pci_devices[3].driver = Some("igbvf".to_owned());
    assert_eq!(offered(&machine, Some(&[])), [vfs[0], vfs[2]]);
    machine.pci_devices[2].driver = Some("igbvf".to_owned());
    assert_eq!(offered(&machine, Some(&[])), vfs[..1]);
}

#[test]
fn a_large_vm_goes_to_the_large_node_and_small_ones_leave_it_free() {
    let mut uneven = host("one", 2, 4, 1, 8, 0);
    uneven.nodes[1] = common::node(1, 4, 12, 1, 1, 32, 0);
    let plan = planned(vec![vm("a", 2, 2), vm("b", 2, 2), vm("wide", 12, 16)], vec![uneven]);
    let node = |at: usize| plan.placements[at].cells[0].node;
    assert_eq!((node(0), node(1), node(2)), (0, 0, 1));
    assert_eq!(plan.headline, "optimal");
}

#[test]
fn each_vm_gets_pages_of_its_own_size_and_only_small_pools_grow() {
    let mut one = host("one", 1, 8, 1, 8, 2);
    one.nodes[0].pools.push(PoolSupply { size: PageSize::HUGE_2M, free: 100, may_grow: true });
    let sized = |name: &str, gib: u64, size: Option<PageSize>| Vm { page_size: size, ..vm(name, 2, gib) };
    let vms = vec![
        sized("large", 2, Some(PageSize::HUGE_1G)),
        sized("too large", 1, Some(PageSize::HUGE_1G)),
        sized("small", 1, Some(PageSize::HUGE_2M)),
        sized("plain", 6, None),
    ];
    let plan = planned(vms, vec![one]);
    let placed: Vec<&str> = plan.placements.iter().map(|placement| placement.vm.as_str()).collect();
    assert_eq!(placed, ["large", "small", "plain"]);
    assert_eq!(plan.refusals[0].remedy.as_ref().unwrap().change, "1 more 1 GiB page on node 0");
    let adds: Vec<(PageSize, u64)> = plan.pools.iter().map(|change| (change.size, change.add)).collect();
    assert_eq!(adds, [(PageSize::HUGE_2M, 512 - 100)]);
}

#[test]
fn without_smt_isolation_costs_nothing_and_siblings_cannot_be_had() {
    let with = |name: &str, smt: SmtPolicy| Vm { smt, ..vm(name, 2, 1) };
    let vms = vec![with("isolated", SmtPolicy::Isolate), with("siblings", SmtPolicy::Require), vm("plain", 2, 1)];
    let plan = planned(vms, vec![host("one", 1, 4, 1, 8, 0)]);
    let placed: Vec<&str> = plan.placements.iter().map(|placement| placement.vm.as_str()).collect();
    assert_eq!(placed, ["isolated", "plain"]);
    assert_eq!(plan.placements[0].cells[0].idle, [] as [u32; 0]);
}

#[test]
fn asked_to_spread_a_plan_is_on_as_many_hosts_as_there_are_vms_for() {
    let hosts: Vec<FleetHost> = (0..4).map(|index| host(&format!("host{index}"), 1, 8, 1, 16, 0)).collect();
    let on = |spread: SpreadHosts, count: u32| {
        let vms = (0..count).map(|index| vm(format!("vm{index}"), 1, 1)).collect();
        let plan = planned_for(&Fleet { vms, hosts: hosts.clone(), spread });
        assert_eq!(plan.headline, "optimal");
        plan.placements.iter().map(|placement| placement.host.clone()).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((on(SpreadHosts::Fewest, 6), on(SpreadHosts::Most, 3), on(SpreadHosts::Most, 6)), (1, 3, 4));
}

#[test]
fn functions_of_two_cards_on_two_nodes_go_to_a_vm_of_both_nodes() {
    let mut one = host("one", 2, 4, 1, 8, 0);
    let card = |node: u32| DeviceSupply {
        kind: DeviceKind::VirtualFunctions { of: format!("eth{node}") },
        node: Some(node),
        functions: Vec::new(),
        free: 1,
    };
    one.devices = vec![card(0), card(1)];
    let of = |name: &str| {
        let selector = DeviceSelector::VirtualFunction { of: Some(name.to_owned()) };
        DeviceDemand { selector, count: 1, locality: Locality::Required }
    };
    let two = Vm { numa: GuestNuma::Cells(2), devices: vec![of("eth0"), of("eth1")], ..vm("two", 4, 4) };
    let plan = planned(vec![two.clone()], vec![one.clone()]);
    let nodes: Vec<Option<u32>> = plan.placements[0].devices.iter().map(|grant| grant.node).collect();
    assert_eq!(nodes, [Some(0), Some(1)]);
    // On one node it can be near one of them at most.
    let single = Vm { numa: GuestNuma::Cells(1), ..two };
    assert_eq!(planned(vec![single], vec![one]).placements, []);
}
