//! Where guests go, on machines of several shapes.

mod common;

use common::{
    because, block_disk, choice, cpu_set, cpus, guest, guest_on, helper_set, network, nodes, plan, process, set,
};
use nearmetal_host::ThreadRole;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_place::{GuestRequest, Housekeeping, Occupied, Policy, WorkloadClass};
use nearmetal_units::{Bytes, CpuSet, PageSize};

/// Four nodes, four cores of two PUs each, siblings far apart in number, a drive on node 2, a card on node 1.
fn machine() -> Synthetic {
    Synthetic::new().packages(4).cores_per_node(4).threads(2).numbering(Numbering::Split).nvme(2).network(1, 7, 2)
}

#[test]
fn a_guest_goes_next_to_its_drive_with_siblings_in_a_row() {
    let planned = plan(&machine().build(), &[guest_on("db", 4, 1024, "nvme0n1")]);
    let placement = &planned.plan.placements[0];
    assert_eq!(cpus(placement), [8, 24, 9, 25]);
    assert_eq!(placement.memory.nodes, nodes("2"));
    assert_eq!((placement.memory.page_size, placement.memory.pages), (Some(PageSize::HUGE_2M), 512));
    assert_eq!((placement.emulator.clone(), placement.iothreads.clone()), (set("10"), vec![set("26")]));
    assert_eq!(choice(placement, "node"), "node 2");
    assert_eq!(because(placement, "node"), "nvme0n1 hangs on node 2");
    let pool = &planned.plan.pools[0];
    assert_eq!((pool.node, pool.size, pool.before, pool.after), (2, PageSize::HUGE_2M, 0, 512));
}

#[test]
fn devices_handed_through_count_more_than_disks_and_those_more_than_networks() {
    let host = machine().build();
    let card = host.network_interfaces[0].pci.unwrap();
    let mut request = GuestRequest { networks: vec![network("eth0")], ..guest("net", 2, 512) };
    assert_eq!(choice(&plan(&host, &[request.clone()]).plan.placements[0], "node"), "node 1");
    request.disks = vec![block_disk("vda", "nvme0n1")];
    assert_eq!(choice(&plan(&host, &[request.clone()]).plan.placements[0], "node"), "node 2");
    request.passthrough = vec![card];
    assert_eq!(choice(&plan(&host, &[request]).plan.placements[0], "node"), "node 1");
}

#[test]
fn a_bridge_lies_where_its_card_is_and_a_partition_where_its_drive_is() {
    let mut host = machine().build();
    host.network_interfaces[0].master = Some("br0".to_owned());
    let mut partition = host.block_devices[0].clone();
    (partition.name, partition.partition_of, partition.node) = ("nvme0n1p1".into(), Some("nvme0n1".into()), None);
    host.block_devices.push(partition);
    let bridged = GuestRequest { networks: vec![network("br0")], ..guest("a", 2, 512) };
    let planned = plan(&host, &[bridged, guest_on("b", 2, 512, "nvme0n1p1")]);
    assert_eq!(choice(&planned.plan.placements[0], "node"), "node 1");
    assert_eq!(choice(&planned.plan.placements[1], "node"), "node 2");
}

#[test]
fn without_devices_the_emptiest_node_is_taken_and_the_hosts_core_kept() {
    let planned = plan(&machine().build(), &[guest("a", 8, 512)]);
    // Node 0 has the host's core, so node 1 has more to give.
    assert_eq!(choice(&planned.plan.placements[0], "node"), "node 1");
    assert_eq!(planned.report.housekeeping, set("0,16"));
}

#[test]
fn the_hosts_core_is_given_up_for_a_device_but_not_if_the_policy_keeps_it() {
    let host = Synthetic::new().packages(2).cores_per_node(2).threads(2).nvme(0).build();
    let request = [guest_on("db", 4, 512, "nvme0n1")];
    let planned = plan(&host, &request);
    assert_eq!(cpus(&planned.plan.placements[0]), [0, 1, 2, 3]);
    assert!(because(&planned.plan.placements[0], "vcpu pins").contains("the host's own core"));
    let keep = Policy { housekeeping: Housekeeping::Keep, ..Policy::default() };
    let planned = nearmetal_place::plan(&host, &Occupied::default(), &request, &keep);
    assert_eq!(cpus(&planned.plan.placements[0]), [4, 5, 6, 7]);
    assert!(because(&planned.plan.placements[0], "node").contains("distance 20"));
    // The emulator thread is the host's own work, and runs next to the device.
    assert_eq!(planned.plan.placements[0].emulator, set("2"));
}

