//! What a reader is told: reasons, refusals, assumptions and the state of the nodes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{because, choice, guest, guest_on, network, plan, process, set};
use nearmetal_host::ThreadRole;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_place::{GuestRequest, Occupied, Owner, Policy, WorkloadClass};
use nearmetal_units::{Bytes, CpuSet, PageSize};

#[test]
fn a_refusal_names_only_what_is_short() {
    let host = Synthetic::new().packages(2).cores_per_node(2).build();
    // Exactly the PUs there are, exactly the memory there is: neither is what is missing.
    let memory = &plan(&host, &[guest("a", 4, 9000)]).plan.blocked[0];
    assert!(memory.problem.starts_with("it needs 9000 MiB"), "{}", memory.problem);
    let reserve = Policy::default().reserve(host.nodes[1].memory_total);
    let node = format!("node 1 3890 MiB beyond its reserve of {reserve}");
    assert!(memory.problem.contains(&node), "{node} is not in {}", memory.problem);
    let cpus = &plan(&host, &[guest("a", 6, 7780)]).plan.blocked[0];
    assert_eq!(cpus.problem, "it needs 6 PUs of its own, 4 have no owner (node 0: 2, node 1: 2)");
}

#[test]
fn a_name_or_a_uuid_that_comes_twice_is_refused_each_alone() {
    let host = Synthetic::new().cores_per_node(8).build();
    let first = guest("a", 1, 64);
    let same_name = GuestRequest { uuid: "other".to_owned(), ..first.clone() };
    let same_uuid = GuestRequest { name: "other".to_owned(), ..first.clone() };
    for second in [same_name, same_uuid] {
        let plan = plan(&host, &[first.clone(), second]).plan;
        assert_eq!((plan.placements.len(), plan.blocked.len()), (1, 1));
        assert!(plan.blocked[0].problem.contains("same name or UUID"), "{}", plan.blocked[0].problem);
    }
}

#[test]
fn the_page_size_is_explained_by_what_decided_it() {
    let host = Synthetic::new().build();
    let mut without = host.clone();
    without.nodes[0].pools.clear();
    let gigantic = Policy { gigantic_pages: true, ..Policy::default() };
    let off = Policy { hugepages: false, ..Policy::default() };
    for (host, policy, mib, why) in [
        (&host, &Policy::default(), 2048, "pages of 1 GiB are off by policy"),
        (&host, &gigantic, 2048, "memory is a multiple of 1 GiB, and the policy allows"),
        (&host, &gigantic, 2050, "pages of 1 GiB do not fit, or memory is not a multiple"),
        (&host, &off, 2048, "the policy uses no hugepage pools"),
        (&without, &Policy::default(), 2048, "the host has no hugepage pool of a usable size"),
    ] {
        let planned = nearmetal_place::plan(host, &Occupied::default(), &[guest("a", 1, mib)], policy);
        let because = because(&planned.plan.placements[0], "hugepages");
        assert!(because.contains(why), "{why:?} is not in {because:?}");
    }
}

#[test]
fn memory_from_another_node_is_owned_up_to() {
    let mut host = Synthetic::new().packages(2).cores_per_node(2).nvme(1).build();
    let near = &plan(&host, &[guest_on("a", 1, 512, "nvme0n1")]).plan.placements[0];
    assert!(because(near, "memory").contains("memory of the vCPUs' own node is nearest"));
    // No pages on node 1, no PU on node 0.
    host.nodes[1].pools.clear();
    let owner = Owner { guest: "other".to_owned(), vcpus: set("0-1"), helpers: CpuSet::new() };
    let occupied = Occupied { owners: vec![owner], ..Occupied::default() };
    let far = nearmetal_place::plan(&host, &occupied, &[guest("a", 1, 512)], &Policy::default());
    let far = &far.plan.placements[0];
    assert_eq!((choice(far, "node"), choice(far, "memory")), ("node 1".to_owned(), "strict on node 0".to_owned()));
    assert!(because(far, "memory").contains("the vCPUs' node has not enough memory"), "{}", because(far, "memory"));
}

#[test]
fn a_guest_over_several_nodes_says_that_one_did_not_hold_it() {
    let host = Synthetic::new().packages(2).cores_per_node(4).build();
    let wide = &plan(&host, &[guest("wide", 6, 512)]).plan.placements[0];
    assert!(because(wide, "node").contains("no single node has 6 PUs"), "{}", because(wide, "node"));
}

#[test]
fn a_pool_is_named_to_the_guests_that_draw_from_it_with_what_becomes_of_it() {
    let host = Synthetic::new().packages(2).cores_per_node(4).nvme(0).nvme(1).build();
    let guests = [guest_on("a", 1, 512, "nvme0n1"), guest_on("b", 1, 256, "nvme1n1")];
    let planned = plan(&host, &guests);
    for (placement, expected) in
        planned.plan.placements.iter().zip(["node 0: 0 -> 256 pages of 2 MiB", "node 1: 0 -> 128 pages of 2 MiB"])
    {
        let pools: Vec<_> = placement.reasons.iter().filter(|reason| reason.subject == "pool").collect();
        assert_eq!((pools.len(), pools[0].choice.as_str()), (1, expected), "{}", placement.guest);
        assert!(pools[0].because.contains("pages more than now"), "{}", pools[0].because);
    }
}

