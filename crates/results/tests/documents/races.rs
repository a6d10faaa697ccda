//! Invented races in which every field has a value somewhere, and every choice each of its words.

use std::collections::BTreeMap;

use nearmetal_load::{NetTest, Unit};
use nearmetal_place::DiskEngine;
use nearmetal_results::{
    ArmResult, Backend, Bus, Ceiling, Confirmation, Container, DiskPath, Effect, GroundKey, LeftOut, Link,
    MATRIX_SCHEMA, MatrixResults, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetFigure, NetMatrixResults,
    NetPath, PATHS_SCHEMA, PathCache, PathRow, PathTable, Proof, Purpose, Scheduler, Turn,
};
use nearmetal_stats::{Fate, Interval, IntervalKind, RatioEstimate};

use crate::results::{fio, lab, measured, named, run, slice};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn ground() -> GroundKey {
    GroundKey { device: "QEMU NVMe Ctrl".into(), kernel: "6.12.41".into(), qemu: "10.0.8".into() }
}

fn ratio() -> Option<RatioEstimate> {
    let interval = || Interval { low: 1.8, high: 2.2 };
    Some(RatioEstimate {
        n: 3,
        ratio: 2.0,
        student_t: interval(),
        bootstrap: interval(),
        recommended: IntervalKind::StudentT,
        confidence: 0.95,
        seed: 1,
        resamples: 10_000,
    })
}

fn left_out() -> Vec<LeftOut> {
    vec![LeftOut { what: "lvm".into(), why: "no lvm2 here".into() }]
}

fn turn() -> Turn {
    Turn {
        round: 0,
        position: 0,
        arm: 0,
        seed: 1,
        started: CREATED.into(),
        seconds: 4.0,
        outcome: measured(&[Unit::Iops]),
    }
}

fn effects() -> [Effect; 2] {
    [Effect::Shown { evidence: vec!["test".into()] }, Effect::NotShown { why: "test".into() }]
}

const FATES: [Fate; 4] = [Fate::Racing, Fate::ShownWorse { look: 0, than: 1 }, Fate::Cut { look: 0 }, Fate::Withdrawn];

fn disk_path(container: Container) -> DiskPath {
    DiskPath {
        container,
        cache: PathCache::None,
        engine: DiskEngine::IoUring,
        iothreads: 1,
        queues: Some(2),
        bus: Bus::VirtioBlk,
        discard: true,
        detect_zeroes: true,
        block_size: Some(4096),
        scheduler: Some(Scheduler::None),
    }
}

fn disk_paths() -> Vec<DiskPath> {
    let containers = [
        Container::Partition,
        Container::Device,
        Container::Lvm,
        Container::RawFile,
        Container::Qcow2Metadata,
        Container::Qcow2Falloc,
        Container::Qcow2Full,
        Container::Qcow2Backing,
        Container::Qcow2Snapshot,
    ];
    let caches = [PathCache::Directsync, PathCache::Writeback, PathCache::Writethrough, PathCache::Unsafe];
    let any = disk_path(Container::Device);
    let mut paths = containers.map(disk_path).to_vec();
    paths.extend(caches.map(|cache| DiskPath { cache, ..any }));
    paths.extend([DiskEngine::Threads, DiskEngine::Native].map(|engine| DiskPath { engine, ..any }));
    let schedulers = [Scheduler::MqDeadline, Scheduler::Kyber, Scheduler::Bfq];
    paths.extend(schedulers.map(|scheduler| DiskPath { scheduler: Some(scheduler), ..any }));
    paths.push(DiskPath { bus: Bus::VirtioScsi, ..any });
    paths
}

