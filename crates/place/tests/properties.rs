//! What holds for every plan, over random machines and guests.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{applied, cpu_set, guest, helper_set};
use nearmetal_host::Host;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_place::{Allowed, GuestRequest, Occupied, Plan, Policy, plan};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};
use proptest::prelude::*;

/// A machine of up to 8 nodes, some PUs offline.
fn machine() -> impl Strategy<Value = Synthetic> {
    let numbering = prop_oneof![Just(Numbering::Adjacent), Just(Numbering::Split), Just(Numbering::Dealt)];
    (1u32..=4, 1u32..=2, 1u32..=2, 1u32..=5, 1u32..=2, numbering, 256u64..4096, 0u64..200).prop_map(
        |(packages, nodes, caches, cores, threads, numbering, mib, pool)| {
            Synthetic::new()
                .packages(packages)
                .nodes_per_package(nodes)
                .caches_per_node(caches)
                .cores_per_node(cores)
                .threads(threads)
                .numbering(numbering)
                .memory_per_node(Bytes::from_mib(mib + 2 * pool))
                .pool(PageSize::HUGE_2M, pool)
                .nvme(0)
                .nvme(packages - 1)
                .network(packages * nodes - 1, 4, 1)
        },
    )
}

/// The same machine with some PUs offline.
fn host() -> impl Strategy<Value = Host> {
    (machine(), prop::collection::vec(any::<prop::sample::Index>(), 0..4)).prop_map(|(machine, offline)| {
        let mut host = machine.build();
        for index in offline {
            let count = host.processors.len();
            host.processors[index.index(count)].online = false;
        }
        host
    })
}

fn guests() -> impl Strategy<Value = Vec<GuestRequest>> {
    let one = (1u32..7, 64u64..1500, 0usize..4);
    prop::collection::vec(one, 1..6).prop_map(|list| {
        let request = |(index, (vcpus, mib, device)): (usize, (u32, u64, usize))| {
            let mut request = guest(&format!("guest{index}"), vcpus, mib);
            match device {
                0 => {}
                1 => request.disks = vec![common::block_disk("vda", "nvme0n1")],
                2 => request.disks = vec![common::block_disk("vda", "nvme1n1")],
                _ => request.networks = vec![common::network("eth0")],
            }
            request
        };
        list.into_iter().enumerate().map(request).collect()
    })
}

fn planned(host: &Host, guests: &[GuestRequest]) -> Plan {
    plan(host, &Occupied::default(), guests, &Policy::default()).plan
}

