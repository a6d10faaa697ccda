//! Cache/memory-bandwidth partitioning is used when latency VMs share an L3.

use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;
use std::collections::BTreeSet;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, some_of};

pub(crate) const RULE: Rule = Rule {
    id: "l3-cat-mba-for-noisy-neighbours",
    layer: Layer::HostCpu,
    title: "Cache/memory-bandwidth partitioning is used when latency VMs share an L3",
    severity: Severity::Note,
    classes: &[WorkloadClass::Latency],
    reads: &[
        "/proc/cpuinfo (cat_l3)",
        "/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list",
        "domain <cputune><cachetune>, <vcpupin>",
    ],
    good: "latency VM has an exclusive cachetune slice or no noisy neighbour on its L3",
    applies: "Intel RDT / AMD QoS hosts mixing classes",
    not_applies: "VM already owns the whole L3/CCX",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: None,
        persistent: "<cachetune vcpus='0-3'><cache id='0' level='3' type='both' size='3' unit='MiB'/></cachetune>",
        needs: &[Need::VmRestart],
        undo: "too small a slice hurts the VM; undo remove element",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    match host.system.has_flag("cat_l3") {
        None => return Outcome::unknown("/proc/cpuinfo"),
        Some(false) => return Outcome::NotApplicable,
        Some(true) => {}
    }
    let pins = subject.single_pins();
    if pins.is_empty() {
        return Outcome::NotApplicable;
    }
    let parts = subject.facts.cache_parts.iter().fold(CpuSet::new(), |all, vcpus| all.union(vcpus));
    let open = pins.iter().filter(|(vcpu, _)| !parts.contains(**vcpu)).map(|(_, pu)| *pu);
    let caches = open.filter_map(|pu| host.processor(pu)?.last_level_cache.as_ref());
    let shared = caches.fold(CpuSet::new(), |all, cpus| all.union(cpus));
    // A guest without pins roams over every cache, and that its load is loud nobody knows: only pins show a neighbour.
    let near = |pu: &u32| shared.contains(*pu);
    let owners =
        subject.context.owners.iter().filter(|(pu, _)| near(pu)).flat_map(|(_, owners)| owners.iter().copied());
    let running =
        |name: &&str| {
            subject.context.domains.iter().any(|domain| {
                domain.name == *name && domain.class != WorkloadClass::Latency && domain.running.is_some()
            })
        };
    let neighbours: BTreeSet<&str> = owners.filter(|name| *name != subject.facts.name).filter(running).collect();
    Outcome::one((!neighbours.is_empty()).then(|| {
        let found = format!("shared with {}, with no part reserved", some_of(&neighbours));
        Object::new("last-level cache", found, "its own part (<cachetune>), or no noisy neighbour")
    }))
}
