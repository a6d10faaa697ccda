//! vCPUs use no more last-level caches than they need.

use std::collections::BTreeMap;

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "numa-llc-ccx-alignment",
    layer: Layer::Numa,
    title: "vCPUs use no more last-level caches than they need",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list", "domain <vcpupin>"],
    good: "vCPU pin set covers the minimum number of L3 groups ceil(vCPU/CPUs per L3); small guests sit in one L3",
    applies: "AMD EPYC (CCX), Intel SNC/cluster parts",
    not_applies: "monolithic-L3 CPUs",
    effect: "unquantified here; vendor guides recommend it",
    evidence: Evidence::B,
    sources: &["lenovo-epyc", "broadcom-nps", "k-cpu-abi"],
    fix: Fix {
        live: Some("virsh vcpupin"),
        persistent: "virsh edit <cputune>",
        needs: &[Need::Live],
        undo: "fragmentation of free CPUs; undo wider pins",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let pins = subject.single_pins();
    if pins.is_empty() {
        return Outcome::NotApplicable;
    }
    let mut groups: BTreeMap<u32, usize> = BTreeMap::new();
    let mut largest = 0;
    for pu in pins.values() {
        let cache = host.processor(*pu).and_then(|processor| processor.last_level_cache.as_ref());
        let Some((first, cache)) = cache.and_then(|cache| Some((cache.first()?, cache))) else {
            return Outcome::unknown(format!("/sys/devices/system/cpu/cpu{pu}/cache/index3/shared_cpu_list"));
        };
        *groups.entry(first).or_default() += 1;
        largest = largest.max(cache.len());
    }
    let least = pins.len().div_ceil(largest.max(1));
    // A guest that spans nodes by its own cells needs at least as many caches.
    let least = least.max(subject.vcpu_nodes(host).len());
    let found = format!("{} vCPUs over {} last-level caches", pins.len(), groups.len());
    Outcome::one((groups.len() > least).then(|| Object::new("vCPUs", found, format!("{least}"))))
}
