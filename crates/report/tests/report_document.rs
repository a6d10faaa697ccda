//! docs/reference/report.md names exactly the fields of a report.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_report::view::{
    AdviceKind, AdviceView, Bounds, CeilingRow, CheckOutcome, CountRow, EffectRow, GuestShare, IncompleteArm,
    LeftOutRow, REPORT_SCHEMA, RaceArm, RaceReadBack, RaceView, Rate, RatioView, SliceRole, SliceThread, TenantView,
    TogetherView,
};
use nearmetal_stats::Fate;
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};
use serde_json::Value;

const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/report.md"));

/// A report in which every list has an element, every option a value somewhere, and every choice each of its words.
fn full() -> Value {
    let mut report = sample::sample();
    report.incomplete = vec![IncompleteArm { arm: "planned".into(), failed: 1, samples: 6, why: "test".into() }];
    for (row, outcome) in [CheckOutcome::Mismatch, CheckOutcome::CannotTell].into_iter().enumerate() {
        report.verification[row].outcome = outcome;
    }
    let vhost = SliceThread { role: SliceRole::Vhost, number: None, cpus: CpuSet::one(0), floating: false };
    report.slice_after.threads.push(vhost);
    report.slice_after.devices[0].pci = Some("0000:21:00.0".parse().unwrap());
    report.race = Some(race());
    report.together = Some(together());
    report.by_nodes = sample::nodes::nodes(true).by_nodes;
    report.tiles = sample::tiles::tiles(true).tiles;
    report.tenants = vec![TenantView {
        guest: "web1".into(),
        cpus: CpuSet::one(4),
        nodes: NodeSet::one(2),
        page_size: Some(PageSize::HUGE_2M),
        cpus_on_top: CpuSet::one(5),
        device: "/dev/nvme0n1".into(),
        region: Some(Bytes::from_mib(512)),
        placement: vec!["vCPU 0: PU 4".into()],
    }];
    serde_json::to_value(report).unwrap()
}

fn times() -> Option<RatioView> {
    Some(RatioView { ratio: 1.0, interval: Bounds { low: 0.9, high: 1.1 }, n: 6 })
}

fn race() -> RaceView {
    let arm = |read_back| RaceArm {
        id: "x".into(),
        title: "x".into(),
        read_back,
        cannot_win: Some("no guest".into()),
        fate: Some(Fate::ShownWorse { look: 0, than: 1 }),
        peer_bound: Some(false),
        rounds: 6,
        median: Some(Rate { value: 1000.0, unit: "IOPS".into() }),
        to_reference: times(),
        to_bare: times(),
    };
    RaceView {
        ways: "ways to a disk".into(),
        thing: "disk".into(),
        load: Some("4 KiB random".into()),
        quantity: "IOPS".into(),
        reference_name: "QEMU's default".into(),
        reference: 0,
        winner: Some(1),
        arms: vec![
            arm(RaceReadBack::Shown { evidence: vec!["test".into()] }),
            arm(RaceReadBack::NotShown { why: "test".into() }),
        ],
        looks: vec![4],
        error: 0.05,
        slack: Some(1.0),
        took: 700.0,
        advice: Some(AdviceView {
            kind: AdviceKind::Use,
            arm: Some("x".into()),
            to_reference: times(),
            to_bare: times(),
            definition: Some("<driver/>".into()),
            further: vec!["test".into()],
        }),
        left_out: vec![LeftOutRow { what: "y".into(), why: "test".into() }],
        effects: vec![EffectRow {
            what: "pages: small over huge".into(),
            ratio: RatioView { ratio: 1.0, interval: Bounds { low: 0.9, high: 1.1 }, n: 6 },
            confounded: "pins with engine".into(),
        }],
        ceiling: vec![CeilingRow {
            test: "a test".into(),
            unit: "IOPS".into(),
            unconfined: vec![9000.0],
            confined: vec![9000.0],
        }],
    }
}

fn together() -> TogetherView {
    let rate = Some(1000.0);
    let share = GuestShare { guest: "web1".into(), ratio: times(), guest_rate: rate, bare_rate: rate };
    let row = CountRow {
        beyond_noise: true,
        count: 2,
        ratio: times(),
        guests_rate: rate,
        bare_rate: rate,
        guests_gain: Some(2.0),
        bare_gain: Some(2.0),
        peer_bound: Some(true),
        shares: vec![share],
    };
    TogetherView {
        load: "4 KiB random".into(),
        unit: "IOPS".into(),
        counts: vec![row],
        ceiling: rate,
        least_overlap: Some(0.97),
        overlap_limit: Some(0.9),
        clocks_within: Some(0.2),
    }
}

#[test]
fn the_document_names_exactly_the_fields_of_a_report() {
    let fields = Fields::of(&full());
    let slices = ["slice_before", "slice_after"];
    let checks = ["verification", "guest_view", "rolled_back.rows"];
    PAGE.have(
        &fields
            .clone()
            .without(&["host", "host_after", "race", "together", "by_nodes", "tiles"])
            .without(&slices)
            .without(&checks),
        "## Fields",
    );
    PAGE.have(&fields.below(&slices), "## Slice");
    checks.iter().for_each(|check| PAGE.have(&fields.below(&[check]), "## Check"));
    let ratios = ["arms[].to_reference", "arms[].to_bare", "advice.to_reference", "advice.to_bare", "effects[].ratio"];
    let race = fields.below(&["race"]);
    PAGE.have(&race.clone().without(&ratios).without(&["arms[].fate"]), "## Race");
    ratios.iter().for_each(|ratio| PAGE.have(&race.below(&[ratio]), "## Ratio"));
    let (together, ratios) = (fields.below(&["together"]), ["counts[].ratio", "counts[].shares[].ratio"]);
    PAGE.have(&together.clone().without(&ratios), "## Together");
    ratios.iter().for_each(|ratio| PAGE.have(&together.below(&[ratio]), "## Ratio"));
    let (by_nodes, ratio) = (fields.below(&["by_nodes"]), ["quantities[].series[].points[].to_bare"]);
    PAGE.have(&by_nodes.clone().without(&ratio), "## By nodes");
    PAGE.have(&by_nodes.below(&ratio), "## Ratio");
    PAGE.have(&fields.below(&["tiles"]).without(&["over"]), "## Tiles");
    assert!(PAGE.0.contains(REPORT_SCHEMA));
}

#[test]
fn the_document_explains_every_word_of_a_report() {
    let report = full();
    for (path, count, heading) in [
        ("diff[].kind", 4, "## Fields"),
        ("arms[].role", 4, "## Fields"),
        ("memory.rows[].side", 2, "## Fields"),
        ("race.arms[].read_back.read_back", 2, "## Race"),
        ("slice_after.threads[].role", 4, "## Slice"),
        ("verification[].outcome", 3, "## Check"),
    ] {
        PAGE.explain(&report, path, count, heading);
    }
}
