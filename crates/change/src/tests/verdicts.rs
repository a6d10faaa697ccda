//! Verdicts from facts written by hand: a guest as planned, then one thing broken at a time.

use std::collections::BTreeSet;

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::guests::OpenFile;
use nearmetal_host::{
    CpuQuota, CpuTimeGroup, GuestProcess, Residency, Scheduling, SchedulingPolicy, Thread, ThreadRole,
};
use nearmetal_hypervisor::DomainState;
use nearmetal_place::{CacheMode, DiskEngine, NetworkBackend, NetworkPlacement, Plan};
use nearmetal_units::{Bytes, PageSize};

use super::stage::*;
use crate::verify::*;

fn thread(id: u32, name: &str, role: ThreadRole, affinity: &str) -> Thread {
    Thread { id, name: name.to_owned(), role, affinity: Some(cpus(affinity)), scheduling: Some(Scheduling::DEFAULT) }
}

fn pages(size: PageSize, pages: Vec<(u32, u64)>) -> Residency {
    Residency {
        start: 0x7f00_0000_0000,
        page_size: size,
        length: Bytes::from_mib(512),
        guest_memory: true,
        pages,
        policy: "bind:1".to_owned(),
        file: None,
    }
}

fn guest() -> GuestProcess {
    GuestProcess {
        pid: 4700,
        start_time: None,
        name: Some("web1".to_owned()),
        uuid: Some(UUID.to_owned()),
        memory: Some(Bytes::from_mib(512)),
        threads: vec![
            thread(4700, "qemu-system-x86", ThreadRole::Emulator, "3"),
            thread(4701, "call_rcu", ThreadRole::Other, "3"),
            thread(4702, "IO iothread1", ThreadRole::Iothread(1), "3"),
            thread(4703, "CPU 0/KVM", ThreadRole::Vcpu(0), "2"),
            thread(4704, "vhost-4700", ThreadRole::Vhost, "3"),
            thread(4705, "iou-wrk-4702", ThreadRole::Other, "3"),
            thread(4706, "kvm-nx-lpage-re", ThreadRole::Other, "2"),
        ],
        residency: vec![pages(PageSize::HUGE_2M, vec![(1, 256)])],
        time_groups: ["", "/emulator", "/iothread1", "/vcpu0"].map(group).to_vec(),
        ..GuestProcess::default()
    }
}

/// As libvirt makes them on a host without systemd.
fn group(name: &str) -> CpuTimeGroup {
    CpuTimeGroup {
        path: format!("/machine/qemu-1-web1.libvirt-qemu{name}"),
        version: 2,
        threads: Vec::new(),
        weight: Some(100),
        quota: Some(CpuQuota::Unlimited),
    }
}

fn facts(options: &str) -> DomainFacts {
    let mut text = plan_file().domains[0].xml_after.clone();
    if !options.is_empty() {
        let (from, to) = options.split_once("->").unwrap();
        assert!(text.contains(from), "{from} in {text}");
        text = text.replace(from, to);
    }
    DomainXml::parse(&text).unwrap().facts().unwrap()
}

fn read(rings: Vec<RingMovement>, aio_rings: usize, workers: &[u32], worker_bytes: Option<u64>) -> EngineEvidence {
    EngineEvidence {
        load: Load::Read { device: "vda".to_owned(), requests: 512, bytes: 512 * 4096 },
        rings,
        aio_rings,
        workers: workers.iter().copied().collect::<BTreeSet<_>>(),
        worker_bytes,
    }
}

/// The ring of an event loop.
fn waiting(completions: u32) -> RingMovement {
    RingMovement { fd: 30, entries: 128, waits: true, completions }
}

/// The ring of the block layer.
fn block(completions: u32) -> RingMovement {
    RingMovement { fd: 31, entries: 128, waits: false, completions }
}

fn open(direct: bool) -> OpenFile {
    OpenFile { fd: 21, target: "/dev/nvme0n1".to_owned(), flags: 0, direct, io_uring: None }
}

