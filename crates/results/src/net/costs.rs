//! Where the time of a packet goes: what the host did for each transaction, or for each gigabit of a stream.
//!
//! The counters are those of a disk's sample ([`crate::cost_table`]); here they stand beside several tests of one run, so that each
//! has its test's name before it: `tcp-rr.cost.exits.all`.

use nearmetal_load::{Cost, Metric, NetTest};

use super::race::NetMatrixResults;

/// One cost of one arm in one test.
#[derive(Debug, Clone, PartialEq)]
pub struct NetCostRow {
    /// Test.
    pub test: NetTest,
    /// Number of the arm.
    pub arm: usize,
    /// Group.
    pub cost: Cost,
    /// What of it: `vcpus`, `io`, `enp57s0-TxRx-0`.
    pub name: String,
    /// Mean for each transaction, or each gigabit of a stream: ns of CPU time, or a count.
    pub each: f64,
}

/// Whether a metric is a cost: such are never compared as ratios, since many of them are rightly 0.
pub(super) fn is_cost(metric: &str) -> bool {
    split(metric).is_some()
}

/// Test and the rest of a cost's name.
fn split(metric: &str) -> Option<(NetTest, Cost, &str)> {
    let (test, rest) = metric.split_once('.')?;
    let test = NetTest::ALL.into_iter().find(|one| one.id() == test)?;
    let (cost, name) = Cost::of(rest)?;
    Some((test, cost, name))
}

/// The metrics of one run of a test, with the test's name before those that every load has.
pub fn net_metric(test: NetTest, metric: Metric) -> Metric {
    let own = metric.name.starts_with(test.id());
    Metric { name: if own { metric.name } else { format!("{}.{}", test.id(), metric.name) }, ..metric }
}

/// The costs of every arm: in the fresh rounds, or in the race for those that have none; by test and arm, the largest of a
/// group first. The mean goes over all rounds of an arm that were counted: one in which a counter stood still counts as 0.
pub fn net_cost_table(results: &NetMatrixResults) -> Vec<NetCostRow> {
    let fresh = results.confirmation.as_ref().map_or(&[][..], |confirmation| &confirmation.turns);
    let again = |arm: usize| fresh.iter().any(|turn| turn.arm == arm);
    let mut rows: Vec<NetCostRow> = Vec::new();
    let mut counted: Vec<(NetTest, usize, u32)> = Vec::new();
    for turn in fresh.iter().chain(results.turns.iter().filter(|turn| !again(turn.arm))) {
        let costs: Vec<_> = turn.metrics().iter().filter_map(|one| Some((split(&one.name)?, one.value))).collect();
        let mut tests: Vec<NetTest> = costs.iter().map(|((test, ..), _)| *test).collect();
        tests.dedup();
        for test in tests {
            match counted.iter_mut().find(|(of, arm, _)| (*of, *arm) == (test, turn.arm)) {
                Some((.., runs)) => *runs += 1,
                None => counted.push((test, turn.arm, 1)),
            }
        }
        for ((test, cost, name), value) in costs {
            let same = |row: &&mut NetCostRow| {
                (row.test, row.arm, row.cost, row.name.as_str()) == (test, turn.arm, cost, name)
            };
            match rows.iter_mut().find(same) {
                Some(row) => row.each += value,
                None => rows.push(NetCostRow { test, arm: turn.arm, cost, name: name.to_owned(), each: value }),
            }
        }
    }
    for row in &mut rows {
        let found = counted.iter().find(|(test, arm, _)| (*test, *arm) == (row.test, row.arm));
        row.each /= f64::from(found.map_or(1, |(.., runs)| *runs));
    }
    let place = |test: NetTest| results.tests.iter().position(|one| *one == test);
    rows.sort_by(|left, right| {
        let key = |row: &NetCostRow| (place(row.test), row.arm, row.cost);
        key(left).cmp(&key(right)).then(right.each.total_cmp(&left.each))
    });
    rows
}

#[cfg(test)]
mod tests {
    use nearmetal_load::Unit;

    use super::super::race::tests::sample_net_matrix;
    use super::*;
    use crate::results::Outcome;

    #[test]
    fn a_cost_has_its_test_before_it_and_is_no_ratio() {
        assert_eq!(split("tcp-rr.cost.exits.all"), Some((NetTest::TcpRr, Cost::Exits, "all")));
        assert!(is_cost("udp-rr.cost.interrupts.vfio-msix[0](0000:39:10.0)"));
        for other in ["tcp-rr.rate", "tcp-rr.cpu-slice", "cost.exits.all", "ftp.cost.exits.all", "tcp-rr.cost.x.y"] {
            assert!(!is_cost(other), "{other}");
        }
    }

    #[test]
    fn a_mean_goes_over_the_rounds_that_were_counted() {
        let mut results = sample_net_matrix();
        let turns = &mut results.confirmation.as_mut().unwrap().turns;
        for (number, turn) in turns.iter_mut().filter(|turn| turn.arm == 1).enumerate() {
            if let Outcome::Measured { metrics, .. } = &mut turn.outcome {
                let mut add = |name: &str, value: f64| {
                    metrics.push(Metric { name: name.to_owned(), unit: Unit::PerTransaction, value });
                };
                add("tcp-rr.cost.exits.all", 6.0);
                if number == 0 {
                    add("tcp-rr.cost.exits.hlt", 3.0);
                }
            }
        }
        let rows = net_cost_table(&results);
        let each = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.each);
        assert_eq!((rows.len(), each("all"), each("hlt")), (2, Some(6.0), Some(1.0)), "{rows:?}");
        assert!(rows.iter().all(|row| row.arm == 1));
        assert!(net_cost_table(&NetMatrixResults { confirmation: None, ..results.clone() }).is_empty());
        // An arm that was not measured again has its costs from the race.
        results.turns = results.confirmation.take().unwrap().turns;
        assert_eq!(net_cost_table(&results), rows);
    }
}
