//! What a run cost the host, as figures that arms can be compared by.
//!
//! A guest's fio sees the guest's own time alone; QEMU's threads, vhost workers and interrupts are the host's. The figures
//! are made of what was counted beside the sample ([`crate::watched`]): processor time on the PUs that the arm may use, and in a
//! lab that counts the instructions of the whole machine, on which nothing else runs, and how far memory was.

use nearmetal_load::{Cost, Each, Metric, Unit};

use super::snapshot::{EXECUTING, WAITING};

/// What the lab's model makes of a request: the machine's time for it, on all PUs.
pub const MODELLED_TIME: &str = "modelled.ns";

/// The figures from the costs of a run. `floats`: the arm is pinned nowhere, so that every PU's time may be its own, other
/// programs' included. What was not counted has no figure.
pub fn comparable_figures(costs: &[Metric], each: Each, floats: bool) -> impl Iterator<Item = Metric> {
    // Nothing else runs in a lab: what any PU executed was for the sample. On silicon those of others are counted only where
    // the arm floats.
    let everywhere = true;
    let time = sum(costs, Cost::Cpu, floats).and_then(|sum| Metric::new("cpu.host", each.unit(Cost::Cpu), sum));
    let work =
        sum(costs, Cost::Work, everywhere).and_then(|sum| Metric::new("work.instructions", each.unit(Cost::Work), sum));
    let of_all = |name: &str| Some(value(costs, Cost::Locality, name)? / value(costs, Cost::Locality, "accesses")?);
    let local = of_all("local").and_then(|share| Metric::new("locality.local-share", Unit::Share, share));
    let far = of_all("distance").and_then(|mean| Metric::new("locality.mean-distance", Unit::Distance, mean));
    let modelled = || Some(value(costs, Cost::Modelled, EXECUTING)? + value(costs, Cost::Modelled, WAITING)?);
    let modelled = modelled().and_then(|ns| Metric::new(MODELLED_TIME, Unit::ModelledNanoseconds, ns));
    [time, work, local, far, modelled].into_iter().flatten()
}

fn value(costs: &[Metric], group: Cost, name: &str) -> Option<f64> {
    costs.iter().find(|metric| Cost::of(&metric.name) == Some((group, name))).map(|metric| metric.value)
}

/// What was spent on the slice and on the PUs on top of it; `everywhere`: and on all others.
fn sum(costs: &[Metric], group: Cost, everywhere: bool) -> Option<f64> {
    let beside = if everywhere { &["pus-on-top", "other-pus"][..] } else { &["pus-on-top"] };
    // A slice without PUs on top of it has no such count.
    let more: f64 = beside.iter().filter_map(|place| value(costs, group, place)).sum();
    Some(value(costs, group, "pus-of-the-slice")? + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(group: Cost, name: &str, value: f64) -> Metric {
        Metric { name: format!("cost.{}.{name}", group.id()), unit: Each::Io.unit(group), value }
    }

    fn named(costs: &[Metric], floats: bool, name: &str) -> Option<f64> {
        comparable_figures(costs, Each::Io, floats).find(|metric| metric.name == name).map(|metric| metric.value)
    }

    #[test]
    fn an_arm_costs_what_the_pus_it_may_use_spent() {
        for (group, name) in [(Cost::Cpu, "cpu.host"), (Cost::Work, "work.instructions")] {
            let all = group == Cost::Work;
            let costs = [
                cost(group, "pus-of-the-slice", 100.0),
                cost(group, "pus-on-top", 20.0),
                cost(group, "other-pus", 3.0),
                cost(group, "vcpus", 9.0),
            ];
            assert_eq!(named(&costs, false, name), Some(if all { 123.0 } else { 120.0 }));
            assert_eq!(named(&costs, true, name), Some(123.0));
            assert_eq!(named(&costs[..1], false, name), Some(100.0));
            assert_eq!(named(&costs[1..], false, name), None, "not counted is unknown");
        }
    }

    #[test]
    fn locality_is_a_share_and_a_mean_of_all_accesses() {
        let of = |name, value| cost(Cost::Locality, name, value);
        let costs = [of("accesses", 200.0), of("local", 150.0), of("distance", 2600.0)];
        assert_eq!(named(&costs, false, "locality.local-share"), Some(0.75));
        assert_eq!(named(&costs, true, "locality.mean-distance"), Some(13.0));
        assert_eq!(named(&costs[1..], false, "locality.local-share"), None);
    }

    #[test]
    fn modelled_time_is_executing_and_waiting_and_nothing_without_both() {
        let costs = [cost(Cost::Modelled, EXECUTING, 400.0), cost(Cost::Modelled, WAITING, 226.0)];
        assert_eq!(named(&costs, false, MODELLED_TIME), Some(626.0));
        assert_eq!(named(&costs[..1], false, MODELLED_TIME), None);
        assert_eq!(costs[0].unit.symbol(), "modelled ns");
    }
}
