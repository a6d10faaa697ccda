//! Plans as text for a terminal: no colours, no width needed.

use crate::plan::{Blocker, Placement, PoolChange};
use crate::report::Planned;

/// A placement as lines: what, where, and why for each.
pub fn explain(placement: &Placement) -> Vec<String> {
    let mut lines = vec![format!("{} ({})", placement.guest, placement.uuid)];
    lines.extend(pin_table(placement));
    let width = placement.reasons.iter().map(|reason| reason.subject.chars().count()).max().unwrap_or(0);
    let mut previous = None;
    for reason in &placement.reasons {
        // A subject with several decisions (a disk) is named once.
        let subject = if previous == Some(&reason.subject) { "" } else { reason.subject.as_str() };
        lines.push(format!("  {subject:width$}  {}", reason.choice));
        lines.push(format!("  {:width$}    because {}", "", reason.because));
        if let Some(source) = &reason.source {
            lines.push(format!("  {:width$}    see {source}", ""));
        }
        previous = Some(&reason.subject);
    }
    lines
}

/// Threads and their PUs, one line each.
fn pin_table(placement: &Placement) -> Vec<String> {
    if placement.is_floating() {
        return Vec::new();
    }
    let mut rows: Vec<(String, String)> =
        placement.vcpus.iter().map(|pin| (format!("vCPU {}", pin.vcpu), pin.cpus.to_string())).collect();
    rows.push(("emulator".to_owned(), placement.emulator.to_string()));
    rows.extend((1..).zip(&placement.iothreads).map(|(number, cpus)| (format!("iothread {number}"), cpus.to_string())));
    let width = rows.iter().map(|(thread, _)| thread.len()).max().unwrap_or(0);
    let head = format!("  {:width$}  PU", "thread");
    std::iter::once(head).chain(rows.into_iter().map(|(thread, cpus)| format!("  {thread:width$}  {cpus}"))).collect()
}

/// A pool as a line.
fn pool_line(pool: &PoolChange) -> String {
    let PoolChange { node, size, before, after } = pool;
    match before == after {
        true => format!("  node {node}  {size}  {after} pages, as now"),
        false => format!("  node {node}  {size}  {before} -> {after} pages"),
    }
}

fn blocker_lines(blocker: &Blocker) -> [String; 3] {
    [
        format!("{} cannot be placed", blocker.guest),
        format!("  {}", blocker.problem),
        format!("  to place it: {}", blocker.remedy),
    ]
}

/// The whole plan report.
pub fn render(planned: &Planned) -> String {
    let mut blocks: Vec<Vec<String>> = planned.plan.placements.iter().map(explain).collect();
    if !planned.plan.pools.is_empty() {
        let head = std::iter::once("hugepage pools".to_owned());
        blocks.push(head.chain(planned.plan.pools.iter().map(pool_line)).collect());
    }
    blocks.extend(planned.plan.blocked.iter().map(|blocker| blocker_lines(blocker).to_vec()));
    if !planned.report.assumptions.is_empty() {
        let head = std::iter::once("assumed".to_owned());
        blocks.push(head.chain(planned.report.assumptions.iter().map(|line| format!("  {line}"))).collect());
    }
    let text = blocks.iter().map(|block| block.join("\n")).collect::<Vec<_>>().join("\n\n");
    if text.is_empty() { text } else { text + "\n" }
}
