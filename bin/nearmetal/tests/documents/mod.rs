//! Documents of every kind of measurement, made of the engine's own types; every value is invented.

use std::collections::BTreeMap;

use nearmetal_load::{FioJob, Metric, NetJob, NetTest, Scale, ServedJob, TileRole, TileSize, Unit, Window, Workload};
use nearmetal_measure::TileWay;
use nearmetal_results::{
    Arm, ArmName, Ceiling, Container, DiskPath, Effect, Environment, Filling, GroundKey, LeftOut, Link,
    NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetFigure, NetMatrixResults, NetPath, Outcome, PATHS_SCHEMA,
    Part, PathRow, PathTable, Proof, Purpose, Results, RoleLimits, Run, SCHEMA, Slice, Tenant, Together, Turn,
};
use nearmetal_stats::{Fate, Pair, ratio};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};

const STARTED: &str = "2026-01-01T00:00:00Z";

fn lab() -> Environment {
    Environment::Lab { machine: "quad".into() }
}

fn slice(pu: u32, node: u32) -> Slice {
    Slice {
        cpus: CpuSet::one(pu),
        nodes: NodeSet::one(node),
        page_size: Some(PageSize::HUGE_2M),
        device: format!("/dev/nvme{node}n1"),
        region: Bytes::from_mib(512),
        cpus_on_top: CpuSet::one(pu + 1),
    }
}

fn fio() -> Workload {
    Workload::Fio(FioJob::first_seed(Bytes::from_kib(4), 5, 1))
}

fn measured(metrics: Vec<(&str, Unit, f64)>) -> Outcome {
    let metric = |(name, unit, value): (&str, Unit, f64)| Metric { name: name.to_owned(), unit, value };
    Outcome::Measured { metrics: metrics.into_iter().map(metric).collect(), notes: vec![] }
}

fn run(round: u32, position: u32, arm: &str, workload: Workload, outcome: Outcome) -> Run {
    Run {
        round,
        position,
        purpose: Purpose::Pair,
        arm: arm.into(),
        count: 1,
        workload,
        seed: 1,
        started: STARTED.into(),
        seconds: 6.0,
        outcome,
        together: None,
    }
}

fn arm(name: ArmName, region: &str) -> Arm {
    Arm {
        name,
        description: "as it was read back".into(),
        region: region.into(),
        xml: None,
        command_line: None,
        placement: vec!["CPU 0/KVM (4711): PU 2".into()],
    }
}

fn results(experiment: &str, arms: Vec<Arm>, tenants: Vec<Tenant>, runs: Vec<Run>) -> Results {
    Results {
        schema: SCHEMA.into(),
        experiment: experiment.into(),
        created: STARTED.into(),
        version: "0.1.0".into(),
        environment: lab(),
        quick: true,
        seed: 1,
        tenants,
        least_overlap: None,
        arms,
        runs,
        caveats: vec!["the drive was empty before".into()],
        provenance: BTreeMap::from([("Kernel".to_owned(), "6.12.41".to_owned())]),
        tune: None,
        tiles: None,
    }
}

/// One guest against its bare slice: four pairs, of which one lost its guest's half, and what each request cost.
pub(crate) fn pairs(experiment: &str) -> Results {
    let outcome = |iops: f64, exits: f64| {
        measured(vec![
            ("iops", Unit::Iops, iops),
            ("cost.cpu.vcpus", Unit::CpuNanosecondsPerIo, 9000.0),
            ("cost.exits.all", Unit::PerIo, exits),
        ])
    };
    let mut runs = Vec::new();
    for (round, (bare, guest)) in
        [(1000.0, 620.0), (1100.0, 670.0), (950.0, 600.0), (990.0, 0.0)].into_iter().enumerate()
    {
        runs.push(run(round as u32, 0, "bare-slice", fio(), outcome(bare, 0.0)));
        let outcome = match guest {
            0.0 => Outcome::Failed { why: "the agent timed out".into() },
            guest => outcome(guest, 2.5),
        };
        runs.push(run(round as u32, 1, "planned", fio(), outcome));
    }
    let arms = vec![arm(ArmName::bare_slice(), "/dev/nvme1n1"), arm(ArmName::planned(), "/dev/vda")];
    let tenants = vec![Tenant { guest: "web1".into(), slice: slice(2, 1), placement: vec![], load: None }];
    results(experiment, arms, tenants, runs)
}