fn observed() -> Observed {
    Observed {
        another: None,
        guest: Ok(Some(guest())),
        pools: vec![ObservedPool { node: 1, size: PageSize::HUGE_2M, pages: Ok((272, 0)) }],
        stored: Ok(facts("")),
        live: Some(Ok(facts(""))),
        cells: None,
        functions: Vec::new(),
        disks: vec![ObservedDisk {
            target: "vda".to_owned(),
            source: Some("/dev/nvme0n1".to_owned()),
            size: Some(Bytes::from_mib(1024)),
            files: Ok(vec![open(true)]),
            engine: read(vec![waiting(900), block(512)], 0, &[], Some(0)),
            drive: None,
        }],
        state: Some(Ok(DomainState::Running)),
        boot_unit: None,
        hook: None,
        queues: None,
        touched: None,
        vhost_queues: None,
        view: Ok(GuestView {
            disks: vec![GuestDisk {
                name: "vda".into(),
                queues: Some(1),
                size: Some(Bytes::from_mib(1024)),
                node: None,
            }],
            ..GuestView::default()
        }),
    }
}

fn broken(change: impl FnOnce(&mut Observed, &mut Plan)) -> Vec<Check> {
    let (mut observed, mut plan) = (observed(), plan());
    change(&mut observed, &mut plan);
    let verification = judge(&plan, &plan.placements[0], &observed);
    let text = verification.to_string();
    assert_eq!(text.lines().count(), verification.checks.len() + 1, "{text}");
    verification.checks.into_iter().filter(|check| check.outcome != Outcome::Ok).collect()
}

fn process(observed: &mut Observed) -> &mut GuestProcess {
    observed.guest.as_mut().unwrap().as_mut().unwrap()
}

#[test]
fn only_what_a_guest_gets_at_its_start_waits_for_it() {
    let waits = |change: fn(&mut Observed, &mut Plan)| {
        let (mut observed, mut plan) = (observed(), plan());
        change(&mut observed, &mut plan);
        let mut verification = judge(&plan, &plan.placements[0], &observed);
        let differ = verification.mismatches();
        assert!(differ > 0);
        let mut nothing = verification.clone();
        nothing.await_restart(&[]);
        assert_eq!(nothing, verification, "nothing waits for a start");
        let mut unrelated = verification.clone();
        unrelated.await_restart(&["topology".to_owned()]);
        let is_memory = |check: &Check| check.kind == CheckKind::Memory && check.outcome == Outcome::Mismatch;
        assert_eq!(
            unrelated.checks.iter().filter(|check| is_memory(check)).count(),
            verification.checks.iter().filter(|check| is_memory(check)).count(),
            "pages that moved while the guest runs are told"
        );
        verification.await_restart(&["page size".to_owned(), "disk vda".to_owned()]);
        assert_eq!(verification.waiting() + verification.mismatches(), differ);
        (verification.waiting() > 0, verification.mismatches() > 0)
    };
    assert_eq!(
        waits(|seen, _| process(seen).residency = vec![pages(PageSize::HUGE_2M, vec![(0, 256)])]),
        (true, false)
    );
    assert_eq!(waits(|seen, _| seen.live = Some(Ok(facts("cache='none'->cache='writeback'")))), (true, false));
    // Not there before the next start, and so without a pin.
    assert_eq!(waits(|seen, _| process(seen).threads.retain(|own| own.role != ThreadRole::Iothread(1))), (true, false));
    // Moved, or throttled, while it runs: no start is needed to set it right, and none excuses it.
    assert_eq!(waits(|seen, _| process(seen).threads[2].affinity = Some(cpus("0"))), (false, true));
    assert_eq!(waits(|seen, _| process(seen).threads[3].affinity = Some(cpus("0"))), (false, true));
    assert_eq!(waits(|seen, _| process(seen).time_groups[3].weight = Some(1)), (false, true));
}

