//! What was measured goes before the rules, and nothing else of a plan changes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{because, block_disk, choice, guest, guest_on, network, plan};
use nearmetal_host::ImageFile;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_place::{
    CacheMode, DiskEngine, DiskRequest, GuestRequest, Measured, MeasuredDisk, MeasuredGuest, MeasuredNetwork,
    NetworkBackend, NetworkPlacement, Occupied, Placement, Policy, WorkloadClass, plan_tuned, use_measured,
};
use proptest::prelude::*;

/// The address of [`common::network`].
const MAC: &str = "52:54:00:00:00:01";

fn disks(disks: &[MeasuredDisk]) -> Measured {
    Measured { disks: disks.to_vec(), ..Measured::default() }
}

/// A measured interface of a guest; `None` where the winner is another kind of connection.
fn interface(guest: &str, options: Option<(NetworkBackend, u32, bool)>) -> Measured {
    let mac = MAC.parse().unwrap();
    let set = |(backend, queues, offloads_off)| NetworkPlacement { mac, backend, queues, offloads_off };
    let because = "measured 2026-01-01 in a: 1.93× (1.80–2.07) of libvirt's default".to_owned();
    let network = MeasuredNetwork { guest: guest.to_owned(), mac, options: options.map(set), because };
    Measured { networks: vec![network], ..Measured::default() }
}

fn networked(name: &str, class: WorkloadClass) -> GuestRequest {
    GuestRequest { class, networks: vec![network("eth0")], ..guest(name, 2, 512) }
}

fn measured(guest: &str, engine: DiskEngine) -> MeasuredDisk {
    MeasuredDisk {
        guest: guest.to_owned(),
        target: "vda".to_owned(),
        cache: CacheMode::None,
        engine,
        iothread: true,
        queues: None,
        because: "measured 2026-01-01 in a: 1.93× (1.80–2.07) of QEMU's default".to_owned(),
    }
}

