//! VM exits by the processor's reason: the tracepoint kvm:kvm_exit, counted by the kernel itself.
//!
//! A histogram trigger (Linux Documentation/trace/histogram.rst) counts without a word written out. It is work at every
//! exit, so that a run under it is a run of its own, whose rate is not kept.

use std::collections::BTreeMap;
use std::time::Instant;

use nearmetal_host::HostFs;

use super::{Cost, PREFIX};
use crate::error::MeasureError;
use crate::executor::iops;
use crate::experiment::{Executor, GIVE_UP_AFTER, chain};
use crate::leftovers::Leftovers;
use crate::metric::{Metric, Unit};
use crate::results::{ArmKind, Outcome, Purpose, Run};
use crate::schedule::{Design, Step};

const EVENT: &str = "/sys/kernel/tracing/events/kvm/kvm_exit";
const COUNT: &str = "hist:keys=isa,exit_reason";

/// Runs the first paired workload once more in each guest arm, with exits counted by reason. What cannot be counted gives
/// a failed run with the reason; where the kernel has no such tracepoint to show, a note says so.
///
/// The histogram counts all guests: the others are paused meanwhile. Its numbers are divided among the exits of the whole
/// run, fio's start and the agent's words included; what counts is their share, so `cost.exits.all` is split by it.
pub(crate) fn exit_reasons(
    fs: &HostFs,
    design: &Design,
    seed: u64,
    round: u32,
    executor: &mut dyn Executor,
    leftovers: &mut Leftovers,
) -> (Vec<Run>, Vec<String>) {
    let Some(workload) = design.paired.first() else { return (Vec::new(), Vec::new()) };
    if !fs.exists(EVENT) {
        let note = format!(
            "exits by reason were not counted: there is no {EVENT} (mount -t tracefs tracefs /sys/kernel/tracing)"
        );
        return (Vec::new(), vec![note]);
    }
    leftovers.counts_exits = true;
    if let Err(error) = leftovers.save() {
        return (Vec::new(), vec![format!("exits by reason were not counted: {}", chain(&error))]);
    }
    let guests = design.arms.iter().filter(|arm| **arm != ArmKind::BareSlice);
    let mut runs = Vec::new();
    for (position, arm) in guests.enumerate().take(GIVE_UP_AFTER as usize) {
        let step = Step {
            round,
            position: position as u32,
            purpose: Purpose::SingleShot,
            arm: *arm,
            workload: workload.clone(),
            seed: (seed >> 33) | 1,
        };
        let (started, clock) = (nearmetal_change::timestamp::now(), Instant::now());
        let outcome = match one(fs, &step, executor) {
            Ok(metrics) => Outcome::Measured { metrics, notes: vec![NOTE.to_owned()] },
            Err(why) => Outcome::Failed { why },
        };
        runs.push(Run {
            round,
            position: step.position,
            purpose: step.purpose,
            arm: step.arm,
            workload: step.workload,
            seed: step.seed,
            started,
            seconds: clock.elapsed().as_secs_f64(),
            outcome,
        });
    }
    (runs, Vec::new())
}

/// Ends what a killed run was counting; nothing where nothing counts.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn stop_counting(fs: &HostFs) -> Result<(), MeasureError> {
    let trigger = format!("{EVENT}/trigger");
    if !fs.read(&trigger).is_ok_and(|text| text.contains(COUNT)) {
        return Ok(());
    }
    fs.write(&trigger, &format!("!{COUNT}"))
        .map_err(|source| MeasureError::KernelWrite { what: "cannot stop counting exits by reason".to_owned(), source })
}

const NOTE: &str = "exits by reason were counted in this run, which costs time at every exit: its rate is not kept";

