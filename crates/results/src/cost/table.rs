//! Costs of a whole experiment: by workload and arm, averaged over its runs.

use std::collections::BTreeSet;

use nearmetal_load::{Cost, Workload};

use crate::arm::ArmName;
use crate::results::{Results, Run};

/// One cost of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct CostRow {
    /// Workload.
    pub workload: Workload,
    /// Arm.
    pub arm: ArmName,
    /// Group.
    pub cost: Cost,
    /// What of it: `vcpus`, `io`, `nvme1q1`.
    pub name: String,
    /// Mean for each I/O: ns of CPU time, or a count.
    pub per_io: f64,
    /// Runs it was counted in; in others it stood still or was not counted.
    pub runs: u32,
}

/// The costs of all runs of an experiment, in the order of workloads, arms and groups; the largest of a group first.
///
/// The mean goes over all runs of an arm in which the group was counted: one in which a line stood still counts as 0 there.
pub fn cost_table(results: &Results) -> Vec<CostRow> {
    let mut rows: Vec<CostRow> = Vec::new();
    // Reasons and accesses are counted in runs of their own, the rest in all others.
    let mut counted: Vec<(&Workload, &str, Cost, u32)> = Vec::new();
    // Of several tenants, with all of them at once.
    let all = results.runs.iter().map(|run| run.count).max().unwrap_or(1);
    for run in results.runs.iter().filter(|run| run.count == all) {
        let costs = costs(run);
        let Some(arm) = results.arm(&run.arm).map(|arm| &arm.name).filter(|_| !costs.is_empty()) else { continue };
        let groups: BTreeSet<Cost> = costs.iter().map(|(cost, ..)| *cost).collect();
        for group in groups {
            let same =
                |one: &&mut (&Workload, &str, Cost, u32)| *one.0 == run.workload && one.1 == run.arm && one.2 == group;
            match counted.iter_mut().find(same) {
                Some((.., runs)) => *runs += 1,
                None => counted.push((&run.workload, &run.arm, group, 1)),
            }
        }
        for (cost, name, value) in costs {
            let same = |row: &&mut CostRow| {
                row.workload == run.workload && row.arm == *arm && row.cost == cost && row.name == name
            };
            match rows.iter_mut().find(same) {
                Some(row) => {
                    row.per_io += value;
                    row.runs += 1;
                }
                None => rows.push(CostRow {
                    workload: run.workload.clone(),
                    arm: arm.clone(),
                    cost,
                    name: name.to_owned(),
                    per_io: value,
                    runs: 1,
                }),
            }
        }
    }
    let runs = |row: &CostRow| {
        let found = counted.iter().find(|one| *one.0 == row.workload && one.1 == row.arm.id && one.2 == row.cost);
        found.map_or(1, |(.., runs)| *runs)
    };
    let divisors: Vec<u32> = rows.iter().map(runs).collect();
    rows.iter_mut().zip(divisors).for_each(|(row, runs)| row.per_io /= f64::from(runs));
    let place = |row: &CostRow| counted.iter().position(|one| *one.0 == row.workload && one.1 == row.arm.id);
    rows.sort_by(|left, right| {
        let key = |row: &CostRow| (place(row), row.cost);
        key(left).cmp(&key(right)).then(right.per_io.total_cmp(&left.per_io))
    });
    rows
}

fn costs(run: &Run) -> Vec<(Cost, &str, f64)> {
    let costs = run.metrics().iter().filter_map(|metric| Some((Cost::of(&metric.name)?, metric.value)));
    costs.map(|((cost, name), value)| (cost, name, value)).collect()
}

/// How many of a group are shown; the JSON has all.
const SHOWN: usize = 6;

/// The table as text: a line for each workload, arm and group.
pub fn cost_text(rows: &[CostRow]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while let Some(first) = rows.get(at) {
        let of_line = |row: &&CostRow| (&row.workload, &row.arm, row.cost) == (&first.workload, &first.arm, first.cost);
        let line: Vec<&CostRow> = rows[at..].iter().take_while(of_line).collect();
        at += line.len();
        let line: Vec<(&str, f64)> = line.iter().map(|row| (row.name.as_str(), row.per_io)).collect();
        text.push_str(&format!(
            "{:44} {:12} {:16} {}\n",
            first.workload.label(),
            first.arm.title,
            format!("{}/{}", first.cost.title(), first.workload.each()),
            cost_figures(first.cost, &line)
        ));
    }
    text
}