#[test]
fn a_guest_as_planned_has_nothing_against_it() {
    assert_eq!(broken(|_, _| {}), []);
}

#[test]
fn every_sabotage_is_named() {
    type Break = fn(&mut Observed, &mut Plan);
    let table: [(CheckKind, &str, &str, Break); 29] = [
        (CheckKind::Vcpu, "vCPU 0 (thread 4703)", "PUs 0", |seen, _| {
            process(seen).threads[3].affinity = Some(cpus("0"))
        }),
        (CheckKind::Emulator, "emulator (thread 4700)", "PUs 2", |seen, _| {
            process(seen).threads[0].affinity = Some(cpus("2"));
        }),
        (CheckKind::Helper, "helper `call_rcu` (thread 4701)", "PUs 2-3", |seen, _| {
            process(seen).threads[1].affinity = Some(cpus("2-3"));
        }),
        (CheckKind::Iothread, "iothread 1", "no such thread", |seen, _| {
            process(seen).threads.remove(2);
        }),
        (CheckKind::Vhost, "vhost worker `vhost-4700` (thread 4704)", "PUs 0-7", |seen, _| {
            process(seen).threads[4].affinity = Some(cpus("0-7"));
        }),
        (CheckKind::Worker, "io_uring worker `iou-wrk-4702` (thread 4705)", "PUs 2", |seen, _| {
            process(seen).threads[5].affinity = Some(cpus("2"));
        }),
        (CheckKind::Running, "the guest", "paused", |seen, _| seen.state = Some(Ok(DomainState::Paused))),
        (CheckKind::Scheduling, "scheduling of vCPU 0 (thread 4703)", "SCHED_IDLE", |seen, _| {
            process(seen).threads[3].scheduling =
                Some(Scheduling { policy: SchedulingPolicy::Idle, ..Scheduling::DEFAULT });
        }),
        (CheckKind::Scheduling, "scheduling of vhost worker `vhost-4700` (thread 4704)", "nice 10", |seen, _| {
            process(seen).threads[4].scheduling = Some(Scheduling { nice: 10, ..Scheduling::DEFAULT });
        }),
        (CheckKind::Scheduling, "scheduling of vCPU 0 (thread 4703)", "SCHED_OTHER nice 0", |seen, _| {
            let asked = "<vcpupin -><vcpusched vcpus='0' scheduler='fifo' priority='1'/><vcpupin ";
            seen.stored = Ok(facts(asked));
        }),
        (CheckKind::ProcessorTime, "quota of control group `vcpu0`", "50000 of each 100000 µs", |seen, _| {
            process(seen).time_groups[3].quota = Some(CpuQuota::Limited { quota: 50_000, period: 100_000 });
        }),
        (CheckKind::ProcessorTime, "weight of control group `qemu-1-web1.libvirt-qemu`", "1", |seen, _| {
            process(seen).time_groups[0].weight = Some(1);
        }),
        (CheckKind::Balloon, "memory the balloon leaves", "256 MiB of 512 MiB", |seen, _| {
            seen.live = Some(Ok(facts("<currentMemory unit='KiB'>524288-><currentMemory unit='KiB'>262144")));
        }),
        (CheckKind::Throttle, "throttle of disk vda", "total_iops_sec 100", |seen, _| {
            let live = "<target dev='vda'-><iotune><total_iops_sec>100</total_iops_sec></iotune><target dev='vda'";
            seen.live = Some(Ok(facts(live)));
        }),
        (CheckKind::Throttle, "throttle of disk vda", "none", |seen, _| {
            let stored = "<target dev='vda'-><iotune><total_iops_sec>100</total_iops_sec></iotune><target dev='vda'";
            seen.stored = Ok(facts(stored));
        }),
        (CheckKind::Throttle, "throttle of interface 52:54:00:00:00:01", "inbound 1000", |seen, _| {
            let interface = |bandwidth: &str| {
                let inside = format!("<mac address='52:54:00:00:00:01'/><source bridge='br0'/>{bandwidth}");
                Ok(facts(&format!("</devices>-><interface type='bridge'>{inside}</interface></devices>")))
            };
            seen.stored = interface("");
            seen.live = Some(interface("<bandwidth><inbound average='1000'/></bandwidth>"));
        }),
        (CheckKind::Memory, "guest memory on node 0", "12 pages of 2 MiB on node 0", |seen, _| {
            process(seen).residency[0].pages = vec![(0, 12), (1, 244)];
        }),
        (CheckKind::Memory, "guest memory on node 1", "131072 pages of 4 KiB on node 1", |seen, _| {
            process(seen).residency = vec![pages(PageSize::SMALL, vec![(1, 131_072)])];
        }),
        (CheckKind::Memory, "guest memory in all", "512 pages of 2 MiB (1 GiB)", |seen, _| {
            process(seen).residency[0].pages = vec![(1, 512)];
        }),
        (CheckKind::Iothread, "iothread `IO iothread2` (thread 4799)", "PUs 0-7", |seen, _| {
            process(seen).threads.push(thread(4799, "IO iothread2", ThreadRole::Iothread(2), "0-7"));
        }),
        (CheckKind::StoredDefinition, "stored definition", "no domain of that name", |seen, _| {
            seen.another = Some("no domain of that name".to_owned());
        }),
        (CheckKind::StoredDefinition, "stored definition: memory", "1 GiB in pages of 2 MiB", |seen, _| {
            seen.stored = Ok(facts("<memory unit='KiB'>524288-><memory unit='KiB'>1048576"));
        }),
        (
            CheckKind::Pool,
            "pool of 2 MiB pages on node 1",
            "16 pages that stay (272, 256 of them surplus)",
            |seen, _| {
                seen.pools[0].pages = Ok((272, 256));
            },
        ),
        (CheckKind::StoredDefinition, "stored definition: disk vda/driver/@cache", "writeback", |seen, _| {
            seen.stored = Ok(facts("cache='none'->cache='writeback'"));
        }),
        (CheckKind::LiveDefinition, "definition in force: cputune/vcpupin 0", "5", |seen, _| {
            seen.live = Some(Ok(facts("cpuset='2'->cpuset='5'")));
        }),
        (CheckKind::DiskCache, "disk vda", "descriptor 21 cached", |seen, _| {
            seen.disks[0].files = Ok(vec![open(false)])
        }),
        (CheckKind::DiskEngine, "disk vda", "engine threads", |seen, _| {
            seen.disks[0].engine = read(vec![waiting(900)], 0, &[4790], Some(512 * 4096));
        }),
        (CheckKind::DiskEngine, "disk vda", "engine native", |seen, _| {
            seen.disks[0].engine = read(vec![waiting(900)], 1, &[], None);
        }),
        (CheckKind::Guest, "disk vda as the guest sees it", "1 queues", |_, plan| {
            plan.placements[0].disks[0].queues = Some(1);
            plan.placements[0].disks[0].queues = Some(4);
        }),
    ];
    for (kind, subject, found, change) in table {
        let wrong = broken(change);
        let check = wrong.iter().find(|check| check.kind == kind).unwrap_or_else(|| panic!("{subject}: {wrong:?}"));
        assert_eq!((check.subject.as_str(), &check.outcome), (subject, &Outcome::Mismatch), "{check:?}");
        assert!(check.found.as_deref().unwrap_or_default().contains(found), "{found}: {check:?}");
    }
}

