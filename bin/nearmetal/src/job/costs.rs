//! Costs of the runs as lines of the report.

use nearmetal_measure::{Cost, CostRow, Results, cost_table, costs_of_guests, liftings};
use nearmetal_report::view::{CostFigure, CostLine, LiftLine};

/// One line for each workload, arm and group, in the order of the table.
pub(super) fn lines(results: &Results) -> Vec<CostLine> {
    let mut lines: Vec<CostLine> = Vec::new();
    for row in cost_table(results) {
        let (workload, arm, group) = (row.workload.label(), row.arm.id.as_str(), row.cost.title());
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
    let line = |lifting: nearmetal_measure::Lifting| LiftLine {
        seen: lifting.seen,
        what: lifting.what.to_owned(),
        rule: lifting.rule.map(str::to_owned),
    };
    liftings(&costs_of_guests(&cost_table(results))).into_iter().map(line).collect()
}

fn figure(row: &CostRow) -> CostFigure {
    let (unit, scale) = if row.cost == Cost::Cpu { ("µs", 1e-3) } else { ("", 1.0) };
    CostFigure { name: row.name.clone(), unit: unit.to_owned(), value: row.per_io * scale }
}
