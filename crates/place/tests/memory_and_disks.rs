//! Page sizes, pools and disk options.

mod common;

use common::{because, block_disk, choice, guest, guest_on, plan, process};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Host, ImageFile, ThreadRole};
use nearmetal_place::{CacheMode, DiskEngine, DiskRequest, GuestRequest, Occupied, Placement, Policy};
use nearmetal_units::{Bytes, PageSize};

#[test]
fn pools_keep_what_others_use_and_never_shrink() {
    let mut host = Synthetic::new().pool(PageSize::HUGE_2M, 300).build();
    // 200 pages are somebody's; 100 are spare; 256 are needed.
    host.nodes[0].pools[0].free = 100;
    let planned = plan(&host, &[guest("a", 1, 512)]);
    assert_eq!((planned.plan.pools[0].before, planned.plan.pools[0].after), (300, 456));
    host.nodes[0].pools[0].free = 290;
    let planned = plan(&host, &[guest("a", 1, 512)]);
    assert_eq!((planned.plan.pools[0].before, planned.plan.pools[0].after), (300, 300));
    assert!(because(&planned.plan.placements[0], "pool").contains("large enough"));
}

#[test]
fn pages_of_the_guest_itself_are_not_somebody_elses() {
    let mut host = Synthetic::new().pool(PageSize::HUGE_2M, 256).build();
    host.nodes[0].pools[0].free = 0;
    host.guests =
        vec![process("a", vec![(ThreadRole::Vcpu(0), "0".parse().unwrap())], vec![(0, PageSize::HUGE_2M, 256)])];
    let request = [guest("a", 1, 512)];
    let policy = Policy::default();
    let alone = nearmetal_place::plan(&host, &Occupied::from_guests(&host, &["uuid-of-a"]), &request, &policy);
    assert_eq!((alone.plan.pools[0].before, alone.plan.pools[0].after), (256, 256));
    let beside =
        nearmetal_place::plan(&host, &Occupied::from_guests::<&str>(&host, &[]), &[guest("b", 1, 512)], &policy);
    assert_eq!((beside.plan.pools[0].before, beside.plan.pools[0].after), (256, 512));
    // Nor are they missing to the rules that are asked of the planned guest.
    let free = |except: &[&str]| {
        let mut told = host.clone();
        Occupied::from_guests(&host, except).give_back(&mut told);
        told.nodes[0].pools[0].free
    };
    assert_eq!((free(&["uuid-of-a"]), free(&[])), (256, 0));
}

#[test]
fn memory_the_guest_holds_in_small_pages_comes_back_when_it_restarts() {
    let mut host = Synthetic::new().memory_per_node(Bytes::from_mib(2048)).build();
    host.nodes[0].memory_free = Some(Bytes::from_mib(700));
    host.guests = vec![process("a", vec![], vec![(0, PageSize::SMALL, 262_144)])];
    let request = [guest("a", 1, 1024)];
    let blocked = nearmetal_place::plan(&host, &Occupied::default(), &request, &Policy::default());
    assert_eq!(blocked.plan.blocked.len(), 1);
    let planned =
        nearmetal_place::plan(&host, &Occupied::from_guests(&host, &["uuid-of-a"]), &request, &Policy::default());
    assert_eq!(planned.plan.placements.len(), 1);
}

#[test]
fn page_cache_does_not_stand_in_a_guests_way() {
    let mut host = Synthetic::new().memory_per_node(Bytes::from_mib(2048)).build();
    host.nodes[0].memory_free = Some(Bytes::from_mib(300));
    let request = [guest("a", 1, 1024)];
    let plan = |host: &Host| nearmetal_place::plan(host, &Occupied::default(), &request, &Policy::default()).plan;
    assert_eq!(plan(&host).blocked.len(), 1);
    host.nodes[0].memory_reclaimable = Some(Bytes::from_mib(1600));
    assert_eq!(plan(&host).placements.len(), 1);
}