/// One guest, then two at once; the second loses more.
pub(crate) fn together(workload: Workload) -> Results {
    let (metric, unit) = match &workload {
        Workload::Net(job) => (job.test.rate(), Unit::BitsPerSecond),
        _ => ("iops".to_owned(), Unit::Iops),
    };
    let scale = if unit == Unit::BitsPerSecond { 1e6 } else { 1.0 };
    let mut runs = Vec::new();
    for round in 0..6u32 {
        let count = 1 + (round as usize) % 2;
        let noise = 1.0 + f64::from(round) / 100.0;
        for (position, (arm, parts)) in
            [("bare-slice", [1000.0, 1000.0]), ("planned", [600.0, 400.0])].into_iter().enumerate()
        {
            let part = |(number, rate): (usize, f64)| Part {
                guest: format!("w{number}"),
                rate: rate * scale * if arm == "planned" { noise } else { 1.0 },
                window: Window { began: 0.0, ended: 5000.0 },
                metrics: vec![],
            };
            let parts: Vec<Part> = parts.into_iter().enumerate().take(count).map(part).collect();
            let sum = parts.iter().map(|part| part.rate).sum();
            let mut one = run(round, position as u32, arm, workload.clone(), measured(vec![(&metric, unit, sum)]));
            one.count = count;
            one.together = Some(Together { parts, overlap: 0.93, clocks_within: 0.5 });
            runs.push(one);
        }
    }
    let named = |name: ArmName, title: &str| ArmName { title: title.to_owned(), ..name };
    let arms = vec![
        arm(named(ArmName::bare_slice(), "bare slices"), "its own"),
        arm(named(ArmName::planned(), "guests"), "its own"),
    ];
    let tenant = |number: u32| Tenant {
        guest: format!("w{number}"),
        slice: slice(2 * number, number),
        placement: vec![format!("CPU 0/KVM: PU {}", 2 * number)],
        load: None,
    };
    let mut all = results("together", arms, vec![tenant(0), tenant(1)], runs);
    all.least_overlap = Some(0.8);
    all
}