#[test]
fn a_full_node_sends_helper_threads_to_the_nearest_node() {
    let host = Synthetic::new().packages(2).nodes_per_package(2).cores_per_node(2).nvme(3).build();
    let planned = plan(&host, &[guest_on("db", 2, 512, "nvme0n1")]);
    let placement = &planned.plan.placements[0];
    assert_eq!(cpus(placement), [6, 7]);
    assert_eq!(helper_set(placement), set("4-5"), "node 2 is in the same package");
    assert!(because(placement, "emulator").contains("node 2, at distance 12"));
}

#[test]
fn with_one_pu_left_helpers_share_it_and_with_none_they_share_with_a_vcpu() {
    let host = Synthetic::new().cores_per_node(3).nvme(0).build();
    let placement = &plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan.placements[0];
    assert_eq!((cpu_set(placement), helper_set(placement)), (set("1-2"), set("0")));
    assert!(because(placement, "emulator").contains("shared with an iothread"));
    let placement = &plan(&host, &[guest_on("a", 3, 512, "nvme0n1")]).plan.placements[0];
    assert_eq!(helper_set(placement), set("0"));
    assert!(because(placement, "emulator").contains("every PU of the host carries a vCPU"));
}

#[test]
fn an_odd_guest_keeps_its_leftover_sibling_for_its_emulator() {
    let host = machine().build();
    let planned = plan(&host, &[guest_on("a", 3, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")]);
    assert_eq!(cpus(&planned.plan.placements[0]), [8, 24, 9]);
    assert_eq!(cpus(&planned.plan.placements[1]), [10, 26]);
    assert_eq!(planned.plan.placements[0].emulator, set("25"));
}

#[test]
fn guests_stay_inside_one_last_level_cache_if_one_holds_them() {
    let host = Synthetic::new().cores_per_node(8).caches_per_node(2).threads(2).build();
    let placement = &plan(&host, &[guest("a", 6, 512), guest("b", 4, 512)]).plan.placements;
    // The first cache has lost the host's core: three cores are left there, and they are enough.
    assert_eq!((cpu_set(&placement[0]), cpu_set(&placement[1])), (set("2-7"), set("8-11")));
}

#[test]
fn offline_pus_are_never_used() {
    let mut host = machine().build();
    for cpu in [8, 9, 24] {
        host.processors[cpu].online = false;
    }
    let placement = &plan(&host, &[guest_on("a", 4, 512, "nvme0n1")]).plan.placements[0];
    assert_eq!(cpus(placement), [10, 26, 11, 27]);
}

#[test]
fn a_guest_larger_than_a_node_takes_the_fewest_near_ones() {
    let host = Synthetic::new().packages(2).nodes_per_package(2).cores_per_node(4).nvme(3).build();
    let planned = plan(&host, &[guest_on("big", 6, 6144, "nvme0n1")]);
    let placement = &planned.plan.placements[0];
    assert_eq!((cpu_set(placement), placement.memory.nodes.clone()), (set("8-9,12-15"), nodes("2-3")));
    assert!(because(placement, "memory").contains("does not fit on one node"));
    let pages: u64 = planned.plan.pools.iter().map(|pool| pool.after).sum();
    assert_eq!(pages, 3072);
}

#[test]
fn what_running_guests_own_is_left_to_them() {
    let mut host = machine().build();
    let vcpu = |number, cpus: &str| (ThreadRole::Vcpu(number), set(cpus));
    host.guests = vec![
        process("pinned", vec![vcpu(0, "8"), vcpu(1, "24"), (ThreadRole::Emulator, set("9"))], vec![]),
        process("floating", vec![vcpu(0, "0-31")], vec![]),
    ];
    let occupied = Occupied::from_guests::<&str>(&host, &[]);
    assert_eq!(
        (occupied.vcpus(), occupied.helpers(), occupied.floating.clone()),
        (set("8,24"), set("9"), vec!["floating".to_owned()])
    );
    let request = [guest_on("db", 4, 512, "nvme0n1")];
    let planned = nearmetal_place::plan(&host, &occupied, &request, &Policy::default());
    assert_eq!(cpus(&planned.plan.placements[0]), [10, 26, 11, 27]);
    assert_eq!(planned.report.neighbours, ["floating"]);
    // Only the emulator's PU and its sibling are left: better taken than the guest refused.
    let crowded = [guest_on("db", 4, 512, "nvme0n1"), guest("rest", 26, 512)];
    let planned = nearmetal_place::plan(&host, &occupied, &crowded, &Policy::default());
    assert!(planned.plan.blocked.is_empty());
    assert!(because(&planned.plan.placements[1], "vcpu pins").contains("PUs of other guests' emulator threads"));
}

#[test]
fn a_refusal_names_both_numbers_and_the_smallest_remedy() {
    let host = Synthetic::new().packages(2).cores_per_node(2).nvme(1).build();
    let planned = plan(&host, &[guest_on("wide", 6, 512, "nvme0n1")]);
    let blocker = &planned.plan.blocked[0];
    assert_eq!(blocker.problem, "it needs 6 PUs of its own, 4 have no owner (node 0: 2, node 1: 2)");
    assert_eq!(blocker.remedy, "2 more free PUs on node 1, or 4 vCPUs instead of 6");
    let planned = plan(&host, &[guest("large", 2, 9000)]);
    let blocker = &planned.plan.blocked[0];
    assert!(
        blocker.problem.starts_with("it needs 9000 MiB of memory in pages of 2 MiB, the nodes can give 7780 MiB"),
        "{}",
        blocker.problem
    );
    assert!(blocker.remedy.starts_with("1220 MiB more memory, free or reclaimable"), "{}", blocker.remedy);
}

#[test]
fn requests_nobody_can_place_are_refused_each_with_its_reason() {
    let host = machine().build();
    let mut without_nodes = host.clone();
    without_nodes.nodes.clear();
    let table = [
        (&host, vec![guest("a", 0, 512)], "0 vCPUs"),
        (&host, vec![guest("a", 1, 0)], "no memory"),
        (&host, vec![guest("a", 1, 64), guest("a", 1, 64)], "same name or UUID"),
        (&host, vec![guest("a", u32::MAX, 64)], "4294967295 PUs"),
        (&host, vec![guest("a", 1, u64::MAX)], "of memory"),
        (&without_nodes, vec![guest("a", 1, 64)], "no NUMA node"),
    ];
    for (host, guests, problem) in table {
        let planned = plan(host, &guests);
        assert_eq!(planned.plan.blocked.len(), 1, "{problem}");
        assert!(planned.plan.blocked[0].problem.contains(problem), "{}", planned.plan.blocked[0].problem);
    }
}

#[test]
fn a_density_guest_floats_and_says_why() {
    let request = GuestRequest { class: WorkloadClass::Density, ..guest_on("tiny", 64, 1 << 20, "nvme0n1") };
    let planned = plan(&machine().build(), &[request]);
    let placement = &planned.plan.placements[0];
    assert!(placement.is_floating() && placement.disks.is_empty() && placement.memory.nodes.is_empty());
    assert!(placement.reasons[0].because.contains("density"));
    assert_eq!(planned.report.neighbours, ["tiny"]);
    assert!(planned.plan.pools.is_empty());
}

#[test]
fn guests_with_devices_choose_before_guests_without() {
    let host = Synthetic::new().packages(2).cores_per_node(4).nvme(1).build();
    let planned = plan(&host, &[guest("free", 4, 512), guest_on("db", 4, 512, "nvme0n1")]);
    let names: Vec<&str> = planned.plan.placements.iter().map(|placement| placement.guest.as_str()).collect();
    assert_eq!(names, ["free", "db"]);
    assert_eq!(cpu_set(&planned.plan.placements[1]), set("4-7"));
}

#[test]
fn memory_less_and_cpu_less_nodes_give_what_they_have() {
    let mut host = Synthetic::new().packages(3).cores_per_node(2).nvme(1).build();
    (host.nodes[1].memory_total, host.nodes[1].memory_free) = (Some(Bytes::ZERO), Some(Bytes::ZERO));
    host.nodes[1].pools.clear();
    host.nodes[2].cpus = CpuSet::new();
    let placement = &plan(&host, &[guest_on("a", 4, 512, "nvme0n1")]).plan.placements[0];
    assert_eq!(cpu_set(placement), set("0-3"));
    assert_eq!(placement.memory.nodes.len(), 1);
    assert!(placement.memory.nodes.is_disjoint(&nodes("1")));
}

#[test]
fn a_full_device_node_is_replaced_by_the_nearest_that_has_room() {
    let host = Synthetic::new().packages(2).nodes_per_package(2).cores_per_node(4).nvme(3).build();
    let planned = plan(&host, &[guest_on("a", 4, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")]);
    // Nodes 1 and 2 are equally empty; 2 is in the drive's package.
    assert_eq!(choice(&planned.plan.placements[1], "node"), "node 2");
    assert!(because(&planned.plan.placements[1], "node").contains("node 2 is at distance 12"));
}

#[test]
fn helper_threads_of_two_guests_share_no_pu_while_others_are_free() {
    let host = Synthetic::new().packages(2).cores_per_node(8).nvme(1).build();
    let planned = plan(&host, &[guest_on("a", 2, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")]);
    let (a, b) = (helper_set(&planned.plan.placements[0]), helper_set(&planned.plan.placements[1]));
    assert_eq!((a, b), (set("12-13"), set("14-15")));
}

#[test]
fn an_emulator_thread_that_may_run_on_a_whole_node_holds_no_pu() {
    let mut host = machine().build();
    let threads = vec![(ThreadRole::Vcpu(0), set("8")), (ThreadRole::Emulator, set("8-11,24-27"))];
    host.guests = vec![process("other", threads, vec![])];
    let occupied = Occupied::from_guests::<&str>(&host, &[]);
    assert!(occupied.helpers().is_empty());
    let planned = nearmetal_place::plan(&host, &occupied, &[guest_on("db", 4, 512, "nvme0n1")], &Policy::default());
    assert_eq!(cpus(&planned.plan.placements[0]), [9, 25, 10, 26]);
}

#[test]
fn interrupts_of_a_function_go_beside_the_vcpus_and_only_where_one_is_handed_through() {
    let host = machine().build();
    let card = host.network_interfaces[0].pci.unwrap();
    let request = GuestRequest { passthrough: vec![card], ..guest("net", 2, 512) };
    let placement = &plan(&host, std::slice::from_ref(&request)).plan.placements[0];
    assert_eq!(placement.interrupts, placement.emulator);
    assert!(placement.interrupts.is_disjoint(&cpu_set(placement)) && placement.needs_hook());
    assert_eq!(choice(placement, "interrupts"), format!("PUs {}", placement.emulator));
    let left = Policy { place_interrupts: false, ..Policy::default() };
    let without = nearmetal_place::plan(&host, &Occupied::default(), &[request], &left);
    assert!(!without.plan.placements[0].needs_hook());
    assert!(!plan(&host, &[guest("plain", 2, 512)]).plan.placements[0].needs_hook());
}

#[test]
fn vhost_workers_get_pus_of_their_own_where_the_guests_node_has_some_left() {
    let host = machine().build();
    let request = |vcpus| GuestRequest { networks: vec![network("eth0")], ..guest("net", vcpus, 512) };
    let policy = Policy { vhost_pus: 2, ..Policy::default() };
    let planned = |vcpus| nearmetal_place::plan(&host, &Occupied::default(), &[request(vcpus)], &policy).plan;
    let plan = planned(4);
    let placement = &plan.placements[0];
    assert_eq!(placement.vhost.len(), 2);
    let own = placement.vhost.iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    // Inside the emulator thread's set, which has one more.
    assert!(own.is_subset(&placement.emulator) && placement.emulator.len() == 3, "{placement:?}");
    assert!(own.is_disjoint(&cpu_set(placement)));
    let full = planned(7);
    let placement = &full.placements[0];
    assert!(placement.vhost.is_empty() && !placement.needs_hook());
    assert!(because(placement, "vhost workers").contains("no PU of the guest's node is left"));
    let without = GuestRequest { networks: Vec::new(), ..request(2) };
    let plan = nearmetal_place::plan(&host, &Occupied::default(), &[without], &policy).plan;
    assert!(because(&plan.placements[0], "vhost workers").contains("no interface that vhost-net carries"));
}
