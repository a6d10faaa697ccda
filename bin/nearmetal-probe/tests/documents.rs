//! docs/reference/probe.md names exactly the fields that the commands print.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

use std::collections::BTreeMap;

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_host::Host;
use nearmetal_probe::binding::Binding;
use nearmetal_probe::file_system::{FileSystems, Kind};
use nearmetal_probe::kvm::measure::{ExitFigures, KvmResult, RateFigures};
use nearmetal_probe::kvm::verdict::Verdict;
use nearmetal_probe::load::failure::Kind as FailureKind;
use nearmetal_probe::load::figures::{ClassFigures, FailureCount, Figures, Generator, Load, Within};
use nearmetal_probe::load::histogram::Histogram;
use nearmetal_probe::memory::backing::Backing;
use nearmetal_probe::memory::bandwidth::{Bandwidth, KernelFigures};
use nearmetal_probe::memory::budget::CacheRule;
use nearmetal_probe::memory::kernels::{Instructions, Kernel, Stores};
use nearmetal_probe::memory::latency::Latency;
use nearmetal_probe::memory::permutation::Pattern;
use nearmetal_probe::memory::work::Work;
use nearmetal_probe::output::{Output, SCHEMA};
use nearmetal_probe::see::{BlockDrivers, Cache, ClockSource, Seen, TransparentHugepages};
use nearmetal_probe::statistics::Samples;
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::Serialize;

const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/probe.md"));

fn fields(value: &impl Serialize) -> Fields {
    Fields::of(&serde_json::to_value(value).unwrap())
}

fn samples() -> Samples {
    Samples::new("ns/load", vec![1.0]).unwrap()
}

fn binding() -> Binding {
    Binding { cpus: CpuSet::one(0), memory_policy: "bind", nodes: NodeSet::one(0), page_node: Some(0) }
}

fn backing() -> Backing {
    Backing {
        asked: "2m",
        got: "4k",
        as_asked: false,
        reason: Some("test".into()),
        kernel_page_bytes: Some(4096),
        transparent_huge_bytes: Some(0),
        mapping_bytes: 4096,
        pages_per_node: BTreeMap::from([(0, 1)]),
        memory_policy: Some("bind:0".into()),
    }
}

#[test]
fn every_command_prints_the_envelope_of_the_page() {
    let envelope = fields(&Output::new("see-binding", &binding()));
    PAGE.have(&envelope.clone().without(&["result"]), "## Envelope");
    PAGE.have(&envelope.below(&["result"]), "## see-binding");
    assert!(PAGE.section("## Envelope").contains(SCHEMA));
}

#[test]
fn memory_latency_prints_the_fields_of_the_page() {
    let latency = fields(&Latency {
        pattern: Pattern::Groups,
        seed: 1,
        size_bytes: 4096,
        places: 16,
        touched_bytes: 1024,
        loads_per_sample: 1000,
        dropped_loads: 16,
        binding: binding(),
        ran_on: CpuSet::one(0),
        backing: backing(),
        cache: CacheRule::new(Some(1), 4096),
        clock: "CLOCK_MONOTONIC_RAW",
        clock_cost_ns: 20.0,
        latency: samples(),
        notes: vec!["test".into()],
    });
    let elsewhere = ["binding", "backing", "cache", "latency"];
    PAGE.have(&latency.clone().without(&elsewhere), "## memory latency");
    PAGE.have(&latency.below(&["binding"]), "## see-binding");
    PAGE.have(&latency.below(&["backing"]).without(&["pages_per_node"]), "## Backing");
    PAGE.have(&latency.below(&["cache"]), "## Cache");
    PAGE.have(&latency.below(&["latency"]), "## Samples");
}

#[test]
fn memory_bandwidth_prints_the_fields_of_the_page() {
    let kernel = |kernel| KernelFigures { kernel, bytes_per_sample: 4096, bandwidth: samples() };
    let bandwidth = fields(&Bandwidth {
        thread_cpus: vec![0],
        size_bytes: 4096,
        instructions: Instructions::Avx2,
        stores: Stores::NonTemporal,
        binding: binding(),
        backing: vec![backing()],
        cache: CacheRule::new(Some(1), 4096),
        clock: "CLOCK_MONOTONIC_RAW",
        kernels: Kernel::ALL.map(kernel).to_vec(),
        notes: vec!["test".into()],
    });
    let elsewhere = ["binding", "backing", "cache", "kernels[].bandwidth"];
    PAGE.have(&bandwidth.clone().without(&elsewhere), "## memory bandwidth");
    PAGE.have(&bandwidth.below(&["kernels[].bandwidth"]), "## Samples");
}

