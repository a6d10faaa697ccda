//! Which of several places is chosen, where more than one would do.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{because, block_disk, choice, cpu_set, cpus, guest, guest_on, network, nodes, plan, set};
use nearmetal_host::Host;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_place::{Allowed, GuestRequest, Occupied, Owner, Placement, Policy, Returning};
use nearmetal_units::{CpuSet, PageSize};

/// A guest planned beside another one that runs there.
fn beside(host: &Host, vcpus: &str, helpers: &str, request: GuestRequest) -> Placement {
    let owner = Owner { guest: "other".to_owned(), vcpus: set(vcpus), helpers: set(helpers) };
    let occupied = Occupied { owners: vec![owner], ..Occupied::default() };
    nearmetal_place::plan(host, &occupied, &[request], &Policy::default()).plan.placements.remove(0)
}

#[test]
fn the_node_of_most_devices_wins_and_the_others_are_named() {
    let host = Synthetic::new().packages(4).cores_per_node(4).nvme(1).nvme(3).nvme(3).build();
    let disks = [("vda", "nvme0n1"), ("vdb", "nvme1n1"), ("vdc", "nvme2n1")].map(|(target, of)| block_disk(target, of));
    let placement = &plan(&host, &[GuestRequest { disks: disks.to_vec(), ..guest("a", 2, 512) }]).plan.placements[0];
    assert_eq!(choice(placement, "node"), "node 3");
    assert_eq!(
        because(placement, "node"),
        "nvme1n1, nvme2n1 hangs on node 3; nvme0n1 hangs on node 1 and is reached from afar"
    );
}

#[test]
fn each_interface_has_the_node_of_its_own_card() {
    // Without a say of the card the guest would be on node 1, which is the first without the host's core.
    let mut host = Synthetic::new().packages(4).cores_per_node(4).network(1, 0, 0).network(3, 0, 0).build();
    let node = |host: &Host, interface| {
        let request = GuestRequest { networks: vec![network(interface)], ..guest("a", 2, 512) };
        choice(&plan(host, &[request]).plan.placements[0], "node")
    };
    assert_eq!(node(&host, "eth1"), "node 3");
    host.network_interfaces[1].master = Some("br0".to_owned());
    assert_eq!(node(&host, "br0"), "node 3", "the bridge lies where its member is");
}

#[test]
fn a_device_handed_through_chooses_before_a_disk_whatever_the_order() {
    let host = Synthetic::new().packages(2).cores_per_node(4).nvme(1).network(1, 0, 0).build();
    let card = host.network_interfaces[0].pci.unwrap();
    let given = GuestRequest { passthrough: vec![card], ..guest("given", 4, 512) };
    for guests in [[guest_on("db", 4, 512, "nvme0n1"), given.clone()], [given, guest_on("db", 4, 512, "nvme0n1")]] {
        let placements = plan(&host, &guests).plan.placements;
        let of = |name: &str| cpu_set(placements.iter().find(|placement| placement.guest == name).unwrap());
        assert_eq!((of("given"), of("db")), (set("4-7"), set("0-3")));
    }
}

#[test]
fn without_devices_the_node_with_most_whole_cores_is_taken() {
    // Node 0 has room beside the host's core; node 1 has more of it.
    let host = Synthetic::new().packages(2).cores_per_node(4).threads(2).build();
    assert_eq!(choice(&plan(&host, &[guest("a", 2, 512)]).plan.placements[0], "node"), "node 1");
    assert_eq!(choice(&beside(&host, "8,10", "", guest("a", 2, 512)), "node"), "node 0");
}

#[test]
fn helper_threads_go_beside_the_guests_own_vcpus_and_not_beside_anothers() {
    let host = Synthetic::new().cores_per_node(4).threads(2).build();
    // PU 3 is the sibling of the other guest's vCPU, 0 and 1 are the host's.
    let odd = beside(&host, "2", "", guest("a", 3, 512));
    assert_eq!((cpus(&odd), odd.emulator), (vec![4, 5, 6], set("7")), "the sibling of its own last vCPU");
    let even = beside(&host, "2", "", guest("a", 2, 512));
    assert_eq!((cpus(&even), even.emulator), (vec![4, 5], set("6")), "a core that nobody uses");
}

#[test]
fn a_helpers_pu_that_a_vcpu_has_taken_is_not_shared_while_another_is_left() {
    let host = Synthetic::new().cores_per_node(4).build();
    let placement = beside(&host, "3", "1-2", guest("a", 2, 512));
    assert_eq!((cpu_set(&placement), &placement.emulator), (set("0-1"), &set("2")));
    assert!(because(&placement, "emulator").contains("shared with other guests' helper threads"));
}

#[test]
fn pages_come_only_from_nodes_with_a_pool_of_them() {
    let mut host = Synthetic::new().packages(2).cores_per_node(4).nvme(1).build();
    host.nodes[1].pools.clear();
    let placement = &plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan.placements[0];
    let memory = &placement.memory;
    assert_eq!((memory.nodes.clone(), memory.page_size), (nodes("0"), Some(PageSize::HUGE_2M)));
    assert_eq!(choice(placement, "node"), "node 0", "to be on one node counts more than to be beside the drive");
}

#[test]
fn pages_come_back_on_the_node_and_in_the_size_they_are_held() {
    let mut host = Synthetic::new().packages(2).pool(PageSize::HUGE_2M, 256).nvme(0).build();
    host.nodes[0].pools[0].free = 0;
    let after = |node, size| {
        let occupied = Occupied { returning: vec![Returning { node, size, pages: 256 }], ..Occupied::default() };
        let request = [guest_on("a", 1, 512, "nvme0n1")];
        let plan = nearmetal_place::plan(&host, &occupied, &request, &Policy::default()).plan;
        (plan.pools[0].node, plan.pools[0].after)
    };
    assert_eq!(after(0, PageSize::HUGE_2M), (0, 256), "its own pages are enough");
    assert_eq!(after(1, PageSize::HUGE_2M), (0, 512), "those of node 0 are somebody else's");
    assert_eq!(after(0, PageSize::SMALL), (0, 512), "what it holds in small pages leaves the pool as it is");
}

#[test]
fn what_a_plan_may_use_is_written_with_the_policy() {
    let written = |allowed: Allowed| serde_json::to_value(Policy { allowed, ..Policy::default() }).unwrap();
    assert!(written(Allowed::default()).get("allowed").is_none(), "all of the machine goes without saying");
    let cpus = Allowed { cpus: Some(CpuSet::one(3)), nodes: None };
    let nodes = Allowed { cpus: None, nodes: Some(nodes("1")) };
    for allowed in [cpus, nodes] {
        let back: Policy = serde_json::from_value(written(allowed.clone())).unwrap();
        assert_eq!(back.allowed, allowed);
    }
}
