//! VM exits by the processor's reason: the tracepoint kvm:kvm_exit, counted by the kernel itself.
//!
//! A histogram trigger (Linux Documentation/trace/histogram.rst) counts without a word written out. It is work at every
//! exit, so that a run under it is a run of its own, whose rate is not kept.

use std::collections::BTreeMap;

use nearmetal_host::HostFs;
use nearmetal_load::{Cost, Metric, PREFIX};

use super::error::CostError;

const EVENT: &str = "/sys/kernel/tracing/events/kvm/kvm_exit";
const COUNT: &str = "hist:keys=isa,exit_reason";

/// Ends what a killed run was counting; nothing where nothing counts.
///
/// # Errors
/// The kernel refuses it.
pub fn stop_counting(fs: &HostFs) -> Result<(), CostError> {
    let trigger = format!("{EVENT}/trigger");
    if !fs.read(&trigger).is_ok_and(|text| text.contains(COUNT)) {
        return Ok(());
    }
    fs.write(&trigger, &format!("!{COUNT}"))
        .map_err(|source| CostError::KernelWrite { what: "cannot stop counting exits by reason".to_owned(), source })
}

/// Why exits cannot be counted by reason here; `None` if they can.
pub fn why_no_reasons(fs: &HostFs) -> Option<String> {
    (!fs.exists(EVENT)).then(|| {
        format!("exits by reason were not counted: there is no {EVENT} (mount -t tracefs tracefs /sys/kernel/tracing)")
    })
}

/// Exits by reason, while something ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Reasons(BTreeMap<String, u64>);

/// Does some work with exits counted by reason. The histogram counts all guests: the others are paused meanwhile.
///
/// # Errors
/// The kernel refuses to count, or to stop.
pub fn counting_reasons<T>(fs: &HostFs, work: impl FnOnce() -> T) -> Result<(T, Option<Reasons>), CostError> {
    let trigger = format!("{EVENT}/trigger");
    let set = |value: &str| {
        fs.write(&trigger, value)
            .map_err(|source| CostError::KernelWrite { what: "exits by reason".to_owned(), source })
    };
    set(COUNT)?;
    let done = work();
    let text = fs.read(&format!("{EVENT}/hist"));
    set(&format!("!{COUNT}"))?;
    let text = text.map_err(|source| CostError::Kernel { what: "exits by reason".to_owned(), source })?;
    Ok((done, Some(Reasons(parse(&text)))))
}

impl Reasons {
    /// The costs of a run with `cost.exits.all` split by reason; its rate is not kept, since counting is work at every exit.
    ///
    /// The numbers are of the whole run from the beginning of its load, the agent's words included; what counts is their share.
    ///
    /// # Errors
    /// KVM's own count is missing, or nothing was counted.
    pub fn split(&self, metrics: &[Metric]) -> Result<Vec<Metric>, CostError> {
        let unfit = |why: &str| CostError::Unfit(format!("exits by reason: {why}"));
        let all = format!("{PREFIX}{}.all", Cost::Exits.id());
        let exits = metrics.iter().find(|metric| metric.name == all);
        let exits = exits.ok_or_else(|| unfit("KVM's own count is missing"))?;
        let total: u64 = self.0.values().sum();
        if total == 0 {
            return Err(unfit("the tracepoint counted none"));
        }
        let metric = |(reason, count): (&String, &u64)| Metric {
            name: format!("{PREFIX}{}.{reason}", Cost::Reasons.id()),
            unit: exits.unit,
            value: exits.value * *count as f64 / total as f64,
        };
        Ok(self.0.iter().map(metric).collect())
    }

    /// What a reader of such a run must know.
    pub fn note(&self) -> String {
        "exits by reason were counted in this run, which costs time at every exit: its rate is not kept".to_owned()
    }
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
    use nearmetal_load::Unit;
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

    #[test]
    fn reasons_share_what_kvm_counted() {
        let exits = Metric { name: "cost.exits.all".into(), unit: Unit::PerIo, value: 8.0 };
        let reasons = Reasons(BTreeMap::from([("msr".to_owned(), 3), ("hlt".to_owned(), 1)]));
        let split = reasons.split(&[exits]).unwrap();
        let values: Vec<(&str, f64)> = split.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
        assert_eq!(values, [("cost.exit-reasons.hlt", 2.0), ("cost.exit-reasons.msr", 6.0)]);
        assert!(reasons.split(&[]).is_err(), "without KVM's count there is nothing to split");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[{} a-z:,0-9\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
