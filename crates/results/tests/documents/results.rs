//! Invented results in which every field has a value somewhere, and every choice each of its words.

use std::collections::BTreeMap;

use nearmetal_load::{
    CommandJob, FileJob, FileSystem, FioEngine, FioJob, MemoryBandwidth, MemoryJob, MemoryLatency, Metric, NetJob,
    NetTest, Order, Pattern, ProbePages, Scale, ServedJob, Shape, TileRole, TileSize, Unit, Window, WorkJob, Workload,
};
use nearmetal_results::{
    AloneEffect, AloneFactor, Arm, ArmName, Environment, Filling, LeftOut, Outcome, Part, Purpose, Results, Role,
    RoleLimits, Run, SCHEMA, Slice, Tenant, Together, TuneEffect, TuneFactor, TuneVerdict, TunedArm, Tuning,
};
use nearmetal_stats::{Fate, Pair};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};

const STARTED: &str = "2026-01-01T00:00:00Z";

pub(super) fn lab() -> Environment {
    Environment::Lab { machine: "quad".into() }
}

pub(super) fn named(names: &[&str]) -> BTreeMap<String, String> {
    names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect()
}

pub(super) fn slice() -> Slice {
    Slice {
        cpus: CpuSet::one(2),
        nodes: NodeSet::one(1),
        page_size: Some(PageSize::HUGE_2M),
        device: "/dev/nvme0n2".into(),
        region: Bytes::from_mib(512),
        cpus_on_top: CpuSet::one(3),
    }
}

pub(super) fn fio() -> FioJob {
    FioJob {
        block_size: Bytes::from_kib(4),
        read_percent: 50,
        queue_depth: 32,
        engine: FioEngine::Libaio,
        seconds: 5,
        ramp_seconds: 1,
        span: Some(Bytes::from_mib(256)),
        order: Order::Sequential,
    }
}

pub(super) fn measured(units: &[Unit]) -> Outcome {
    let metric = |unit: &Unit| Metric { name: "iops".into(), unit: *unit, value: 1000.0 };
    Outcome::Measured { metrics: units.iter().map(metric).collect(), notes: vec!["backed by 4k pages".into()] }
}

pub(super) fn run(purpose: Purpose, workload: Workload, outcome: Outcome) -> Run {
    let window = Window { began: 1.0, ended: 2.0 };
    let metrics = vec![Metric { name: "answered".into(), unit: Unit::TransactionsPerSecond, value: 1000.0 }];
    let part = Part { guest: "web1".into(), rate: 1000.0, window, metrics };
    Run {
        round: 0,
        position: 0,
        purpose,
        arm: "planned".into(),
        count: 1,
        workload,
        seed: 1,
        started: STARTED.into(),
        seconds: 6.0,
        outcome,
        together: Some(Together { parts: vec![part], overlap: 0.99, clocks_within: 0.2 }),
    }
}

fn served() -> ServedJob {
    let size = TileSize { tile: 1, scale: Scale::ONE, seconds: 60, ramp: 15, emulated: false };
    ServedJob::of(TileRole::Web, "198.18.1.1".parse().unwrap(), &size)
}

fn workloads() -> Vec<Workload> {
    let file =
        |file_system| FileJob { file_system, record: Bytes::from_kib(4), total: Bytes::from_mib(256), threads: 1 };
    let memory = |pages, pattern| MemoryJob { size: Bytes::from_mib(64), pages, pattern };
    let net = |test| NetJob { test, peer: "192.0.2.1".parse().unwrap(), seconds: 5 };
    let tests = [
        NetTest::TcpRr,
        NetTest::TcpStream,
        NetTest::TcpMaerts,
        NetTest::UdpRr,
        NetTest::SockperfTcp,
        NetTest::SockperfUdp,
    ];
    let shape = Shape {
        size: Bytes::from_kib(4),
        seconds: 5,
        ramp: 1,
        span: Bytes::from_mib(256),
        vcpus: 2,
        memory: Bytes::from_mib(1024),
        nodes: 1,
        emulated: false,
        kit: None,
    };
    let named = |word: &str| {
        let found = Workload::named().into_iter().find(|named| named.word == word).unwrap();
        (found.make)(&shape)
    };
    let mut all = vec![
        fio().into(),
        FioJob { engine: FioEngine::IoUring, ..fio() }.into(),
        file(FileSystem::Ext4).into(),
        file(FileSystem::Xfs).into(),
        MemoryLatency(memory(ProbePages::Small, Pattern::Page)).into(),
        MemoryBandwidth(memory(ProbePages::Transparent, Pattern::Groups)).into(),
        named("zstd"),
        named("jvm"),
        named("jvm-small-pages"),
        named("jvm-large-pages"),
        named("specjbb"),
        named("pgbench"),
        named("web"),
        WorkJob { threads: 2, each: Bytes::from_mib(16), seconds: 5 }.into(),
    ];
    all.extend(tests.map(|test| net(test).into()));
    all.push(served().into());
    all.push(CommandJob { command: "make".into(), limit: 600 }.into());
    all
}

