//! What can be measured beside the rules: QEMU's threads on the node, a core for each vCPU, cells of the guest.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{because, choice, cpu_set, cpus, guest, guest_on, helper_set, network, set};
use nearmetal_host::Host;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_place::{
    GuestRequest, HelperOn, InterfaceQueues, Occupied, PinTo, Placement, Plan, Policy, Polling, Shown, ShownCell,
    Siblings, plan,
};
use nearmetal_units::{Bytes, CpuSet, PageSize};
use proptest::prelude::*;

fn planned(host: &Host, guests: &[GuestRequest], policy: &Policy) -> Plan {
    plan(host, &Occupied::default(), guests, policy).plan
}

fn one(host: &Host, guest: GuestRequest, policy: &Policy) -> Placement {
    planned(host, &[guest], policy).placements.remove(0)
}

fn on_node() -> Policy {
    Policy { emulator: HelperOn::Node, ..Policy::default() }
}

fn core_each() -> Policy {
    Policy { siblings: Siblings::Spare, ..Policy::default() }
}

fn with_cells() -> Policy {
    Policy { guest_cells: true, ..Policy::default() }
}

#[test]
fn qemus_threads_may_use_what_nobody_has_of_the_node() {
    let host = Synthetic::new().packages(2).cores_per_node(12).nvme(1).build();
    let guests = [guest_on("a", 2, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")];
    let own = planned(&host, &guests, &Policy::default()).placements;
    let shared = planned(&host, &guests, &on_node()).placements;
    for (own, shared) in own.iter().zip(&shared) {
        assert_eq!((&own.vcpus, &own.iothreads), (&shared.vcpus, &shared.iothreads));
        assert!(own.emulator.is_subset(&shared.emulator) && shared.emulator.len() > 1, "{}", shared.emulator);
        assert!(shared.emulator.is_subset(&host.node(1).unwrap().cpus));
        assert!(choice(shared, "emulator").contains(&shared.emulator.to_string()));
    }
    for other in &shared {
        assert!(shared.iter().all(|guest| guest.emulator.is_disjoint(&cpu_set(other))), "{other:?}");
    }
    assert!(
        shared[0].emulator.is_disjoint(&own[1].emulator) && shared[0].emulator.is_disjoint(&shared[1].iothreads[0])
    );
}

#[test]
fn iothreads_may_use_what_nobody_has_of_the_node_and_two_of_them_share_queues() {
    let host = Synthetic::new().cores_per_node(12).nvme(0).build();
    let guests = [guest_on("a", 2, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")];
    let shared = planned(&host, &guests, &Policy { iothread_on: HelperOn::Node, ..Policy::default() }).placements;
    for guest in &shared {
        assert!(guest.iothreads[0].len() > 1 && guest.emulator.len() == 1, "{guest:?}");
        assert!(shared.iter().all(|other| guest.iothreads[0].is_disjoint(&cpu_set(other))));
        assert!(choice(guest, "iothread").contains(&guest.iothreads[0].to_string()));
    }
    let two = Policy { iothreads: 2, share_queues: true, ..Policy::default() };
    let placement = one(&host, guest_on("a", 2, 512, "nvme0n1"), &two);
    assert_eq!((placement.disks[0].iothread, placement.disks[0].iothreads), (None, Some(2)));
    assert!(placement.iothreads[0].is_disjoint(&placement.iothreads[1]), "{placement:?}");
    // One queue needs no second thread.
    let single = one(&host, guest_on("a", 1, 512, "nvme0n1"), &two);
    assert_eq!((single.disks[0].iothread, single.disks[0].iothreads), (Some(1), None));
    let narrow = Synthetic::new().packages(1).cores_per_node(5).nvme(0).build();
    let narrow = one(&narrow, guest_on("a", 3, 512, "nvme0n1"), &two);
    assert_eq!((narrow.iothreads.len(), narrow.disks[0].iothread), (1, Some(1)));
    assert_eq!(choice(&narrow, "further iothreads"), "1 instead of 2");
    // Measured under a newer QEMU than the one that is there now.
    let mut old = host.clone();
    old.system.qemu_version = Some("8.2.2".to_owned());
    let old = one(&old, guest_on("a", 2, 512, "nvme0n1"), &two);
    assert_eq!((old.iothreads.len(), old.disks[0].iothread, old.disks[0].iothreads), (1, Some(1), None));
    assert!(because(&old, "further iothreads").starts_with("QEMU 8.2 shares no queues"));
}

#[test]
fn a_guest_polls_only_on_pus_of_its_own_and_queues_follow_the_policy() {
    let host = Synthetic::new().cores_per_node(12).nvme(0).build();
    let polls = Policy { polling: Polling::Guest, ..Policy::default() };
    assert_eq!(one(&host, guest("a", 2, 512), &polls).guest_polls, Some(true));
    assert_eq!(one(&host, guest("a", 2, 512), &Policy::default()).guest_polls, None);
    // The iothread of a guest that has every PU runs on one of them.
    let whole = Synthetic::new().packages(1).cores_per_node(4).nvme(0).build();
    assert_eq!(one(&whole, guest_on("a", 4, 512, "nvme0n1"), &polls).guest_polls, Some(false));
    let on_node = one(&host, guest("a", 2, 512), &Policy { pins: PinTo::Node, ..polls });
    assert!(on_node.guest_polls == Some(false) && because(&on_node, "halt polling").contains("no PUs of their own"));
    let with = GuestRequest { networks: vec![network("eth0")], ..guest("a", 4, 512) };
    let queues =
        |interface_queues| one(&host, with.clone(), &Policy { interface_queues, ..Policy::default() }).networks;
    assert!(queues(InterfaceQueues::Keep).is_empty());
    let counts = [InterfaceQueues::One, InterfaceQueues::EachVcpu].map(|own| queues(own)[0].queues);
    assert_eq!(counts, [1, 4]);
}

#[test]
fn a_core_for_each_vcpu_leaves_its_siblings_to_nobody() {
    let host = Synthetic::new().cores_per_node(8).threads(2).build();
    let guests = [guest("a", 3, 512), guest("b", 2, 512)];
    let used = planned(&host, &guests, &Policy::default()).placements;
    assert!(cpus(&used[0]).len() == 3 && !because(&used[0], "vcpu pins").contains("stay idle"));
    let spared = plan(&host, &Occupied::default(), &guests, &core_each());
    let vcpus: CpuSet = spared.plan.placements.iter().flat_map(cpus).collect();
    let core_of = |cpu: u32| host.cores.iter().find(|core| core.cpus.contains(cpu)).unwrap().cpus.clone();
    let idle: CpuSet = vcpus
        .iter()
        .flat_map(|cpu| core_of(cpu).iter().collect::<Vec<_>>())
        .filter(|cpu| !vcpus.contains(*cpu))
        .collect();
    assert_eq!((vcpus.len(), idle.len()), (5, 5), "each on a core of its own");
    assert!(spared.plan.placements.iter().all(|guest| helper_set(guest).is_disjoint(&idle)), "helpers stay off them");
    assert!(
        spared.report.nodes.iter().all(|node| node.free_after.is_disjoint(&idle)),
        "nobody is told that they are free"
    );
    assert!(because(&spared.plan.placements[0], "vcpu pins").contains("stay idle"));
}

#[test]
fn a_core_for_each_vcpu_is_refused_in_cores_and_means_nothing_without_smt() {
    let host = Synthetic::new().packages(1).cores_per_node(4).threads(2).build();
    assert_eq!(planned(&host, &[guest("a", 6, 512)], &Policy::default()).blocked, []);
    let blocked = planned(&host, &[guest("a", 6, 512)], &core_each()).blocked;
    assert!(blocked[0].problem.starts_with("it needs 6 whole cores of its own, 4 have no owner"), "{blocked:?}");
    assert!(blocked[0].remedy.starts_with("2 more free cores"), "{blocked:?}");
    let host = Synthetic::new().cores_per_node(8).build();
    let (used, spared) = [Policy::default(), core_each()].map(|policy| one(&host, guest("a", 4, 512), &policy)).into();
    assert_eq!((&used.vcpus, &used.emulator), (&spared.vcpus, &spared.emulator));
}

#[test]
fn a_guest_on_two_nodes_sees_them_and_one_on_one_node_sees_none() {
    let host = Synthetic::new()
        .packages(2)
        .cores_per_node(8)
        .memory_per_node(Bytes::from_mib(4096))
        .pool(PageSize::HUGE_2M, 0)
        .build();
    let wide = || guest("a", 10, 5000);
    assert!(one(&host, wide(), &Policy::default()).cells.is_empty());
    let placement = one(&host, wide(), &with_cells());
    let [near, far] = placement.cells.as_slice() else { panic!("{placement:?}") };
    assert_eq!((near.memory, far.memory), (Bytes::from_mib(2500), Bytes::from_mib(2500)));
    assert_eq!((near.vcpus.len(), far.vcpus.len()), (5, 5));
    assert_eq!((near.vcpus.union(&far.vcpus), near.node != far.node), (set("0-9"), true));
    assert_eq!((near.distances.as_slice(), far.distances.len()), ([10, near.distances[1]].as_slice(), 2));
    assert!(
        choice(&placement, "guest cells")
            .contains(&format!("vCPUs {} and {} of node {}", near.vcpus, near.memory, near.node))
    );
    assert!(because(&placement, "memory").contains("each cell of the guest"));
    assert!(one(&host, guest("a", 2, 512), &with_cells()).cells.is_empty());
    // Where vCPUs may share the PUs of their node, they stay on that of their cell.
    let shared = one(&host, GuestRequest { vcpus: 6, ..wide() }, &Policy { pins: PinTo::Node, ..with_cells() });
    for cell in &shared.cells {
        let cpus = &host.node(cell.node).unwrap().cpus;
        let own = shared.vcpus.iter().filter(|pin| cell.vcpus.contains(pin.vcpu));
        assert!(own.into_iter().all(|pin| pin.cpus.is_subset(cpus)), "{shared:?}");
    }
}

#[test]
fn a_guest_is_dealt_to_its_nodes_evenly_or_is_shown_none() {
    let machine = Synthetic::new().packages(2).cores_per_node(8).memory_per_node(Bytes::from_mib(4096));
    let host = machine.clone().build();
    let cells = |vcpus, mib| one(&host, guest("a", vcpus, mib), &with_cells()).cells;
    let parts = |cells: Vec<nearmetal_place::GuestCell>| -> Vec<(usize, u64)> {
        cells.iter().map(|cell| (cell.vcpus.len(), cell.memory.get() >> 20)).collect()
    };
    // What wants two nodes for its vCPUs or its memory alone has both of both.
    assert_eq!(parts(cells(2, 5000)), [(1, 2500), (1, 2500)]);
    assert_eq!(parts(cells(12, 512)), [(6, 256), (6, 256)]);
    assert_eq!(parts(cells(11, 550)), [(6, 300), (5, 250)], "memory in proportion to vCPUs");
    let none = one(&host, guest("a", 1, 5000), &with_cells());
    assert!(none.cells.is_empty() && none.memory.nodes.len() == 2, "{none:?}");
    assert!(because(&none, "guest cells").contains("cannot be dealt"));
    // libvirt would round a cell of half a MiB up.
    let odd = GuestRequest { memory: Bytes::from_kib(5000 * 1024 + 512), ..guest("a", 4, 5000) };
    assert!(one(&host, odd, &with_cells()).cells.is_empty());
    assert!(because(&one(&host, guest("a", 2, 512), &with_cells()), "guest cells").contains("on one node"));
    // Siblings stay together.
    let host = machine.threads(2).build();
    assert_eq!(parts(one(&host, guest("a", 18, 512), &with_cells()).cells), [(10, 284), (8, 228)]);
    // Half a core is of a part with more cores, the last of them.
    assert_eq!(parts(one(&host, guest("a", 7, 5600), &with_cells()).cells), [(4, 3200), (3, 2400)]);
    assert_eq!(parts(one(&host, guest("a", 9, 5400), &with_cells()).cells), [(5, 3000), (4, 2400)]);
}

#[test]
fn cells_of_a_definition_stay_and_are_dealt_to_nodes_where_they_can_be() {
    let host = Synthetic::new().packages(2).cores_per_node(8).memory_per_node(Bytes::from_mib(4096)).build();
    let shows = |cells: &[(&str, u64)]| {
        let cell =
            |(vcpus, mib): &(&str, u64)| ShownCell { vcpus: set(vcpus), memory: Bytes::from_mib(*mib), node: None };
        GuestRequest { shows: Shown { cells: cells.iter().map(cell).collect(), threads: 0 }, ..guest("a", 4, 5000) }
    };
    let planned = one(&host, guest("a", 4, 5000), &with_cells());
    // As it is once it was applied, whoever plans it again, however; its distances are then the definition's.
    let own = shows(&[("0-1", 2500), ("2-3", 2500)]);
    let plain = |placement: &Placement| {
        let cells = placement.cells.iter().map(|cell| (cell.vcpus.clone(), cell.memory, cell.node));
        (cells.collect::<Vec<_>>(), placement.vcpus.clone(), placement.memory.clone())
    };
    for policy in [Policy::default(), with_cells()] {
        let again = one(&host, own.clone(), &policy);
        assert_eq!(plain(&again), plain(&planned));
        assert!(again.cells.iter().all(|cell| cell.distances.is_empty()));
    }
    // Uneven ones are dealt as they are, and bound ones to their nodes, whichever has more room.
    let uneven = one(&host, shows(&[("0", 1250), ("1-3", 3750)]), &Policy::default());
    assert_eq!(uneven.cells.iter().map(|cell| cell.vcpus.len()).collect::<Vec<_>>(), [1, 3]);
    for nodes in [[0, 1], [1, 0]] {
        let mut bound = shows(&[("0-1", 2500), ("2-3", 2500)]);
        bound.shows.cells.iter_mut().zip(nodes).for_each(|(cell, node)| cell.node = Some(node));
        let placement = one(&host, bound, &Policy::default());
        assert_eq!(placement.cells.iter().map(|cell| cell.node).collect::<Vec<_>>(), nodes);
    }
    for other in
        [shows(&[("0-3", 5000)]), shows(&[("0,2", 2500), ("1,3", 2500)]), shows(&[("0-1", 2500), ("2-3", 2000)])]
    {
        let placement = one(&host, other, &Policy::default());
        assert!(placement.cells.is_empty() && because(&placement, "guest cells").contains("shows it cells"));
    }
}

#[test]
fn a_guest_whose_cells_are_bound_where_a_node_is_full_is_refused_with_that_node() {
    let bound = |cells: &[(&str, Option<u32>)], vcpus| {
        let cell = |(vcpus, node): &(&str, Option<u32>)| ShownCell {
            vcpus: set(vcpus),
            memory: Bytes::from_mib(2500),
            node: *node,
        };
        let shows = Shown { cells: cells.iter().map(cell).collect(), threads: 0 };
        GuestRequest { shows, ..guest("a", vcpus, 5000) }
    };
    let machine = Synthetic::new().packages(2).cores_per_node(8).memory_per_node(Bytes::from_mib(4096));
    let mut host = machine.clone().build();
    host.nodes[1].memory_free = Some(Bytes::from_mib(2200));
    let plan = |host: &Host, guest| planned(host, &[guest], &Policy::default());
    let refused = plan(&host, bound(&[("0-1", Some(0)), ("2-3", Some(1))], 4));
    let problem = &refused.blocked[0].problem;
    let expected = "cell 1 is bound to node 1 and needs 2 PUs and 2500 MiB there, the node can give 8 and ";
    assert!(problem.starts_with(expected) && refused.pools.is_empty(), "{problem}");
    // Two of one node, which has no room for both.
    let refused = plan(&host, bound(&[("0-1", Some(0)), ("2-3", Some(0))], 4));
    assert!(
        refused.blocked[0].problem.starts_with("its cells cannot be placed where they are bound"),
        "{:?}",
        refused.blocked
    );
    // What is bound to none takes what each node has.
    assert_eq!(plan(&host, bound(&[("0-1", None), ("2-3", None)], 4)).blocked, []);
    // And beside a bound one, another node.
    let placement = &plan(&machine.clone().build(), bound(&[("0-1", None), ("2-3", Some(0))], 4)).placements[0];
    assert_eq!(placement.cells.iter().map(|cell| cell.node).collect::<Vec<_>>(), [1, 0]);
    // Elsewhere the definition keeps no policy of a cell.
    let mut wide = machine.clone().packages(4).build();
    wide.nodes[..2].iter_mut().for_each(|node| node.memory_free = Some(Bytes::ZERO));
    let placement = &plan(&wide, bound(&[("0-1", Some(0)), ("2-3", Some(1))], 4)).placements[0];
    assert_eq!((placement.memory.nodes.to_string().as_str(), placement.cells.len()), ("2-3", 0));
    // Rather the host's core than a refusal.
    let narrow = machine.cores_per_node(2).build();
    let placement = &plan(&narrow, bound(&[("0-1", Some(0)), ("2", Some(1))], 3)).placements[0];
    assert_eq!(placement.cells.iter().map(|cell| cell.node).collect::<Vec<_>>(), [0, 1]);
    assert!(because(placement, "vcpu pins").contains("the host's own core"), "{placement:?}");
}

#[test]
fn cells_that_siblings_or_pages_would_deal_otherwise_stay_as_they_are() {
    let host = Synthetic::new().packages(2).cores_per_node(8).threads(2).pool(PageSize::HUGE_2M, 0);
    let host = host.memory_per_node(Bytes::from_mib(2048)).build();
    let cells = |first: &str, second: &str| {
        let cell = |vcpus: &str| ShownCell { vcpus: set(vcpus), memory: Bytes::from_mib(1300), node: None };
        GuestRequest { shows: Shown { cells: vec![cell(first), cell(second)], threads: 0 }, ..guest("a", 10, 2600) }
    };
    for policy in [Policy::default(), core_each(), Policy { hugepages: false, ..Policy::default() }] {
        let sizes = |guest| one(&host, guest, &policy).cells.iter().map(|cell| cell.vcpus.len()).collect::<Vec<_>>();
        assert_eq!((sizes(cells("0-4", "5-9")), sizes(cells("0-5", "6-9"))), (vec![5, 5], vec![6, 4]));
    }
    // Cores that a definition shows with two threads are not cut.
    let host = Synthetic::new().packages(2).cores_per_node(8).memory_per_node(Bytes::from_mib(2048)).build();
    let threads = GuestRequest { shows: Shown { threads: 2, ..Shown::default() }, ..guest("a", 10, 2600) };
    assert_eq!(
        one(&host, threads, &with_cells()).cells.iter().map(|cell| cell.vcpus.len()).collect::<Vec<_>>(),
        [6, 4]
    );
}

#[test]
fn threads_of_a_definition_go_where_each_vcpu_has_a_core() {
    let host = Synthetic::new().packages(2).cores_per_node(8).threads(2).build();
    let shows = |threads| GuestRequest { shows: Shown { threads, ..Shown::default() }, ..guest("a", 4, 512) };
    let threads = |policy, threads| one(&host, shows(threads), &policy).threads_per_core;
    assert_eq!(
        (threads(core_each(), 2), threads(core_each(), 1), threads(Policy::default(), 2)),
        (Some(1), None, None)
    );
}

#[test]
fn distances_that_no_firmware_should_say_are_not_told() {
    let mut host = Synthetic::new().packages(2).cores_per_node(8).memory_per_node(Bytes::from_mib(4096)).build();
    host.nodes.iter_mut().flat_map(|node| &mut node.distances).for_each(|(_, distance)| *distance = 10);
    let placement = one(&host, guest("a", 4, 5000), &with_cells());
    assert!(
        placement.cells.len() == 2 && placement.cells.iter().all(|cell| cell.distances.is_empty()),
        "{placement:?}"
    );
}

fn policies() -> impl Strategy<Value = Policy> {
    (any::<[bool; 7]>()).prop_map(|[emulator, siblings, guest_cells, node, hugepages, iothread, shared]| Policy {
        iothread_on: if iothread { HelperOn::Node } else { HelperOn::Pu },
        iothreads: 1 + u32::from(shared),
        share_queues: shared,
        emulator: if emulator { HelperOn::Node } else { HelperOn::Pu },
        siblings: if siblings { Siblings::Spare } else { Siblings::Use },
        pins: if node { PinTo::Node } else { PinTo::Pu },
        guest_cells,
        hugepages,
        ..Policy::default()
    })
}

proptest! {
    #[test]
    fn whatever_is_chosen_no_two_guests_share_a_pu_and_cells_are_the_whole_guest(
        policy in policies(),
        threads in 1u32..3,
        sizes in prop::collection::vec((1u32..12, 1u64..6000), 1..4),
    ) {
        let machine = Synthetic::new().packages(2).cores_per_node(8).threads(threads).pool(PageSize::HUGE_2M, 0);
        let host = machine.memory_per_node(Bytes::from_mib(8192)).build();
        let guests: Vec<GuestRequest> = sizes.iter().enumerate().map(|(number, (vcpus, mib))| {
            GuestRequest { networks: vec![network("eth0")], ..guest(&format!("g{number}"), *vcpus, *mib) }
        }).collect();
        let plan = planned(&host, &guests, &policy);
        prop_assert_eq!(plan.placements.len() + plan.blocked.len(), guests.len());
        for placement in &plan.placements {
            let request = guests.iter().find(|guest| guest.name == placement.guest).unwrap();
            let vcpus: CpuSet = cpus(placement).into_iter().collect();
            for other in plan.placements.iter().filter(|other| other.guest != placement.guest) {
                if policy.pins == PinTo::Pu {
                    prop_assert!(vcpus.is_disjoint(&cpu_set(other)));
                    // Beyond the host's own core, which is the last resort, no helper is on a vCPU's PU.
                    let helpers = placement.emulator.difference(&host.cores[0].cpus);
                    prop_assert!(helpers.is_disjoint(&cpu_set(other)) && helpers.is_disjoint(&vcpus), "{plan:?}");
                }
            }
            if policy.siblings == Siblings::Spare && policy.pins == PinTo::Pu {
                let vcpus = cpu_set(placement);
                prop_assert!(host.cores.iter().all(|core| core.cpus.intersection(&vcpus).len() <= 1));
            }
            if !placement.cells.is_empty() {
                let memory = placement.cells.iter().fold(Bytes::ZERO, |sum, cell| sum.plus(cell.memory));
                let vcpus: usize = placement.cells.iter().map(|cell| cell.vcpus.len()).sum();
                prop_assert_eq!((memory, vcpus), (request.memory, request.vcpus as usize));
                let whole = |cell: &nearmetal_place::GuestCell| cell.memory.get() % (1 << 20) == 0;
                prop_assert!(placement.cells.iter().all(|cell| cell.memory > Bytes::ZERO && whole(cell)));
                let sizes = placement.cells.iter().map(|cell| cell.vcpus.len());
                prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= threads as usize);
                for pin in &placement.vcpus {
                    let cell = placement.cells.iter().find(|cell| cell.vcpus.contains(pin.vcpu)).unwrap();
                    prop_assert!(pin.cpus.is_subset(&host.node(cell.node).unwrap().cpus));
                }
            }
        }
    }
}
