//! What was measured goes before the rules, and nothing else of a plan changes.

mod common;

use common::{guest_on, plan};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_place::{CacheMode, DiskEngine, MeasuredDisk, use_measured};

fn measured(guest: &str, engine: DiskEngine) -> MeasuredDisk {
    MeasuredDisk {
        guest: guest.to_owned(),
        target: "vda".to_owned(),
        cache: CacheMode::None,
        engine,
        iothread: true,
        queues: None,
        because: "measured 2026-01-01 in a: 1.93x (1.80 to 2.07) of QEMU's default".to_owned(),
    }
}

#[test]
fn a_measured_path_replaces_the_rules_choice_and_says_so() {
    let host = Synthetic::new().cores_per_node(8).nvme(0).build();
    let guests = [guest_on("a", 2, 512, "nvme0n1"), guest_on("b", 2, 512, "nvme0n1")];
    let before = plan(&host, &guests).plan;
    let mut after = before.clone();
    use_measured(&host, &mut after, &[measured("a", DiskEngine::Native)]);
    assert_eq!(after.placements[1], before.placements[1], "another guest's disk is not this one's");
    let (old, new) = (&before.placements[0], &after.placements[0]);
    assert_ne!(old.disks[0].engine, DiskEngine::Native, "the rules would have it otherwise");
    assert_eq!((new.disks[0].engine, new.disks[0].iothread), (DiskEngine::Native, old.disks[0].iothread));
    assert_eq!((&new.vcpus, &new.memory, new.disks[0].queues), (&old.vcpus, &old.memory, old.disks[0].queues));
    let disk: Vec<_> = new.reasons.iter().filter(|reason| reason.subject == "disk vda").collect();
    assert!(
        disk[0].because.contains("1.93x") && disk[0].choice == "cache none, engine native, an iothread",
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
    use_measured(&host, &mut plan, &[main_loop]);
    assert_eq!((plan.placements[0].disks[0].iothread, plan.placements[0].disks[0].queues), (None, Some(1)));
}

#[test]
fn an_engine_the_kernel_refuses_now_is_not_used() {
    let mut host = Synthetic::new().nvme(0).build();
    host.system.io_uring_disabled = Some(2);
    let before = plan(&host, &[guest_on("a", 2, 512, "nvme0n1")]).plan;
    let mut after = before.clone();
    use_measured(&host, &mut after, &[measured("a", DiskEngine::IoUring)]);
    assert_eq!(after.placements[0].disks, before.placements[0].disks);
    assert!(after.placements[0].reasons.iter().any(|reason| reason.because.contains("io_uring_disabled is 2 now")));
}
