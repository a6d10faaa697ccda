//! No QEMU memory in swap; swappiness low.

use nearmetal_host::SwapArea;
use nearmetal_units::Bytes;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "qemu-not-swapped",
    layer: Layer::Memory,
    title: "No QEMU memory in swap; swappiness low",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/PID/status", "/proc/sys/vm/swappiness", "/proc/swaps"],
    good: "VmSwap 0; swappiness <= 10 (virtual-host value)",
    applies: "all hosts with swap",
    not_applies: "zram/zswap designs (values >100 are legitimate there)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-tp", "k-sysctl", "fc-prod"],
    fix: Fix {
        live: Some("sysctl vm.swappiness=10; swapoff -a; swapon -a to pull pages back (needs free RAM)"),
        persistent: "tuned throughput-performance (10)",
        needs: &[Need::Live],
        undo: "OOM earlier instead of swapping; undo =60",
    },
    check: Check::Host(check),
};

/// Values above say that swap is faster than reading files again: compressed memory.
const OF_A_DISK: u64 = 100;

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let Some(areas) = &host.system.swap else { return Outcome::unknown("/proc/swaps") };
    if areas.is_empty() {
        return Outcome::Clean;
    }
    let Some(swappiness) = host.system.swappiness else { return Outcome::unknown("/proc/sys/vm/swappiness") };
    let mut objects = Vec::new();
    for guest in &host.guests {
        if let Some(swapped) = guest.swapped.filter(|swapped| *swapped > Bytes::ZERO) {
            let name = guest.name.clone().unwrap_or_else(|| format!("process {}", guest.pid));
            objects.push(Object::new(format!("QEMU of {name}"), format!("{swapped} in swap"), "all in memory"));
        }
    }
    let most = context.settings.swappiness;
    let on_disk = !areas.iter().any(SwapArea::is_memory) && swappiness <= OF_A_DISK;
    if on_disk && swappiness > most {
        let object = Object::new("vm.swappiness", swappiness.to_string(), format!("at most {most}"));
        objects.push(object.cured_by(Cure::kernel_file("/proc/sys/vm/swappiness", most.to_string())));
    }
    Outcome::of(objects)
}