/// Two tiles of a web server and an idle guest over a bridge and over functions: with the second tile the bridge's web servers
/// answer three quarters of it too late, and half not at all.
pub(crate) fn tiles() -> Results {
    let scale = Scale::try_from(0.01).unwrap();
    let size = |tile| TileSize { tile, scale, seconds: 20, ramp: 5, emulated: true };
    let roles = [TileRole::Web, TileRole::Idle];
    let job = |number: usize| {
        let address = format!("198.18.1.{}", number + 1).parse().unwrap();
        ServedJob::of(roles[number % 2], address, &size(1 + number as u32 / 2))
    };
    let tenant = |number: usize| Tenant {
        guest: ["w1", "i1", "w2", "i2"][number].to_owned(),
        slice: slice(2 * number as u32, 0),
        placement: vec![],
        load: Some(job(number).into()),
    };
    let tenants: Vec<Tenant> = (0..4).map(tenant).collect();
    let mut runs = Vec::new();
    for (round, (tiles, arm)) in [(1, "bridge"), (1, "vf"), (2, "vf"), (2, "bridge")].into_iter().enumerate() {
        for position in 0..2 {
            let part = |number: usize| {
                let is_late = (tiles, arm, number % 2) == (2, "bridge", 0);
                let rate = job(number).rate.get();
                let answered = if is_late { rate / 2.0 } else { rate };
                let metric = |name: &str, unit, value| Metric { name: name.to_owned(), unit, value };
                let mut metrics = vec![
                    metric("answered", Unit::TransactionsPerSecond, answered),
                    metric("offered", Unit::TransactionsPerSecond, rate),
                    metric("busy", Unit::BusyPus, 0.25),
                ];
                let share = if is_late { 0.25 } else { 1.0 };
                let limits = job(number).within.into_iter();
                metrics.extend(limits.map(|limit| metric(&format!("within-{limit}"), Unit::Share, share)));
                let window = Window { began: 0.0, ended: 20_000.0 };
                Part { guest: tenants[number].guest.clone(), rate: answered, window, metrics }
            };
            let parts: Vec<Part> = (0..2 * tiles).map(part).collect();
            let sum = parts.iter().map(|part| part.rate).sum();
            let outcome = measured(vec![
                ("answered", Unit::TransactionsPerSecond, sum),
                ("busy", Unit::BusyPus, 1.5 * tiles as f64),
            ]);
            let mut one = run(round as u32, position, arm, job(0).into(), outcome);
            (one.purpose, one.count) = (Purpose::Fill, 2 * tiles);
            one.together = Some(Together { parts, overlap: 0.99, clocks_within: 0.0 });
            runs.push(one);
        }
    }
    let arms = TileWay::ALL.map(|way| arm(way.arm(), "enp57s0")).to_vec();
    let filling = Filling {
        roles: roles.to_vec(),
        limits: RoleLimits::usual(),
        scale,
        samples: 2,
        drivers: "9-11".parse().unwrap(),
        ksm: Some(0),
    };
    Results { tiles: Some(Box::new(filling)), ..results("tiles", arms, tenants, runs) }
}

/// The same over a network, with its ceiling.
pub(crate) fn together_over_a_port() -> Results {
    let job = NetJob { test: NetTest::TcpStream, peer: "192.0.2.1".parse().unwrap(), seconds: 3 };
    let mut all = together(Workload::Net(job.clone()));
    let rate = measured(vec![("tcp-stream.rate", Unit::BitsPerSecond, 1.05e9)]);
    let mut ceiling = run(9, 0, "all-pus", Workload::Net(job), rate);
    (ceiling.purpose, ceiling.count) = (Purpose::Ceiling, 2);
    all.runs.push(ceiling);
    all.arms.push(arm(ArmName::new("all-pus", "all PUs, without a guest", nearmetal_results::Role::Bare), "its own"));
    all
}

