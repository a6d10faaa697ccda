//! A guest over more and more nodes: each mode's figures, by number of nodes.

use nearmetal_load::Unit;
use nearmetal_report::papers::order_said;
use nearmetal_report::view::{ArmView, ByNodesView, ModePoint, ModeSeries, NodesQuantity};
use nearmetal_results::{Comparison, Environment, Estimate, Purpose, Results, Role, Run};

use super::compared::MODES;
use super::comparisons::{is_beyond_noise, ratio_of};
use super::metrics::show;

/// What is shown: its name among a run's values, the words for it, and whether it hangs on a clock.
const QUANTITIES: [(&str, &str, bool); 6] = [
    ("locality.local-share", "accesses that stay on their node", false),
    ("locality.mean-distance", "mean distance of an access", false),
    ("work.instructions", "instructions per", false),
    ("modelled.ns", "modelled time per", false),
    ("loads", "loads of all nodes together", true),
    ("score", "transactions of all nodes together", true),
];

/// The guest whose parts the tenants are; `None` for another experiment.
pub(super) fn guest(results: &Results) -> Option<&str> {
    let is_it = results.experiment == MODES;
    results.provenance.get("guest").filter(|_| is_it).map(String::as_str)
}

/// The view; `None` for another experiment, or if nothing ran.
pub(super) fn view(results: &Results, compared: &[Comparison], arms: &[ArmView]) -> Option<ByNodesView> {
    if results.experiment != MODES {
        return None;
    }
    let good: Vec<&Run> = (results.runs.iter())
        .filter(|run| matches!(run.purpose, Purpose::Pair | Purpose::Accesses) && run.failure().is_none())
        .collect();
    let mut nodes: Vec<u32> = good.iter().map(|run| run.count as u32).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let quantities = QUANTITIES.iter().filter_map(|(name, label, timed)| {
        let of = Quantity { name, good: &good, compared };
        let (unit, symbol, scale) = of.unit()?;
        let series = results.arms.iter().map(|arm| ModeSeries {
            arm: arm.name.id.clone(),
            points: nodes.iter().filter_map(|nodes| of.point(&arm.name.id, *nodes, scale)).collect(),
        });
        Some(NodesQuantity {
            label: match good.first()?.workload.each() {
                each if label.ends_with(" per") => format!("{label} {each}"),
                _ => (*label).to_owned(),
            },
            unit: symbol.to_owned(),
            higher_is_better: unit.higher_is_better(),
            emulated: *timed && matches!(results.environment, Environment::Lab { .. }),
            series: series.filter(|series| !series.points.is_empty()).collect(),
        })
    });
    let mut view = ByNodesView {
        load: good.first()?.workload.label(),
        quantities: quantities.collect(),
        nodes,
        papers: Vec::new(),
    };
    view.papers = order_said(&view, arms);
    Some(view)
}

/// One of them, and where it is looked for.
struct Quantity<'r> {
    name: &'r str,
    good: &'r [&'r Run],
    compared: &'r [Comparison],
}

impl Quantity<'_> {
    /// Its unit, as measured and as shown, and what is between them.
    fn unit(&self) -> Option<(Unit, &'static str, f64)> {
        let run = self.good.iter().find(|run| run.value(self.name).is_some())?;
        let unit = run.value(self.name)?.unit;
        let (symbol, scale) = match unit {
            Unit::PerLoad | Unit::PerTransaction => ("instructions", 1.0),
            unit => show(unit, &run.workload),
        };
        Some((unit, symbol, scale))
    }

    fn point(&self, arm: &str, nodes: u32, scale: f64) -> Option<ModePoint> {
        let of = self.good.iter().filter(|run| run.arm == arm && run.count == nodes as usize);
        let values: Vec<f64> = of.filter_map(|run| Some(run.value(self.name)?.value * scale)).collect();
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let samples = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let estimate = self.estimate(arm, nodes);
        let to_bare = estimate.and_then(ratio_of);
        let beyond_noise = estimate.is_some_and(is_beyond_noise);
        Some(ModePoint { nodes, mean, low, high, samples, to_bare, beyond_noise })
    }

    /// Against native on as many nodes.
    fn estimate(&self, arm: &str, nodes: u32) -> Option<&Estimate> {
        let is_it = |one: &&Comparison| {
            one.metric == self.name
                && one.count == nodes as usize
                && one.subject.id == arm
                && one.reference.role == Role::Bare
        };
        self.compared.iter().find(is_it).map(|one| &one.estimate)
    }
}