#[test]
fn gigantic_pages_are_taken_only_where_allowed_and_whole() {
    let host = Synthetic::new().build();
    let gigantic = Policy { gigantic_pages: true, ..Policy::default() };
    let size = |policy: &Policy, mib| {
        let planned = nearmetal_place::plan(&host, &Occupied::default(), &[guest("a", 1, mib)], policy);
        planned.plan.placements[0].memory.page_size
    };
    assert_eq!(size(&gigantic, 2048), Some(PageSize::HUGE_1G));
    assert_eq!(size(&gigantic, 2049), Some(PageSize::HUGE_2M));
    // Three whole pages of 1 GiB are left beyond the reserve, not four: 2 MiB pages hold what fits.
    assert_eq!(size(&gigantic, 3072), Some(PageSize::HUGE_1G));
    assert_eq!(size(&Policy::default(), 2048), Some(PageSize::HUGE_2M));
    assert_eq!(size(&Policy { hugepages: false, ..Policy::default() }, 2048), None);
}

#[test]
fn a_host_without_pools_gets_none_and_says_so() {
    let mut host = Synthetic::new().build();
    host.nodes[0].pools.clear();
    let planned = plan(&host, &[guest("a", 1, 512)]);
    assert_eq!((planned.plan.placements[0].memory.page_size, planned.plan.placements[0].memory.pages), (None, 0));
    assert!(because(&planned.plan.placements[0], "hugepages").contains("the host has no hugepage pool"));
    assert!(planned.plan.pools.is_empty());
}

#[test]
fn unknown_free_memory_is_taken_as_enough_and_said() {
    let mut host = Synthetic::new().build();
    host.nodes[0].memory_free = None;
    let planned = plan(&host, &[guest("a", 1, 512)]);
    assert_eq!(planned.plan.placements.len(), 1);
    assert!(planned.report.assumptions[0].contains("node 0 does not say"));
}

#[test]
fn the_engine_follows_what_the_kernel_allows() {
    let mut host = Synthetic::new().nvme(0).build();
    let file = DiskRequest {
        source: Some("/var/lib/images/b.qcow2".to_owned()),
        block_device: None,
        is_block: false,
        ..block_disk("vdb", "x")
    };
    let request = GuestRequest { disks: vec![block_disk("vda", "nvme0n1"), file], ..guest("a", 2, 512) };
    let table = [
        (Some(0), "6.12.0", DiskEngine::IoUring, DiskEngine::IoUring),
        (None, "6.1.0-30-amd64", DiskEngine::IoUring, DiskEngine::IoUring),
        (None, "5.13.0", DiskEngine::IoUring, DiskEngine::IoUring),
        (Some(1), "6.12.0", DiskEngine::Native, DiskEngine::Threads),
        (Some(2), "6.12.0", DiskEngine::Native, DiskEngine::Threads),
        (None, "5.10.0-8", DiskEngine::Native, DiskEngine::Threads),
    ];
    for (disabled, kernel, block, other) in table {
        host.system.io_uring_disabled = disabled;
        host.system.kernel = Some(kernel.to_owned());
        let planned = plan(&host, std::slice::from_ref(&request));
        let disks = &planned.plan.placements[0].disks;
        assert_eq!((disks[0].engine, disks[1].engine), (block, other), "{disabled:?} {kernel}");
        assert!(disks.iter().all(|disk| disk.cache == CacheMode::None));
    }
}