pub(super) fn disk() -> MatrixResults {
    let arm = |(number, path): (usize, DiskPath)| ArmResult {
        path,
        id: path.id(),
        source: "/dev/x1".into(),
        effect: effects()[number % 2].clone(),
        cannot_win: Some("loses flushed data".into()),
        fate: Some(FATES[number % 4]),
        rounds: 3,
        median: Some(1000.0),
        to_default: ratio(),
    };
    MatrixResults {
        schema: MATRIX_SCHEMA.into(),
        created: CREATED.into(),
        version: "0".into(),
        environment: lab(),
        ground: ground(),
        guest: "web1".into(),
        slice: slice(),
        workload: fio().into(),
        seed: 1,
        budget: 600,
        took: 100.0,
        error: 0.05,
        looks: vec![3],
        arms: disk_paths().into_iter().enumerate().map(arm).collect(),
        left_out: left_out(),
        turns: vec![turn()],
        winner: Some(1),
        slack: Some(1.0),
        confirmation: Some(Confirmation {
            runs: vec![run(Purpose::Pair, fio().into(), measured(&[Unit::Iops]))],
            to_default: ratio(),
            to_bare: ratio(),
        }),
        caveats: vec!["test".into()],
        provenance: named(&["kernel"]),
    }
}

fn net_paths() -> Vec<NetPath> {
    let path = |link| NetPath { link, backend: Some(Backend::Vhost), queues: Some(1), offloads: true, rps: false };
    let links = [
        Link::VfHostdev,
        Link::Bridge,
        Link::MacvtapBridge,
        Link::MacvtapPrivate,
        Link::MacvtapPassthrough,
        Link::VfMacvtapPassthrough,
        Link::Bare,
    ];
    let mut paths = links.map(path).to_vec();
    paths.push(NetPath { backend: Some(Backend::Qemu), ..path(Link::Bridge) });
    paths
}

pub(super) fn net() -> NetMatrixResults {
    let metric = "tcp-rr.rate".to_owned();
    let arm = |(number, path): (usize, NetPath)| NetArmResult {
        path,
        id: path.id(),
        source: "enp57s0".into(),
        effect: effects()[number % 2].clone(),
        cannot_win: Some("no guest".into()),
        fate: Some(FATES[number % 4]),
        rounds: 3,
        median: Some(1000.0),
        medians: BTreeMap::from([(metric.clone(), 1000.0)]),
        peer_bound: Some(false),
        to_default: ratio(),
        to_bare: ratio(),
    };
    let figure = NetFigure {
        metric: metric.clone(),
        unit: Unit::TransactionsPerSecond,
        medians: vec![(0, 1000.0)],
        to_default: ratio(),
        to_bare: ratio(),
        default_to_bare: ratio(),
        peer_bound: Some(true),
    };
    NetMatrixResults {
        schema: NET_MATRIX_SCHEMA.into(),
        created: CREATED.into(),
        version: "0".into(),
        environment: lab(),
        ground: ground(),
        guest: "web1".into(),
        slice: slice(),
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
            unconfined: vec![2100.0],
            confined: vec![2000.0],
        }],
        arms: net_paths().into_iter().enumerate().map(arm).collect(),
        reference: 1,
        left_out: left_out(),
        turns: vec![turn()],
        winner: Some(0),
        slack: Some(1.0),
        confirmation: Some(NetConfirmation { turns: vec![turn()], figures: vec![figure] }),
        caveats: vec!["test".into()],
        provenance: named(&["kernel"]),
    }
}

pub(super) fn paths() -> PathTable {
    let words = || Some("test".to_owned());
    let path = disk_path(Container::Device);
    let proof = Proof {
        open: words(),
        engine: words(),
        thread: words(),
        guest: words(),
        given_back: words(),
        scheduler: words(),
        flush: words(),
        amiss: words(),
    };
    PathTable {
        schema: PATHS_SCHEMA.into(),
        created: CREATED.into(),
        environment: lab(),
        ground: ground(),
        guest: "web1".into(),
        took: 100.0,
        rows: vec![PathRow { path, id: path.id(), source: "/dev/x1".into(), proof }],
        left_out: left_out(),
    }
}