#[test]
fn what_holds_a_guest_back_and_cannot_be_read_is_unknown_with_a_reason() {
    let unknown = |change: fn(&mut Observed, &mut Plan), kind: CheckKind| {
        let check = broken(change).into_iter().find(|check| check.kind == kind).unwrap();
        match check.outcome {
            Outcome::CannotTell { why } => why,
            other => panic!("{other:?}"),
        }
    };
    let unread: fn(&mut Observed, &mut Plan) = |seen, _| process(seen).threads[3].scheduling = None;
    assert_eq!(unknown(unread, CheckKind::Scheduling), "`/proc/4703/stat` could not be read");
    let none: fn(&mut Observed, &mut Plan) = |seen, _| process(seen).time_groups.clear();
    assert!(unknown(none, CheckKind::ProcessorTime).contains("CPU controller"));
    let denied: fn(&mut Observed, &mut Plan) = |seen, _| process(seen).time_groups[3].quota = None;
    assert!(unknown(denied, CheckKind::ProcessorTime).ends_with("/vcpu0/cpu.max` could not be read"));
    let live: fn(&mut Observed, &mut Plan) = |seen, _| seen.live = Some(Err("no answer".to_owned()));
    for kind in [CheckKind::Balloon, CheckKind::Throttle] {
        assert_eq!(unknown(live, kind), "the definition in force could not be read: no answer");
    }
    let state: fn(&mut Observed, &mut Plan) = |seen, _| seen.state = Some(Err("no answer".to_owned()));
    assert_eq!(unknown(state, CheckKind::Running), "no answer");
}