/// A count for each I/O (transaction, gigabit) with about three digits that say something: 0.573, 12.3, 16503.
pub(super) fn count_text(each: f64) -> String {
    let decimals = match each {
        _ if each >= 100.0 => 0,
        _ if each >= 10.0 => 1,
        _ => 3,
    };
    format!("{each:.decimals$}")
}

/// The largest costs of a group in words, the largest first: name and ns of CPU time, or a count.
pub fn cost_figures(cost: Cost, line: &[(&str, f64)]) -> String {
    let one = |(name, each): &(&str, f64)| match cost {
        Cost::Cpu if *each >= 1e9 => format!("{name} {:.2} s", each / 1e9),
        Cost::Cpu if *each >= 1e6 => format!("{name} {:.1} ms", each / 1e6),
        Cost::Cpu => format!("{name} {:.1} µs", each / 1e3),
        _ => format!("{name} {}", count_text(*each)),
    };
    let shown: Vec<String> = line.iter().take(SHOWN).map(one).collect();
    let more = line.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(", {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use nearmetal_load::{Metric, Unit};

    use super::*;

    #[test]
    fn counts_have_no_digits_that_say_nothing() {
        assert_eq!([0.0, 0.5731, 4.0, 12.34, 16502.84].map(count_text), ["0.000", "0.573", "4.000", "12.3", "16503"]);
    }
    use crate::results::Outcome;
    use crate::samples::sample_results;

    fn with_costs() -> Results {
        let mut results = sample_results();
        let planned = results.runs.iter_mut().filter(|run| run.arm == "planned");
        for (number, run) in planned.enumerate() {
            if let Outcome::Measured { metrics, .. } = &mut run.outcome {
                let mut add = |name: &str, value: f64| {
                    metrics.push(Metric { name: name.to_owned(), unit: Unit::PerIo, value });
                };
                add("cost.exits.all", 4.0);
                if number == 0 {
                    add("cost.exits.io", 1.0);
                }
            }
        }
        // Reasons come from one run of their own.
        let mut reasons = results.runs.iter().find(|run| run.arm == "planned").unwrap().clone();
        let metric = Metric { name: "cost.exit-reasons.msr".to_owned(), unit: Unit::PerIo, value: 3.0 };
        reasons.outcome = Outcome::Measured { metrics: vec![metric], notes: vec![] };
        reasons.purpose = crate::results::Purpose::SingleShot;
        // And accesses from others.
        let mut accesses = reasons.clone();
        let metric = Metric { name: "cost.locality.local".to_owned(), unit: Unit::PerIo, value: 7.0 };
        accesses.outcome = Outcome::Measured { metrics: vec![metric], notes: vec![] };
        accesses.purpose = crate::results::Purpose::Accesses;
        results.runs.extend([reasons, accesses.clone(), accesses]);
        results
    }

    #[test]
    fn a_mean_goes_over_all_counted_runs() {
        let rows = cost_table(&with_costs());
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(of("all").per_io, 4.0);
        let runs = of("all").runs;
        assert!(runs > 1 && (of("io").per_io - 1.0 / f64::from(runs)).abs() < 1e-12, "{rows:?}");
        assert_eq!(rows[0].name, "all", "the largest first");
        assert_eq!(of("msr").per_io, 3.0, "other runs counted no reasons, which is not 0");
        assert_eq!(of("local").per_io, 7.0, "nor accesses");
        let text = cost_text(&rows);
        assert!(text.contains("exits by KVM/IO") && text.contains("all 4.000, io "), "{text}");
        assert!(cost_table(&sample_results()).is_empty());
    }

    #[test]
    fn times_are_in_units_people_read() {
        let line = [("vcpus", 2.5e9), ("vhost", 3.25e6), ("emulator", 1500.0)];
        assert_eq!(cost_figures(Cost::Cpu, &line), "vcpus 2.50 s, vhost 3.2 ms, emulator 1.5 µs");
    }

    #[test]
    fn costs_are_no_ratios() {
        let with = crate::compare::compare(&with_costs()).unwrap();
        assert_eq!(with.len(), crate::compare::compare(&sample_results()).unwrap().len());
    }
}