/// libvirt's default, a virtual function that wins, a way that took no effect, and bare metal.
pub(crate) fn net_race() -> NetMatrixResults {
    type Round = (u32, f64, f64, f64);
    let values: [Round; 3] = [(0, 1000.0, 2000.0, 2100.0), (1, 1100.0, 2300.0, 2350.0), (2, 900.0, 1850.0, 2000.0)];
    let turn = |round: u32, arm: usize, value: f64| Turn {
        round,
        position: arm as u32,
        arm,
        seed: 1,
        started: STARTED.into(),
        seconds: 4.0,
        outcome: measured(vec![
            ("tcp-rr.rate", Unit::TransactionsPerSecond, value),
            ("tcp-rr.p99", Unit::Nanoseconds, 1e9 / value),
            ("tcp-rr.cost.exits.all", Unit::PerTransaction, 3.0),
        ]),
    };
    let of = |(round, default, function, bare): Round| {
        [turn(round, 0, default), turn(round, 1, function), turn(round, 3, bare)]
    };
    let turns: Vec<Turn> = values.into_iter().flat_map(of).collect();
    let against = |pick: fn(&Round) -> (f64, f64)| {
        let pairs: Vec<Pair> =
            values.iter().map(pick).map(|(subject, reference)| Pair { subject, reference }).collect();
        ratio(&pairs, 0.95, 1).ok()
    };
    let (to_default, to_bare) = (against(|row| (row.2, row.1)), against(|row| (row.2, row.3)));
    let none: Option<nearmetal_stats::RatioEstimate> = None;
    let arm = |path: NetPath, fate, ratios: [&Option<nearmetal_stats::RatioEstimate>; 2]| NetArmResult {
        path,
        id: path.id(),
        source: if path.link == Link::VfHostdev { "0000:39:10.0" } else { "enp57s0" }.into(),
        effect: Effect::Shown { evidence: vec!["driver igbvf, 2 queues".into()] },
        cannot_win: (path.link == Link::Bare).then(|| "no guest is in it".to_owned()),
        fate,
        rounds: 3,
        median: Some(1000.0),
        medians: BTreeMap::new(),
        peer_bound: Some(false),
        to_default: ratios[0].clone(),
        to_bare: ratios[1].clone(),
    };
    let over = |link: Link| NetPath { link, backend: None, ..NetPath::libvirt_default() };
    let mut lost = arm(NetPath { link: Link::MacvtapBridge, ..NetPath::libvirt_default() }, None, [&none, &none]);
    lost.effect = Effect::NotShown { why: "the peer did not answer".into() };
    (lost.rounds, lost.median) = (0, None);
    NetMatrixResults {
        schema: NET_MATRIX_SCHEMA.into(),
        created: STARTED.into(),
        version: "0.1.0".into(),
        environment: lab(),
        ground: GroundKey { device: "igb 8086:10c9".into(), kernel: "6.12.41".into(), qemu: "10.0.8".into() },
        guest: "net1".into(),
        slice: Slice { device: "enp57s0".into(), region: Bytes::new(0), ..slice(3, 1) },
        port: "enp57s0".into(),
        port_node: Some(1),
        peer: "192.0.2.1".parse().unwrap(),
        tests: vec![NetTest::TcpRr],
        seconds: 3,
        seed: 1,
        budget: 600,
        took: 100.0,
        error: 0.05,
        looks: vec![3],
        ceiling: vec![Ceiling {
            test: NetTest::TcpRr,
            unit: Unit::TransactionsPerSecond,
            unconfined: vec![2500.0, 2600.0],
            confined: vec![2400.0],
        }],
        arms: vec![
            arm(NetPath::libvirt_default(), Some(Fate::ShownWorse { look: 0, than: 1 }), [&none, &none]),
            arm(over(Link::VfHostdev), Some(Fate::Racing), [&to_default, &to_bare]),
            lost,
            arm(over(Link::Bare), Some(Fate::Racing), [&none, &none]),
        ],
        reference: 0,
        left_out: vec![LeftOut { what: "bridge with multiqueue".into(), why: "the guest has one vCPU".into() }],
        confirmation: Some(NetConfirmation {
            figures: vec![NetFigure {
                metric: NetTest::TcpRr.rate(),
                unit: Unit::TransactionsPerSecond,
                medians: vec![],
                to_default,
                to_bare,
                default_to_bare: None,
                peer_bound: Some(false),
            }],
            turns: turns.clone(),
        }),
        turns,
        winner: Some(1),
        slack: Some(1.0),
        caveats: vec!["the guest moves to no other host while it has the function".into()],
        provenance: BTreeMap::new(),
    }
}

/// Two ways to a disk, one of which did not take effect.
pub(crate) fn paths() -> PathTable {
    let row = |path: DiskPath, proof| PathRow { path, id: path.id(), source: "/dev/nvme1n1p1".into(), proof };
    let shown = Proof { open: Some("O_DIRECT off".into()), ..Proof::default() };
    let lost = Proof { amiss: Some("the engine was threads".into()), ..Proof::default() };
    PathTable {
        schema: PATHS_SCHEMA.into(),
        created: STARTED.into(),
        environment: lab(),
        ground: GroundKey { device: "QEMU NVMe Ctrl".into(), kernel: "6.12.41".into(), qemu: "10.0.8".into() },
        guest: "web1".into(),
        took: 12.0,
        rows: vec![
            row(DiskPath::qemu_default(Container::Partition), shown),
            row(DiskPath::qemu_default(Container::Device), lost),
        ],
        left_out: vec![LeftOut { what: "qcow2".into(), why: "no directory was named".into() }],
    }
}