#[test]
fn an_iothread_is_named_and_vhost_workers_only_where_they_were_asked_for() {
    let host = Synthetic::new().cores_per_node(8).nvme(0).network(0, 0, 0).build();
    let request = GuestRequest { networks: vec![network("eth0")], ..guest_on("a", 2, 512, "nvme0n1") };
    let placement = &plan(&host, &[request]).plan.placements[0];
    assert_eq!(choice(placement, "iothread"), format!("1, on PU {}", placement.iothreads[0]));
    assert_eq!(choice(placement, "vhost workers"), "", "they run where the emulator thread does, which says so");
    assert!(because(placement, "emulator").contains("vhost workers of its network interfaces run there too"));
}

#[test]
fn nothing_is_assumed_where_everything_is_known() {
    let host = Synthetic::new().packages(2).cores_per_node(4).nvme(1).build();
    assert_eq!(plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).report.assumptions, [""; 0]);
}

#[test]
fn a_function_without_a_say_is_named_but_not_that_of_a_floating_guest() {
    let mut host = Synthetic::new().packages(2).cores_per_node(4).network(0, 0, 0).network(1, 0, 0).build();
    let [known, without_node] = [0, 1].map(|card: usize| host.network_interfaces[card].pci.unwrap());
    host.pci_devices.iter_mut().filter(|device| device.address == without_node).for_each(|device| device.node = None);
    let absent = "0000:ee:00.0".parse().unwrap();
    let request = GuestRequest { passthrough: vec![known, without_node, absent], ..guest("a", 1, 256) };
    let floating = GuestRequest { class: WorkloadClass::Density, passthrough: vec![absent], ..guest("f", 1, 256) };
    let planned = plan(&host, &[request, floating]);
    assert_eq!(
        planned.report.assumptions,
        [
            format!(
                "a: PCI function {without_node} has no node according to the firmware: it had no say in the choice of the node"
            ),
            "a: PCI function 0000:ee:00.0 is not on this host: it had no say in the choice of the node".to_owned(),
        ]
    );
}

#[test]
fn guests_that_run_anywhere_are_an_assumption() {
    let mut host = Synthetic::new().cores_per_node(4).build();
    host.guests = vec![process("loose", vec![(ThreadRole::Vcpu(0), set("0-3"))], vec![])];
    let occupied = Occupied::from_guests::<&str>(&host, &[]);
    let planned = nearmetal_place::plan(&host, &occupied, &[guest("a", 1, 256)], &Policy::default());
    assert_eq!(planned.report.assumptions, ["loose run without pins and may use any PU of this plan"]);
}

#[test]
fn the_report_counts_what_each_node_has_before_and_after() {
    let mut host = Synthetic::new().packages(2).cores_per_node(4).nvme(1).build();
    host.nodes[0].memory_free = None;
    let planned = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]);
    let [other, own] = planned.report.nodes.as_slice() else { panic!("{:?}", planned.report.nodes) };
    assert_eq!((other.memory_before, other.memory_after), (None, None), "unknown stays unknown");
    assert_eq!((&other.free_before, &other.free_after), (&set("0-3"), &set("0-3")));
    // Two vCPUs, an emulator thread and an iothread; 512 MiB in pages that the pool has yet to get.
    assert_eq!((&own.free_before, &own.free_after), (&set("4-7"), &CpuSet::new()));
    let room = Bytes::from_mib(4096).less(Policy::default().reserve(host.nodes[1].memory_total));
    assert_eq!((own.memory_before, own.memory_after), (Some(room), Some(room.less(Bytes::from_mib(512)))));
}

#[test]
fn a_subject_with_several_decisions_is_named_once_and_assumptions_only_where_there_are_any() {
    let mut host = Synthetic::new().cores_per_node(4).nvme(0).build();
    let mut planned = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]);
    let text = nearmetal_place::render(&planned);
    let (disk, node) = (|line: &&str| line.starts_with("  disk vda "), |line: &&str| line.starts_with("  node "));
    assert_eq!((text.lines().filter(disk).count(), text.lines().filter(node).count()), (1, 2), "{text}");
    assert!(!text.contains("assumed"), "{text}");
    host.nodes[0].memory_free = None;
    planned = plan(&host, &[guest("a", 2, 512)]);
    let text = nearmetal_place::render(&planned);
    assert!(text.ends_with("\n\nassumed\n  node 0 does not say how much memory is free: taken as enough\n"), "{text}");
}

#[test]
fn only_pools_of_the_size_count() {
    let mut host = Synthetic::new().build();
    host.nodes[0].pools.retain(|pool| pool.size == PageSize::HUGE_1G);
    let placement = &plan(&host, &[guest("a", 1, 512)]).plan.placements[0];
    assert_eq!(placement.memory.page_size, None, "pages of 1 GiB are off, and there is no other pool");
}