#[test]
fn a_file_that_does_not_open_past_the_page_cache_is_read_through_it() {
    let mut host = Synthetic::new().build();
    let path = "/run/images/b.raw".to_owned();
    let file =
        DiskRequest { source: Some(path.clone()), block_device: None, is_block: false, ..block_disk("vda", "x") };
    let request = [GuestRequest { disks: vec![file], ..guest("a", 2, 512) }];
    for (direct, cache, word) in [
        (None, CacheMode::None, "cache none"),
        (Some(true), CacheMode::None, "cache none"),
        (Some(false), CacheMode::Writeback, "cache writeback"),
    ] {
        host.images = vec![ImageFile { path: path.clone(), direct, ..ImageFile::default() }];
        let placement = &plan(&host, &request).plan.placements[0];
        assert_eq!((placement.disks[0].cache, placement.disks[0].engine), (cache, DiskEngine::IoUring), "{direct:?}");
        assert_eq!(choice(placement, "disk vda"), word);
        assert_eq!(because(placement, "disk vda").contains("O_DIRECT"), direct == Some(false));
    }
}

#[test]
fn iothread_and_queues_are_for_virtio_disks_and_read_only_ones_stay() {
    let host = Synthetic::new().cores_per_node(32).nvme(0).build();
    let scsi = DiskRequest { is_virtio_blk: false, ..block_disk("sda", "nvme0n1") };
    let cdrom = DiskRequest { is_read_only: true, ..scsi.clone() };
    let remote = DiskRequest { source: None, ..block_disk("vdc", "x") };
    let mut request = GuestRequest { disks: vec![scsi, cdrom, remote], ..guest("a", 20, 512) };
    let placement = &plan(&host, std::slice::from_ref(&request)).plan.placements[0];
    assert_eq!(placement.disks.len(), 1);
    assert_eq!((placement.disks[0].iothread, placement.disks[0].queues), (None, None));
    assert!(placement.iothreads.is_empty());
    assert_eq!(choice(placement, "disk vdc"), "left as it is");
    request.disks.push(block_disk("vda", "nvme0n1"));
    let placement = &plan(&host, &[request]).plan.placements[0];
    assert_eq!(placement.iothreads.len(), 1);
    assert_eq!((placement.disks[1].iothread, placement.disks[1].queues), (Some(1), Some(16)));
    let queues = |placement: &Placement| {
        placement
            .reasons
            .iter()
            .find(|reason| reason.choice.starts_with("queues "))
            .map(|reason| reason.because.clone())
    };
    assert_eq!(queues(placement).as_deref(), Some("one for each of 20 vCPUs is more than the policy's limit of 16"));
    let placement = &plan(&host, &[guest_on("b", 16, 512, "nvme0n1")]).plan.placements[0];
    assert_eq!(queues(placement).as_deref(), Some("one for each vCPU: no vCPU waits for another's queue"));
}

#[test]
fn disks_are_dealt_to_several_iothreads() {
    let host = Synthetic::new().cores_per_node(8).nvme(0).build();
    let request = GuestRequest {
        disks: ["vda", "vdb", "vdc", "vdd"].map(|target| block_disk(target, "nvme0n1")).to_vec(),
        ..guest("a", 2, 512)
    };
    let policy = Policy { iothreads: 3, ..Policy::default() };
    let planned = nearmetal_place::plan(&host, &Occupied::default(), &[request], &policy);
    let placement = &planned.plan.placements[0];
    let numbers: Vec<_> = placement.disks.iter().map(|disk| disk.iothread).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3), Some(1)]);
    assert_eq!(placement.iothreads.len(), 3);
    assert_ne!(placement.iothreads[0], placement.iothreads[1]);
}

#[test]
fn the_report_reads_as_text() {
    let host = Synthetic::new().packages(2).cores_per_node(4).nvme(1).build();
    let planned = plan(&host, &[guest_on("db", 2, 512, "nvme0n1"), guest("wide", 64, 512)]);
    let text = nearmetal_place::render(&planned);
    for line in [
        "db (uuid-of-db)",
        "  vCPU 0      4",
        "  emulator    6",
        "  iothread 1  7",
        "  node 1  2 MiB  0 -> 256 pages",
        "wide cannot be placed",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    assert!(text.contains("because nvme0n1 hangs on node 1"));
    assert!(text.contains("see libvirt, Domain XML format"));
}