#[test]
fn pages_that_are_not_there_yet_are_unknown_and_not_fine() {
    let checks = broken(|seen, _| process(seen).residency[0].pages = vec![(1, 12)]);
    let why =
        |check: &Check| matches!(&check.outcome, Outcome::CannotTell { why } if why.contains("12 pages are there"));
    assert!(checks.iter().any(|check| check.kind == CheckKind::Memory && why(check)), "{checks:?}");
}

#[test]
fn a_balloon_that_gives_more_than_the_guest_starts_with_is_fine() {
    let less = "<currentMemory unit='KiB'>524288-><currentMemory unit='KiB'>262144";
    assert_eq!(broken(|seen, _| seen.stored = Ok(facts(less))), []);
}

#[test]
fn engines_are_told_apart_by_what_moves() {
    let engine_is = |wanted: DiskEngine, engine: EngineEvidence| {
        let wrong = broken(|seen, plan| {
            plan.placements[0].disks[0].engine = wanted;
            seen.disks[0].engine = engine;
        });
        wrong.into_iter().find(|check| check.kind == CheckKind::DiskEngine)
    };
    // Workers that flush do not make it threads.
    assert_eq!(engine_is(DiskEngine::Native, read(vec![waiting(40)], 1, &[4790], Some(4096))), None);
    assert_eq!(engine_is(DiskEngine::IoUring, read(vec![block(300)], 0, &[4790], Some(4096))), None);
    // QEMU 10.2 and later have one ring for both.
    assert_eq!(engine_is(DiskEngine::IoUring, read(vec![waiting(600)], 0, &[], Some(0))), None);
    assert_eq!(engine_is(DiskEngine::Threads, read(vec![waiting(600)], 0, &[4790], Some(3 << 20))), None);
    let unknown = engine_is(DiskEngine::Threads, read(vec![], 0, &[4790], None)).unwrap();
    assert!(matches!(&unknown.outcome, Outcome::CannotTell { why } if why.contains("root")), "{unknown:?}");
    let idle = engine_is(DiskEngine::IoUring, read(vec![block(3)], 0, &[], Some(0))).unwrap();
    assert!(matches!(&idle.outcome, Outcome::CannotTell { .. }), "{idle:?}");
}

#[test]
fn a_guest_that_is_off_is_said_to_be_off() {
    let wrong = broken(|seen, _| (seen.guest, seen.live) = (Ok(None), None));
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0].kind, CheckKind::Running);
}

#[test]
fn writeback_planned_and_found_is_fine() {
    let wrong = broken(|seen, plan| {
        plan.placements[0].disks[0].cache = CacheMode::Writeback;
        seen.disks[0].files = Ok(vec![open(false)]);
        seen.stored = Ok(facts("cache='none'->cache='writeback'"));
        seen.live = Some(seen.stored.clone());
    });
    assert_eq!(wrong, []);
}

