//! Costs of the runs as lines of the report.

use nearmetal_load::Cost;
use nearmetal_report::view::{CostFigure, CostLine, LiftLine};
use nearmetal_results::{CostRow, NetMatrixResults, Results, cost_table, costs_of_guests, liftings, net_cost_table};

/// One line for each workload, arm and group, in the order of the table.
pub(super) fn lines(results: &Results) -> Vec<CostLine> {
    let mut lines: Vec<CostLine> = Vec::new();
    for row in cost_table(results) {
        let (arm, group) = (row.arm.id.as_str(), row.cost.title());
        let workload = match row.workload.each() {
            "IO" => row.workload.label(),
            each => format!("{}, for each {each}", row.workload.label()),
        };
        let figure = figure(&row);
        match lines.last_mut().filter(|line| line.workload == workload && line.arm == arm && line.group == group) {
            Some(line) => line.figures.push(figure),
            None => {
                lines.push(CostLine { workload, arm: arm.to_owned(), group: group.to_owned(), figures: vec![figure] })
            }
        }
    }
    lines
}

/// What would lift the guests, in the first workload.
pub(super) fn lifts(results: &Results) -> Vec<LiftLine> {
    let line = |lifting: nearmetal_results::Lifting| LiftLine {
        seen: lifting.seen,
        what: lifting.what.to_owned(),
        rule: lifting.rule.map(str::to_owned),
    };
    liftings(&costs_of_guests(&cost_table(results))).into_iter().map(line).collect()
}

/// The same of a race of ways to a network, in every test.
pub(super) fn lines_of_net(results: &NetMatrixResults) -> Vec<CostLine> {
    let mut lines: Vec<CostLine> = Vec::new();
    for row in net_cost_table(results) {
        let each = if row.test.is_stream() { "Gbit" } else { "transaction" };
        let workload = format!("{}, for each {each}", row.test.label());
        let arm = results.arms.get(row.arm).map_or_else(|| row.arm.to_string(), |arm| arm.path.title());
        let figure = cost_figure(row.cost, row.name, row.each);
        let group = row.cost.title();
        match lines.last_mut().filter(|line| line.workload == workload && line.arm == arm && line.group == group) {
            Some(line) => line.figures.push(figure),
            None => lines.push(CostLine { workload, arm, group: group.to_owned(), figures: vec![figure] }),
        }
    }
    lines
}

fn figure(row: &CostRow) -> CostFigure {
    cost_figure(row.cost, row.name.clone(), row.per_io)
}

/// Processor time is shown in µs, and what takes a second for a gigabit in ms.
fn cost_figure(cost: Cost, name: String, each: f64) -> CostFigure {
    let (unit, scale) = match cost {
        Cost::Cpu if each >= 1e7 => ("ms", 1e-6),
        Cost::Cpu => ("µs", 1e-3),
        _ => ("", 1.0),
    };
    CostFigure { name, unit: unit.to_owned(), value: each * scale }
}