/// Everything but the pools' present size, which carrying a plan out changes.
fn decisions(plan: &Plan) -> impl PartialEq + std::fmt::Debug + use<> {
    let placement = |placement: &nearmetal_place::Placement| {
        (
            placement.vcpus.clone(),
            placement.emulator.clone(),
            placement.iothreads.clone(),
            placement.memory.clone(),
            placement.disks.clone(),
        )
    };
    let pools: Vec<_> = plan.pools.iter().map(|pool| (pool.node, pool.size, pool.after)).collect();
    (plan.placements.iter().map(placement).collect::<Vec<_>>(), pools, plan.blocked.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_guest_is_placed_or_refused_and_no_pu_has_two_owners(host in host(), guests in guests()) {
        let plan = planned(&host, &guests);
        prop_assert_eq!(plan.placements.len() + plan.blocked.len(), guests.len());
        let mut owned = CpuSet::new();
        for placement in &plan.placements {
            let request = guests.iter().find(|guest| guest.name == placement.guest).unwrap();
            prop_assert_eq!(placement.vcpus.len(), request.vcpus as usize);
            for (number, pin) in (0u32..).zip(&placement.vcpus) {
                prop_assert_eq!((pin.vcpu, pin.cpus.len()), (number, 1));
                prop_assert!(pin.cpus.is_subset(&host.online()));
                prop_assert!(owned.is_disjoint(&pin.cpus), "PU {} has two owners", pin.cpus);
                owned = owned.union(&pin.cpus);
            }
            prop_assert!(!placement.emulator.is_empty() && placement.emulator.is_subset(&host.online()));
            prop_assert!(placement.iothreads.iter().all(|set| !set.is_empty() && set.is_subset(&host.online())));
        }
    }

    #[test]
    fn a_guest_in_one_node_has_pus_and_memory_there(host in host(), guests in guests()) {
        for placement in planned(&host, &guests).placements {
            let nodes: BTreeSet<u32> = cpu_set(&placement).iter().filter_map(|cpu| host.node_of_cpu(cpu)).map(|node| node.index).collect();
            let named = placement.reasons.iter().find(|reason| reason.subject == "node").unwrap();
            let expected = nodes.first().map(|node| format!("node {node}")).unwrap_or_default();
            prop_assert!(nodes.len() > 1 || named.choice == expected);
            prop_assert!(!placement.memory.nodes.is_empty());
        }
    }

    #[test]
    fn helper_threads_stay_off_vcpus_while_a_pu_is_free(host in host(), guests in guests()) {
        let plan = planned(&host, &guests);
        let vcpus = plan.placements.iter().fold(CpuSet::new(), |all, placement| all.union(&cpu_set(placement)));
        if vcpus != host.online() {
            for placement in &plan.placements {
                prop_assert!(helper_set(placement).is_disjoint(&vcpus));
            }
        }
    }

    #[test]
    fn a_core_is_shared_only_when_whole_cores_ran_out(host in host(), guests in guests()) {
        for placement in planned(&host, &guests).placements {
            let own = cpu_set(&placement);
            let pins = placement.reasons.iter().find(|reason| reason.subject == "vcpu pins").unwrap();
            let partly: Vec<_> = host.cores.iter()
                .map(|core| core.cpus.intersection(&host.online()))
                .filter(|core| !core.is_disjoint(&own) && !core.is_subset(&own))
                .collect();
            // On each of its nodes a guest leaves at most one core half used, unless it says that it shares.
            let nodes: BTreeSet<u32> = own.iter().filter_map(|cpu| host.node_of_cpu(cpu)).map(|node| node.index).collect();
            prop_assert!(partly.len() <= nodes.len() || pins.because.contains("share a core"), "{partly:?} of {own}");
        }
    }

    #[test]
    fn siblings_are_neighbours(host in host(), guests in guests()) {
        for placement in planned(&host, &guests).placements {
            let cpus = common::cpus(&placement);
            let core = |cpu: u32| host.cores.iter().position(|core| core.cpus.contains(cpu));
            // All vCPUs of one core stand in a row.
            let mut last = BTreeMap::new();
            for (place, cpu) in cpus.iter().enumerate() {
                if let Some(before) = last.insert(core(*cpu), place) {
                    prop_assert_eq!(before + 1, place, "{:?}", cpus);
                }
            }
        }
    }

    #[test]
    fn pools_and_memory_fit_and_the_reserve_is_kept(host in host(), guests in guests()) {
        let policy = Policy::default();
        let plan = planned(&host, &guests);
        for change in &plan.pools {
            let node = host.node(change.node).unwrap();
            let grown = change.size.bytes().times(change.after - change.before);
            let room = node.memory_free.unwrap().less(policy.reserve(node.memory_total));
            prop_assert!(grown <= room, "node {}: {grown} of {room}", change.node);
        }
        let needed: u64 = plan.placements.iter().map(|placement| placement.memory.pages).sum();
        let pooled: u64 = plan.pools.iter().map(|change| change.after).sum();
        prop_assert!(needed <= pooled);
    }

    #[test]
    fn the_same_question_has_the_same_answer(host in host(), guests in guests()) {
        prop_assert_eq!(planned(&host, &guests), planned(&host, &guests));
    }

    #[test]
    fn a_plan_carried_out_is_planned_again(host in host(), guests in guests()) {
        let first = plan(&host, &Occupied::default(), &guests, &Policy::default());
        let after = applied(&host, &first, &guests);
        let names: Vec<String> = guests.iter().map(|guest| guest.uuid.clone()).collect();
        let occupied = Occupied::from_guests(&after, &names);
        let second = plan(&after, &occupied, &guests, &Policy::default());
        prop_assert_eq!(decisions(&first.plan), decisions(&second.plan));
    }

    #[test]
    fn a_plan_uses_no_pu_and_no_node_beyond_what_is_allowed(
        host in host(),
        guests in guests(),
        cpus in prop::option::of(prop::collection::btree_set(0u32..40, 0..20)),
        nodes in prop::option::of(prop::collection::btree_set(0u32..8, 0..5)),
        vhost_pus in 0u32..3,
    ) {
        let cpus: Option<CpuSet> = cpus.map(|cpus| cpus.into_iter().collect());
        let nodes: Option<NodeSet> = nodes.map(|nodes| nodes.into_iter().collect());
        let allowed = Allowed { cpus: cpus.clone(), nodes: nodes.clone() };
        let policy = Policy { allowed, vhost_pus, ..Policy::default() };
        let plan = plan(&host, &Occupied::default(), &guests, &policy).plan;
        prop_assert_eq!(plan.placements.len() + plan.blocked.len(), guests.len());
        for placement in &plan.placements {
            let threads = cpu_set(placement).union(&helper_set(placement));
            prop_assert!(cpus.as_ref().is_none_or(|cpus| threads.is_subset(cpus)), "{threads} beyond {cpus:?}");
            prop_assert!(nodes.as_ref().is_none_or(|nodes| placement.memory.nodes.is_subset(nodes)));
            prop_assert!(!placement.emulator.is_empty());
        }
        // What is refused is refused with the numbers of what is allowed.
        for blocked in &plan.blocked {
            prop_assert!(blocked.problem.contains("PUs") || blocked.problem.contains("memory"), "{}", blocked.problem);
            prop_assert!(!blocked.problem.contains("PUs of its own") || cpus.is_none() || blocked.problem.contains("allowed"));
        }
        let pools = plan.pools.iter().filter(|pool| pool.after > pool.before).all(|pool| {
            nodes.as_ref().is_none_or(|nodes| nodes.contains(pool.node))
        });
        prop_assert!(pools);
    }

    #[test]
    fn running_guests_keep_their_pus(host in host(), guests in guests()) {
        let (old, new) = guests.split_at(guests.len() / 2);
        let first = plan(&host, &Occupied::default(), old, &Policy::default());
        let after = applied(&host, &first, old);
        let occupied = Occupied::from_guests::<&str>(&after, &[]);
        let second = plan(&after, &occupied, new, &Policy::default());
        for placement in &second.plan.placements {
            for other in &first.plan.placements {
                // A guest whose vCPUs may run on the whole machine owns nothing: possible only on tiny ones.
                let owns = !host.online().is_subset(&cpu_set(other).iter().take(1).collect());
                prop_assert!(!owns || cpu_set(placement).is_disjoint(&cpu_set(other)));
            }
        }
    }

    #[test]
    fn one_more_node_blocks_nobody(machine in machine(), guests in guests(), packages in 1u32..4) {
        let small = machine.clone().packages(packages).build();
        let large = machine.packages(packages + 1).build();
        let placed = |host: &Host| -> BTreeSet<String> {
            planned(host, &guests).placements.into_iter().map(|placement| placement.guest).collect()
        };
        let (before, after) = (placed(&small), placed(&large));
        // Only where everything was placed: a guest that fits now may take the room of a later one.
        if before.len() == guests.len() {
            prop_assert_eq!(before, after);
        }
    }
}