#[test]
fn both_forms_of_vhost_workers_are_placed() {
    // Before Linux 6.4 it is a kernel thread with a number of its own; the check is the same.
    let wrong = broken(|seen, _| process(seen).threads[4].id = 212);
    assert_eq!(wrong, []);
    let wrong = broken(|seen, _| {
        process(seen).threads[4].id = 212;
        process(seen).threads[4].affinity = Some(cpus("2"));
    });
    assert_eq!(wrong[0].place.as_deref(), Some("/proc/212/status"));
}

#[test]
fn a_verification_reads_back_from_json() {
    let plan = plan();
    let verification = judge(&plan, &plan.placements[0], &observed());
    let text = serde_json::to_string(&verification).unwrap();
    assert!(text.contains("\"outcome\":\"ok\""), "{text}");
    assert_eq!(serde_json::from_str::<Verification>(&text).unwrap(), verification);
}

/// A guest with an interface that the plan sets, and one that it leaves; so many queues of vhost-net are open.
fn network_verdict(backend: NetworkBackend, queues: u32, other: &str, held: Result<u32, String>) -> Vec<Check> {
    broken(|seen, plan| {
        let mac: nearmetal_units::MacAddress = "52:54:00:00:00:01".parse().unwrap();
        let set = NetworkPlacement { mac, backend, queues, offloads_off: false };
        let own = format!("<driver name='{}' queues='4'/>", backend.name());
        let interface = |number: u32, driver: &str| {
            format!(
                "<interface type='bridge'><mac address='52:54:00:00:00:0{number}'/><source bridge='br0'/><model type='virtio'/>{driver}</interface>"
            )
        };
        let found = facts(&format!("</devices>->{}{}</devices>", interface(1, &own), interface(2, other)));
        (seen.stored, seen.live) = (Ok(found.clone()), Some(Ok(found)));
        plan.placements[0].networks = vec![set];
        seen.vhost_queues = Some(held);
    })
}

#[test]
fn who_moves_an_interfaces_packets_is_read_from_the_queues_qemu_has_open() {
    use NetworkBackend::{Qemu, Vhost};
    let user = "<driver name='qemu'/>";
    assert_eq!(network_verdict(Vhost, 4, user, Ok(4)), []);
    assert_eq!(network_verdict(Qemu, 4, user, Ok(0)), []);
    // Of the interface that the plan leaves, libvirt may have made one queue or none.
    assert_eq!(network_verdict(Vhost, 4, "", Ok(4)), []);
    assert_eq!(network_verdict(Vhost, 4, "", Ok(5)), []);
    assert_eq!(network_verdict(Vhost, 4, "<driver name='vhost' queues='2'/>", Ok(6)), []);
    for (backend, other, held) in [(Vhost, user, 0), (Qemu, user, 4), (Vhost, "", 3), (Vhost, "", 6)] {
        let wrong = network_verdict(backend, 4, other, Ok(held));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        let found = wrong[0].found.as_deref();
        assert_eq!((wrong[0].kind, found), (CheckKind::Network, Some(format!("{held} open in QEMU").as_str())));
        assert_eq!(wrong[0].outcome, Outcome::Mismatch);
    }
    let unread = network_verdict(Vhost, 4, user, Err("no permission".to_owned()));
    assert!(matches!(&unread[0].outcome, Outcome::CannotTell { why } if why == "no permission"), "{unread:?}");
    // The definition is one thing, and has four; the plan another.
    let wrong = network_verdict(Vhost, 2, user, Ok(2));
    let subjects: Vec<&str> = wrong.iter().map(|check| check.subject.as_str()).collect();
    assert_eq!(
        subjects,
        [
            "stored definition: interface 52:54:00:00:00:01/driver/@queues",
            "definition in force: interface 52:54:00:00:00:01/driver/@queues"
        ]
    );
}
