//! One guest over 1, 2, 4 and 8 nodes in five modes. Every figure is invented.

use nearmetal_report::papers::order_said;
use nearmetal_report::view::{
    ArmRole, ArmView, Bounds, ByNodesView, Environment, GuestCard, JobReport, ModePoint, ModeSeries, NodesQuantity,
    RatioView,
};

use super::alone;

const NODES: [u32; 4] = [1, 2, 4, 8];

/// The values of each mode, in the order of [`arms`].
type Values = [[f64; 4]; 5];

const RATE: Values = [
    [1.00e6, 1.99e6, 3.95e6, 7.80e6],
    [0.84e6, 1.12e6, 1.31e6, 1.38e6],
    [0.85e6, 1.21e6, 1.62e6, 1.80e6],
    [0.86e6, 1.60e6, 2.60e6, 4.10e6],
    [0.86e6, 1.70e6, 3.35e6, 6.60e6],
];
const SHARE: Values = [
    [100.0, 99.9, 99.9, 99.8],
    [97.0, 51.0, 26.0, 13.1],
    [100.0, 50.2, 25.3, 12.6],
    [100.0, 98.9, 98.4, 97.9],
    [100.0, 99.8, 99.8, 99.7],
];
const DISTANCE: Values = [
    [10.0, 10.0, 10.0, 10.1],
    [10.3, 15.4, 18.9, 24.8],
    [10.0, 15.5, 19.0, 25.1],
    [10.0, 10.1, 10.2, 10.4],
    [10.0, 10.0, 10.0, 10.1],
];
const INSTRUCTIONS: Values =
    [[6.1, 6.1, 6.2, 6.2], [6.9, 7.3, 8.0, 9.4], [6.8, 7.1, 7.7, 8.9], [6.6, 6.8, 7.1, 7.6], [6.6, 6.6, 6.7, 6.7]];

fn arms() -> Vec<ArmView> {
    let arm = |id: &str, name: &str, role, description: &str| ArmView {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        role,
        configuration: vec![],
        extra_pus: vec![],
    };
    vec![
        arm("bare", "native", ArmRole::Bare, "One process on each node."),
        arm("default", "default", ArmRole::AsFound, "One wide VM, nothing pinned."),
        arm("pinned", "pinned", ArmRole::Other, "One wide VM, its vCPUs pinned, no guest cells."),
        arm("cells", "guest cells", ArmRole::Planned, "Pinned, and each guest cell bound to a node of the host."),
        arm("per-node", "one VM on each node", ArmRole::Other, "As many VMs as nodes."),
    ]
}

fn quantity(label: &str, unit: &str, higher_is_better: bool, values: &Values) -> NodesQuantity {
    let series = arms().into_iter().zip(values).map(|(arm, values)| {
        let point = |(place, nodes): (usize, u32)| {
            let mean = values[place];
            let ratio = mean / if unit == "loads/s" { RATE[0][place] } else { mean };
            let paired = unit == "loads/s" && arm.role != ArmRole::Bare;
            ModePoint {
                nodes,
                mean,
                low: mean * 0.96,
                high: if unit == "%" { (mean * 1.03).min(100.0) } else { mean * 1.05 },
                samples: 6,
                to_bare: paired.then_some(RatioView {
                    ratio,
                    interval: Bounds { low: ratio * 0.96, high: ratio * 1.04 },
                    n: 6,
                }),
                beyond_noise: paired,
            }
        };
        ModeSeries { arm: arm.id.clone(), points: NODES.into_iter().enumerate().map(point).collect() }
    });
    NodesQuantity {
        label: label.to_owned(),
        unit: unit.to_owned(),
        higher_is_better,
        emulated: false,
        series: series.collect(),
    }
}

/// A report of the modes, from a lab or as if from silicon.
pub fn nodes(lab: bool) -> JobReport {
    let mut rate = quantity("loads per second", "loads/s", true, &RATE);
    rate.emulated = lab;
    let mut by_nodes = ByNodesView {
        load: "8 B loads in random order over 256 MiB of each node, a thread on each vCPU".to_owned(),
        nodes: NODES.to_vec(),
        quantities: vec![
            rate,
            quantity("accesses that stay on their node", "%", true, &SHARE),
            quantity("mean distance of an access", "distance", false, &DISTANCE),
            quantity("instructions for each load", "instructions", false, &INSTRUCTIONS),
        ],
        papers: vec![],
    };
    by_nodes.papers = order_said(&by_nodes, &arms());
    let mut report = JobReport {
        title: "big1 over 1 to 8 nodes".to_owned(),
        guest: GuestCard { name: "big1".to_owned(), ..GuestCard::default() },
        arms: arms(),
        by_nodes: Some(by_nodes),
        caveats: vec![],
        ..alone()
    };
    if !lab {
        report.environment = Environment::Silicon;
    }
    report
}

/// The same with names that try to act, a mode measured once, one that stops early, and figures that are none.
pub fn hostile_nodes() -> JobReport {
    const HOSTILE: &str = "</text><script>alert('x')</script>\"&\u{1b}[2J\u{202e}";
    let mut report = nodes(true);
    report.arms.iter_mut().for_each(|arm| arm.name.push_str(HOSTILE));
    let by_nodes = report.by_nodes.as_mut().unwrap();
    by_nodes.load.push_str(HOSTILE);
    for quantity in &mut by_nodes.quantities {
        quantity.label.push_str(HOSTILE);
        quantity.unit.push_str(HOSTILE);
        quantity.series[2].points.truncate(2);
        quantity.series[4].points.iter_mut().for_each(|point| point.samples = 1);
    }
    by_nodes.quantities[0].series[0].points[3].high = f64::MAX;
    by_nodes.quantities[1].series[0].points[0].mean = f64::NAN;
    by_nodes.quantities[2].series[0].points[1].low = f64::NEG_INFINITY;
    by_nodes.papers = order_said(by_nodes, &report.arms);
    report
}
