//! What each I/O costs the host in processor time, as one figure that arms can be compared by.
//!
//! A guest's fio sees the guest's own time alone; QEMU's threads, vhost workers and interrupts are the host's. The figure
//! is the sum of what was counted beside the sample ([`crate::cost`]) on the PUs an arm may use.

use crate::cost::{Cost, Each};
use crate::metric::Metric;

/// Name of the metric.
const NAME: &str = "cpu.host";

/// The figure from the costs of a run. `floats`: the arm is pinned nowhere, so that every PU's time may be its own, other
/// programs' included. `None` where the slice's time was not counted.
pub(crate) fn of(costs: &[Metric], each: Each, floats: bool) -> Option<Metric> {
    let of = |place: &str| {
        let named = |metric: &&Metric| Cost::of(&metric.name) == Some((Cost::Cpu, place));
        costs.iter().find(named).map(|metric| metric.value)
    };
    let beside = if floats { &["pus-on-top", "other-pus"][..] } else { &["pus-on-top"] };
    // A slice without PUs on top of it has no such count.
    let more: f64 = beside.iter().filter_map(|place| of(place)).sum();
    Metric::new(NAME, each.unit(Cost::Cpu), of("pus-of-the-slice")? + more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Unit;

    #[test]
    fn an_arm_costs_what_the_pus_it_may_use_spent() {
        let cost =
            |name: &str, value| Metric { name: format!("cost.cpu.{name}"), unit: Unit::CpuNanosecondsPerIo, value };
        let costs =
            [cost("pus-of-the-slice", 100.0), cost("pus-on-top", 20.0), cost("other-pus", 3.0), cost("vcpus", 9.0)];
        let value = |costs: &[Metric], floats| of(costs, Each::Io, floats).map(|metric| metric.value);
        assert_eq!(value(&costs, false), Some(120.0));
        assert_eq!(value(&costs, true), Some(123.0));
        assert_eq!(value(&costs[..1], false), Some(100.0));
        assert_eq!(value(&costs[1..], false), None, "not counted is unknown");
    }
}