#[test]
fn memory_work_prints_the_fields_of_the_page() {
    let work = fields(&Work {
        threads: 1,
        size_bytes: 262_144,
        began_ms: 1.5,
        ended_ms: 2.5,
        loads: 4096,
        loads_per_second: 4096.0,
        each: vec![4096.0],
        binding: binding(),
        backing: vec![backing()],
        notes: vec!["test".into()],
    });
    PAGE.have(&work.without(&["binding", "backing"]), "## memory work");
}

#[test]
fn load_prints_the_fields_of_the_page() {
    let mut histogram = Histogram::default();
    histogram.record(7);
    let figures = || Figures {
        offered: 1,
        answered: 1,
        late: 0,
        dropped: 0,
        failed: 0,
        latency: Some(histogram.figures(0)),
        within: vec![Within { limit_ms: 3000, count: 1, share: 1.0 }],
    };
    let load = fields(&Load {
        protocol: "http",
        address: "192.0.2.1:80".into(),
        pace: "open",
        rate: Some(1.0),
        seed: 1,
        connections: 1,
        threads: 1,
        ramp_seconds: 0,
        seconds: 1,
        timeout_ms: 1,
        began_ms: 1.5,
        ended_ms: 2.5,
        finished: 1,
        finished_per_second: 1.0,
        bytes_per_second: 1.0,
        reconnects: 0,
        all: figures(),
        classes: vec![ClassFigures { name: "below-1kb".into(), figures: figures() }],
        failures: vec![FailureCount { kind: FailureKind::Closed, count: 1, first: "test".into() }],
        lost: vec![FailureCount { kind: FailureKind::Connect, count: 1, first: "test".into() }],
        generator: Generator { lag: Some(histogram.figures(0)), most_lag_ms: 5, ceiling_per_second: Some(1.0) },
    });
    PAGE.have(&load.clone().without(&["latency", "generator.lag", "classes[]"]), "## load");
    PAGE.have(&load.below(&["classes[]"]).without(&["latency"]), "## Class");
    PAGE.have(&load.below(&["latency"]), "## Times");
}

#[test]
fn kvm_prints_the_fields_of_the_page() {
    let exit = || ExitFigures {
        instruction: "out",
        cost: samples(),
        bend: 0.0,
        iterations: 1,
        exits_per_loop: [Some(0.0), Some(1.0), Some(2.0)],
    };
    let kvm = fields(&KvmResult {
        verdict: Verdict::Accelerates,
        threshold: 0.1,
        reason: "test".into(),
        rate: Some(RateFigures {
            guest_mode: "64-bit, paging on",
            guest: samples(),
            host: samples(),
            ratio: 0.99,
            emulated_share: Some(0.0),
            iterations: [1, 1],
        }),
        exit_to_user_space: Some(exit()),
        exit_in_kernel: Some(exit()),
        clock: "CLOCK_MONOTONIC_RAW",
        elapsed_ns: 1,
        notes: vec!["test".into()],
    });
    let elsewhere = ["rate.guest", "rate.host", "exit_to_user_space", "exit_in_kernel"];
    PAGE.have(&kvm.clone().without(&elsewhere), "## kvm");
    PAGE.have(&kvm.below(&["exit_to_user_space", "exit_in_kernel"]).without(&["cost"]), "## Exit");
}

#[test]
fn see_prints_the_fields_of_the_page() {
    let seen = fields(&Seen {
        host: Host::default(),
        clock_source: ClockSource { current: Some("tsc".into()), available: vec!["tsc".into()] },
        transparent_hugepages: TransparentHugepages {
            enabled: Some("always".into()),
            defrag: Some("madvise".into()),
            shared_memory: Some("never".into()),
        },
        caches: vec![Cache { level: 3, bytes: Some(Bytes::from_mib(32)), cpus: CpuSet::one(0) }],
        block_drivers: vec![BlockDrivers { name: "vda".into(), drivers: vec!["virtio_blk".into()] }],
    });
    PAGE.have(&seen.without(&["host"]), "## see");
    PAGE.have(&fields(&FileSystems { usable: Kind::ALL.to_vec(), missing: vec!["test".into()] }), "## file-systems");
}