#[test]
fn a_measured_path_replaces_the_rules_choice_and_says_so() {
    let host = Synthetic::new().cores_per_node(8).nvme(0).build();
    let guests = [guest_on("a", 2, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")];
    let before = plan(&host, &guests).plan;
    let mut after = before.clone();
    use_measured(&host, &mut after, &disks(&[measured("a", DiskEngine::Native)]));
    assert_eq!(after.placements[1], before.placements[1], "another guest's disk is not this one's");
    let (old, new) = (&before.placements[0], &after.placements[0]);
    assert_ne!(old.disks[0].engine, DiskEngine::Native, "the rules would have it otherwise");
    assert_eq!((new.disks[0].engine, new.disks[0].iothread), (DiskEngine::Native, old.disks[0].iothread));
    assert_eq!((&new.vcpus, &new.memory, new.disks[0].queues), (&old.vcpus, &old.memory, old.disks[0].queues));
    let place = |of: &Placement| of.reasons.iter().position(|reason| reason.subject == "disk vda");
    assert_eq!(place(new), place(old), "it stands where the rules' choice stood");
    let disk: Vec<_> = new.reasons.iter().filter(|reason| reason.subject == "disk vda").collect();
    assert!(
        disk[0].because.contains("1.93×") && disk[0].choice == "cache none, engine native, an iothread",
        "{disk:?}"
    );
    assert!(!disk.iter().any(|reason| reason.choice.starts_with("engine ")), "one choice, one reason: {disk:?}");
    assert!(disk.iter().any(|reason| reason.choice.starts_with("queues ")), "queues were not measured: {disk:?}");
}

#[test]
fn the_main_loop_takes_the_disk_off_its_iothread() {
    let host = Synthetic::new().nvme(0).build();
    let mut plan = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan;
    let main_loop = MeasuredDisk { iothread: false, queues: Some(1), ..measured("a", DiskEngine::Threads) };
    use_measured(&host, &mut plan, &disks(&[main_loop]));
    assert_eq!((plan.placements[0].disks[0].iothread, plan.placements[0].disks[0].queues), (None, Some(1)));
}

#[test]
fn an_engine_the_kernel_refuses_now_is_not_used() {
    let mut host = Synthetic::new().nvme(0).build();
    host.system.io_uring_disabled = Some(2);
    let before = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan;
    let mut after = before.clone();
    use_measured(&host, &mut after, &disks(&[measured("a", DiskEngine::IoUring)]));
    assert_eq!(after.placements[0].disks, before.placements[0].disks);
    assert!(after.placements[0].reasons.iter().any(|reason| reason.because.contains("io_uring_disabled is 2 now")));
}

#[test]
fn an_engine_is_refused_only_where_the_kernel_refuses_that_one() {
    for (disabled, engine) in [(2, DiskEngine::Threads), (0, DiskEngine::IoUring)] {
        let mut host = Synthetic::new().nvme(0).build();
        host.system.io_uring_disabled = Some(disabled);
        let mut plan = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan;
        use_measured(&host, &mut plan, &disks(&[measured("a", engine)]));
        let placement = &plan.placements[0];
        assert_eq!(placement.disks[0].engine, engine);
        assert_eq!(choice(placement, "disk vda"), format!("cache none, engine {}, an iothread", engine.name()));
    }
}

#[test]
fn a_measured_cache_is_refused_where_the_file_does_not_open_past_the_page_cache() {
    let mut host = Synthetic::new().build();
    let file = DiskRequest { is_block: false, block_device: None, ..block_disk("vda", "b.raw") };
    let direct = ImageFile { path: "/dev/b.raw".to_owned(), direct: Some(false), ..ImageFile::default() };
    host.images = vec![direct];
    let before = plan(&host, &[GuestRequest { disks: vec![file], ..guest("a", 2, 512) }]).plan;
    let mut after = before.clone();
    use_measured(&host, &mut after, &disks(&[measured("a", DiskEngine::Threads)]));
    assert_eq!(after.placements[0].disks, before.placements[0].disks);
    assert!(because(&after.placements[0], "disk vda").contains("but its file does not open past"));
    let cached = MeasuredDisk { cache: CacheMode::Writeback, ..measured("a", DiskEngine::Threads) };
    use_measured(&host, &mut after, &disks(&[cached]));
    assert_eq!(after.placements[0].disks[0].engine, DiskEngine::Threads);
}

/// The plans of two guests of which `a` was measured best with these choices.
fn tuned(choices: &str) -> Vec<Placement> {
    let host = Synthetic::new().cores_per_node(16).nvme(0).pool(nearmetal_units::PageSize::HUGE_2M, 0).build();
    let guests = vec![MeasuredGuest {
        guest: "a".to_owned(),
        choices: choices.parse().unwrap(),
        disk: "vda".to_owned(),
        has_raced_queues: false,
        because: "measured by tune run 7 on 2026-01-01".to_owned(),
    }];
    let measured = Measured { guests, ..disks(&[measured("a", DiskEngine::Threads)]) };
    let mut requests = [guest_on("a", 2, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")];
    measured.expect_in(&mut requests);
    let mut planned = plan_tuned(&host, &Occupied::default(), &requests, &Policy::default(), &measured.guests).plan;
    use_measured(&host, &mut planned, &measured);
    planned.placements
}

#[test]
fn a_tune_that_leaves_the_disk_to_the_rules_measured_it_so_and_no_race_changes_it() {
    let [a, _] = &tuned("node.huge.rule.iothread")[..] else { panic!("both fit") };
    let host = Synthetic::new().cores_per_node(16).nvme(0).build();
    let by_rule = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan.placements.remove(0);
    assert_eq!((a.disks[0].engine, a.disks[0].queues), (by_rule.disks[0].engine, by_rule.disks[0].queues));
    assert_ne!(a.disks[0].engine, DiskEngine::Threads, "what the race found");
}

#[test]
fn what_a_tune_found_is_planned_for_that_guest_alone_and_names_the_run() {
    let [a, b] = &tuned("node.small.none-native.main-loop")[..] else { panic!("both fit") };
    assert_eq!((a.memory.page_size, a.iothreads.len()), (None, 0));
    assert_eq!(
        (a.disks[0].engine, a.disks[0].iothread),
        (DiskEngine::Native, None),
        "it goes before a race of the disk"
    );
    assert_eq!(choice(a, "tuned"), "vCPUs on their node, small pages, none/native, main loop");
    assert_eq!(because(a, "tuned"), "measured by tune run 7 on 2026-01-01");
    assert_eq!(choice(a, "node"), "node 0", "the reasons that still hold stand");
    assert_eq!(choice(a, "vcpu pins"), format!("PUs {} for all of them", a.vcpus[0].cpus));
    assert!(a.vcpus.iter().all(|pin| pin.cpus == a.vcpus[0].cpus && pin.cpus.len() > 2), "{:?}", a.vcpus);
    let others = b.vcpus.iter().map(|pin| &pin.cpus).chain(b.iothreads.iter()).chain([&b.emulator, &a.emulator]);
    assert!(others.clone().all(|set| set.is_disjoint(&a.vcpus[0].cpus)), "nobody else runs there");
    assert!(b.memory.page_size.is_some() && b.vcpus.iter().all(|pin| pin.cpus.len() == 1));
    assert!(tuned("float")[0].is_floating() && !tuned("float")[1].is_floating());
}

#[test]
fn a_measured_interface_is_set_on_its_guest_alone_and_says_so() {
    let host = Synthetic::new().cores_per_node(8).network(0, 0, 0).build();
    let guests = [networked("a", WorkloadClass::General), networked("b", WorkloadClass::General)];
    let before = plan(&host, &guests).plan;
    let mut after = before.clone();
    use_measured(&host, &mut after, &interface("a", Some((NetworkBackend::Vhost, 2, true))));
    assert_eq!(after.placements[1], before.placements[1], "another guest's interface is not this one's");
    let subject = format!("interface {MAC}");
    assert_eq!(choice(&after.placements[0], &subject), "backend vhost, 2 queues, offloads off");
    assert!(because(&after.placements[0], &subject).contains("1.93×"));
    let set = &after.placements[0].networks;
    assert_eq!((set.len(), set[0].queues, set[0].offloads_off), (1, 2, true));
    assert_eq!(after.placements[0].vcpus, before.placements[0].vcpus);
}

#[test]
fn another_kind_of_connection_is_told_and_not_set() {
    let host = Synthetic::new().network(0, 0, 0).build();
    let mut planned = plan(&host, &[networked("a", WorkloadClass::General)]);
    let before = planned.plan.clone();
    use_measured(&host, &mut planned.plan, &interface("a", None));
    assert_eq!(planned.plan.placements[0].networks, []);
    assert_eq!(choice(&planned.plan.placements[0], &format!("interface {MAC}")), "left as it is");
    assert!(nearmetal_place::render(&planned).contains("because measured 2026-01-01"), "the text says it too");
    planned.plan.placements[0].reasons.pop();
    assert_eq!(planned.plan, before, "but for the reason nothing is changed");
}

#[test]
fn the_planner_gives_workers_pus_only_where_the_measured_backend_has_workers() {
    let host = Synthetic::new().cores_per_node(8).network(0, 0, 0).build();
    let policy = Policy { vhost_pus: 1, ..Policy::default() };
    let planned = |measured: &Measured, class| {
        let mut requests = [networked("a", class)];
        measured.expect_in(&mut requests);
        let mut plan = nearmetal_place::plan(&host, &Default::default(), &requests, &policy).plan;
        use_measured(&host, &mut plan, measured);
        plan.placements.remove(0)
    };
    let user = planned(&interface("a", Some((NetworkBackend::Qemu, 1, false))), WorkloadClass::General);
    assert!(user.vhost.is_empty(), "no worker, no PU");
    assert_eq!(user.networks[0].backend, NetworkBackend::Qemu);
    for measured in [interface("b", Some((NetworkBackend::Qemu, 1, false))), interface("a", None)] {
        assert_eq!(planned(&measured, WorkloadClass::General).vhost.len(), 1, "its interface stays as it is");
    }
    let floating = planned(&interface("a", Some((NetworkBackend::Qemu, 1, false))), WorkloadClass::Density);
    assert!(floating.is_floating() && floating.networks.is_empty(), "it was measured pinned");
}

proptest! {
    #[test]
    fn a_measured_interface_moves_no_thread_and_no_page(
        cores in 2u32..9, vcpus in 1u32..7, queues in 1u32..9, offloads_off: bool, set: bool
    ) {
        let host = Synthetic::new().cores_per_node(cores).network(0, 0, 0).build();
        let request = GuestRequest { networks: vec![network("eth0")], ..guest("a", vcpus, 512) };
        let before = plan(&host, &[request]).plan;
        let mut after = before.clone();
        let options = set.then_some((NetworkBackend::Vhost, queues, offloads_off));
        use_measured(&host, &mut after, &interface("a", options));
        for placement in &mut after.placements {
            prop_assert_eq!(placement.networks.len(), usize::from(set));
            prop_assert_eq!(placement.reasons.pop().map(|reason| reason.subject), Some(format!("interface {MAC}")));
            placement.networks.clear();
        }
        prop_assert_eq!(after, before);
    }
}

/// A guest that was tuned and whose interface was raced, too, planned again.
fn tuned_and_raced(choices: &str, has_raced_queues: bool) -> Placement {
    let host = Synthetic::new().cores_per_node(16).nvme(0).build();
    let (guest, disk) = ("a".to_owned(), "vda".to_owned());
    let (choices, because) = (choices.parse().unwrap(), "measured".to_owned());
    let guests = vec![MeasuredGuest { guest: guest.clone(), choices, disk, has_raced_queues, because }];
    let mac = network("eth0").mac.parse().unwrap();
    let raced = NetworkPlacement { mac, backend: NetworkBackend::Qemu, queues: 4, offloads_off: false };
    let networks = vec![MeasuredNetwork { guest, mac, options: Some(raced), because: "raced".to_owned() }];
    let measured = Measured { guests, networks, ..Measured::default() };
    let mut requests = [GuestRequest { networks: vec![network("eth0")], ..guest_on("a", 2, 512, "nvme0n1") }];
    measured.expect_in(&mut requests);
    let mut plan = plan_tuned(&host, &Occupied::default(), &requests, &Policy::default(), &measured.guests).plan;
    use_measured(&host, &mut plan, &measured);
    plan.placements.remove(0)
}

#[test]
fn a_tune_that_kept_queues_keeps_them_from_a_race_of_networks_and_one_that_did_not_race_them_does_not() {
    let decided = |raced| tuned_and_raced("pu.small.none-native.iothread", raced).networks.len();
    assert_eq!([true, false].map(decided), [0, 1]);
}

#[test]
fn what_a_tune_found_of_iothreads_polling_and_queues_is_planned_again_and_no_race_of_networks_changes_it() {
    let placement = tuned_and_raced("pu.small.none-native.iothread.two-iothreads.guest-polls.net-one-queue", true);
    assert_eq!((placement.disks[0].iothread, placement.disks[0].iothreads), (None, Some(2)));
    assert_eq!((placement.guest_polls, placement.iothreads.len()), (Some(true), 2));
    let decided: Vec<_> = placement.networks.iter().map(|own| (own.backend, own.queues)).collect();
    assert_eq!(decided, [(NetworkBackend::Vhost, 1)]);
    assert!(choice(&placement, "disk vda").contains("2 iothreads"), "{:?}", placement.reasons);
}
