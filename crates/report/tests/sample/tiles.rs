//! Tiles over two ways. Every figure is invented.

use nearmetal_report::view::{
    ArmRole, ArmView, Bounds, ByNodesView, Environment, JobReport, ModePoint, ModeSeries, NodesQuantity, PartBusy,
    TilesHeld, TilesRow, TilesView,
};

use super::alone;

fn arm(id: &str, name: &str, role: ArmRole) -> ArmView {
    ArmView {
        id: id.to_owned(),
        name: name.to_owned(),
        description: "test".to_owned(),
        role,
        configuration: vec![],
        extra_pus: vec![],
    }
}

fn row(tiles: u32, arm: &str, score: Option<f64>, missed: u32) -> TilesRow {
    let samples = if score.is_some() { 3 } else { 0 };
    TilesRow {
        tiles,
        arm: arm.to_owned(),
        score,
        range: score.map(|score| Bounds { low: score - 1.5, high: score + 0.5 }),
        samples,
        missed,
        failed: 3 - samples,
        worst: (missed > 0)
            .then(|| "the web server `w2` of tile 2 answered 61.0 % within 3 s, and 95 % is the limit".to_owned()),
        least: (missed > 0).then(|| {
            "the smallest part was answered by the web server `w2` of tile 2: 88.0 % of what it was asked".to_owned()
        }),
        busy: score.map(|score| score / 40.0),
        busy_by_part: vec![PartBusy { part: "web server".to_owned(), pus: 1.25 }],
    }
}

/// The bridge holds one tile, virtual functions both.
pub fn tiles(lab: bool) -> JobReport {
    let rows = vec![
        row(1, "bridge", Some(99.0), 0),
        row(1, "vf", Some(100.0), 0),
        row(2, "bridge", Some(171.0), 3),
        row(2, "vf", Some(198.5), 1),
    ];
    let series = |arm: &str| ModeSeries {
        arm: arm.to_owned(),
        points: rows
            .iter()
            .filter(|row| row.arm == arm)
            .map(|row| ModePoint {
                nodes: row.tiles,
                mean: row.score.unwrap_or_default(),
                low: row.range.unwrap().low,
                high: row.range.unwrap().high,
                samples: 3,
                to_bare: None,
                beyond_noise: false,
            })
            .collect(),
    };
    let score = NodesQuantity {
        label: "score of all tiles together".to_owned(),
        unit: "points".to_owned(),
        higher_is_better: true,
        emulated: lab,
        series: vec![series("bridge"), series("vf")],
    };
    let held = |arm: &str, tiles, score, open_ended, why: &str| TilesHeld {
        arm: arm.to_owned(),
        tiles,
        score: Some(score),
        open_ended,
        without_figures: false,
        why: why.to_owned(),
    };
    let mut report = JobReport {
        title: "w1, i1, w2, i2, bench tiles".to_owned(),
        arms: vec![
            arm("bridge", "virtio on a bridge", ArmRole::AsFound),
            arm("vf", "virtual functions", ArmRole::Planned),
        ],
        tiles: Some(TilesView {
            over: ByNodesView {
                load: "up to 2 tiles of web server, idle guest, 0.01 times the usual rates".to_owned(),
                nodes: vec![1, 2],
                quantities: vec![score],
                papers: vec![],
            },
            scale: 0.01,
            emulated: lab,
            rows,
            held: vec![
                held("bridge", 1, 99.0, false, "with 2 tiles quality of service failed in 3 of 3 samples"),
                held("vf", 2, 198.5, true, "with 2 tiles there are no more, and quality of service was kept"),
            ],
        }),
        caveats: vec![],
        ..alone()
    };
    if !lab {
        report.environment = Environment::Silicon;
    }
    report
}