fn one(fs: &HostFs, step: &Step, executor: &mut dyn Executor) -> Result<Vec<Metric>, String> {
    let trigger = format!("{EVENT}/trigger");
    fs.write(&trigger, COUNT).map_err(|error| format!("exits by reason: {error}"))?;
    let measured = executor.run(step);
    let text = fs.read(&format!("{EVENT}/hist"));
    let removed = fs.write(&trigger, &format!("!{COUNT}"));
    let measured = measured.map_err(|error| chain(&error))?;
    let text = text.map_err(|error| error.to_string())?;
    removed.map_err(|error| error.to_string())?;
    let all = format!("{PREFIX}{}.all", Cost::Exits.id());
    let exits = measured.metrics.iter().find(|metric| metric.name == all).map(|metric| metric.value);
    let exits = exits.filter(|_| iops(&measured.metrics) > 0.0).ok_or("exits by reason: KVM's own count is missing")?;
    let counts = parse(&text);
    let total: u64 = counts.values().sum();
    if total == 0 {
        return Err("exits by reason: the tracepoint counted none".to_owned());
    }
    let metric = |(reason, count): (&String, &u64)| Metric {
        name: format!("{PREFIX}{}.{reason}", Cost::Reasons.id()),
        unit: Unit::PerIo,
        value: exits * *count as f64 / total as f64,
    };
    Ok(counts.iter().map(metric).collect())
}

/// Lines of a histogram: `{ isa: 2, exit_reason: 124 } hitcount: 1958`. Others are headings.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((keys, hits)) = line.trim().strip_prefix('{').and_then(|line| line.split_once('}')) else { continue };
        let value = |name: &str| {
            keys.split(',')
                .find_map(|key| key.split_once(':').filter(|(own, _)| own.trim() == name)?.1.trim().parse::<u32>().ok())
        };
        let hits = hits.split_once("hitcount:").and_then(|(_, hits)| hits.trim().parse::<u64>().ok());
        let (Some(isa), Some(reason), Some(hits)) = (value("isa"), value("exit_reason"), hits) else { continue };
        let slot: &mut u64 = counts.entry(name(isa, reason)).or_default();
        *slot = slot.saturating_add(hits);
    }
    counts
}

/// Reasons by their names in the processors' manuals, as far as they matter for I/O; others by number.
///
/// AMD64 Architecture Programmer's Manual vol. 2, appendix C (`isa` 2); Intel SDM vol. 3, appendix C (`isa` 1).
fn name(isa: u32, reason: u32) -> String {
    let known = match (isa, reason) {
        (2, 0x60) => "interrupt",
        (2, 0x61) => "nmi",
        (2, 0x64) => "interrupt-window",
        (2, 0x72) => "cpuid",
        (2, 0x77) => "pause",
        (2, 0x78) => "hlt",
        (2, 0x7b) => "io-port",
        (2, 0x7c) => "msr",
        (2, 0x81) => "hypercall",
        (2, 0x400) => "nested-page-fault",
        (2, 0x401) => "avic-incomplete-ipi",
        (2, 0x402) => "avic-no-acceleration",
        (1, 0) => "exception-or-nmi",
        (1, 1) => "interrupt",
        (1, 7) => "interrupt-window",
        (1, 10) => "cpuid",
        (1, 12) => "hlt",
        (1, 18) => "hypercall",
        (1, 30) => "io-port",
        (1, 31) => "msr-read",
        (1, 32) => "msr-write",
        (1, 40) => "pause",
        (1, 44) => "apic-access",
        (1, 45) => "virtualized-eoi",
        (1, 48) => "ept-violation",
        (1, 49) => "ept-misconfiguration",
        (1, 52) => "preemption-timer",
        (1, 56) => "apic-write",
        _ => return format!("reason-{reason:#x}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_histogram_is_read_by_its_lines() {
        // Linux 6.12 in the lab.
        let text = "# event histogram\n#\n# trigger info: hist:keys=isa,exit_reason:vals=hitcount:sort=hitcount:size=2048 [active]\n#\n\n\
            { isa:          2, exit_reason:        114 } hitcount:        176\n\
            { isa:          2, exit_reason:        124 } hitcount:       1958\n\
            { isa:          1, exit_reason:         48 } hitcount:          3\n\
            { isa:          2, exit_reason:       9999 } hitcount:          1\n\nTotals:\n    Hits: 5885\n";
        let counts = parse(text);
        assert_eq!((counts["msr"], counts["cpuid"], counts["ept-violation"]), (1958, 176, 3));
        assert_eq!(counts["reason-0x270f"], 1);
        assert_eq!(counts.len(), 4);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[{} a-z:,0-9\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