const UNITS: [Unit; 20] = [
    Unit::Iops,
    Unit::BytesPerSecond,
    Unit::Nanoseconds,
    Unit::CpuNanosecondsPerIo,
    Unit::BitsPerSecond,
    Unit::TransactionsPerSecond,
    Unit::CpuSecondsPerGigabit,
    Unit::CpuNanosecondsPerTransaction,
    Unit::CpuNanosecondsPerGigabit,
    Unit::PerIo,
    Unit::PerTransaction,
    Unit::PerGigabit,
    Unit::LoadsPerSecond,
    Unit::CpuNanosecondsPerLoad,
    Unit::PerLoad,
    Unit::ModelledNanoseconds,
    Unit::Share,
    Unit::Distance,
    Unit::RunsPerHour,
    Unit::BusyPus,
];

const PURPOSES: [Purpose; 8] = [
    Purpose::Pair,
    Purpose::SameArm,
    Purpose::SingleShot,
    Purpose::Race,
    Purpose::ExitReasons,
    Purpose::Accesses,
    Purpose::Ceiling,
    Purpose::Fill,
];

/// The part that only a tune has, with a value in every field.
fn tuning() -> Tuning {
    let pairs = [Pair { subject: 2.0, reference: 1.0 }, Pair { subject: 2.1, reference: 1.0 }];
    let ratio = || nearmetal_stats::ratio(&pairs, 0.95, 1).unwrap();
    Tuning {
        kernel: "6.12.41".into(),
        budget: 1800,
        took: 1500.0,
        error: 0.05,
        looks: vec![3],
        factors: vec![TuneFactor { id: "pages".into(), levels: ["huge".into(), "small".into()] }],
        left_out: vec![LeftOut { what: "halt polling".into(), why: "of the host".into() }],
        arms: vec![TunedArm {
            id: "pu.huge.none-native.iothread".into(),
            levels: Some(vec![true]),
            fate: Fate::ShownWorse { look: 0, than: 1 },
            rounds: 3,
            to_found: Some(ratio()),
        }],
        effects: vec![TuneEffect { of: vec![0, 1], confounded: vec![[2, 3]], ratio: ratio() }],
        alone: vec![AloneEffect {
            of: AloneFactor {
                factor: TuneFactor { id: "smt".into(), levels: ["siblings used".into(), "a core each".into()] },
                arm: "pu.huge.none-io_uring.iothread.core-each".into(),
            },
            ratio: Some(ratio()),
        }],
        winner: "pu.huge.none-native.iothread".into(),
        slack: Some(1.0),
        to_found: Some(ratio()),
        to_rule: Some(ratio()),
        to_bare: Some(ratio()),
        rule_to_found: Some(ratio()),
        rule_to_bare: Some(ratio()),
        verdict: TuneVerdict::Use { arm: "pu.huge.none-native.iothread".into() },
    }
}

pub(super) fn full() -> Results {
    let arm = |name| Arm {
        name,
        description: "test".into(),
        region: "/dev/x1".into(),
        xml: Some("<domain/>".into()),
        command_line: Some("/usr/bin/qemu-system-x86_64".into()),
        placement: vec!["vCPU 0 (thread 12): PU 2".into()],
    };
    let mut runs: Vec<Run> =
        workloads().into_iter().map(|workload| run(Purpose::Pair, workload, measured(&UNITS))).collect();
    let failed = || Outcome::Failed { why: "agent timed out".into() };
    runs.extend(PURPOSES.map(|purpose| run(purpose, fio().into(), failed())));
    Results {
        schema: SCHEMA.into(),
        experiment: "together".into(),
        created: STARTED.into(),
        version: "0".into(),
        environment: lab(),
        quick: true,
        seed: 1,
        tenants: vec![Tenant {
            guest: "web1".into(),
            slice: slice(),
            placement: vec!["vCPU 0: PU 2".into()],
            load: Some(served().into()),
        }],
        least_overlap: Some(0.95),
        arms: vec![
            arm(ArmName::bare_slice()),
            arm(ArmName::as_found()),
            arm(ArmName::planned()),
            arm(ArmName::new("else", "else", Role::Other)),
        ],
        runs,
        caveats: vec!["test".into()],
        provenance: named(&["kernel"]),
        tune: Some(Box::new(tuning())),
        tiles: Some(Box::new(Filling {
            roles: vec![TileRole::Web],
            limits: RoleLimits::usual(),
            scale: Scale::ONE,
            samples: 3,
            drivers: CpuSet::one(7),
            ksm: Some(0),
        })),
    }
}
