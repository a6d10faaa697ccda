//! Guest sees the real L3 layout when pins are real.

use nearmetal_domain::DefinitionEdit;
use nearmetal_units::CpuSet;
use std::collections::BTreeSet;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "cpu-cache-passthrough",
    layer: Layer::DomainCpu,
    title: "Guest sees the real L3 layout when pins are real",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list", "domain <cpu><cache mode>, <vcpupin>"],
    good: "passthrough only when pinned inside one L3 (or topology mirrors CCX); otherwise emulate",
    applies: "pinned EPYC/large guests",
    not_applies: "floating guests; migratable across CPU types",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "lenovo-epyc"],
    fix: Fix {
        live: None,
        persistent: "<cache mode='passthrough'/>",
        needs: &[Need::VmRestart],
        undo: "guest scheduler mis-groups if pins do not match; undo emulate",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    if subject.facts.cpu.cache.as_deref() != Some("passthrough") || subject.facts.vcpus.current < 2 {
        return Outcome::NotApplicable;
    }
    let caches: BTreeSet<&CpuSet> = host.processors.iter().filter_map(|pu| pu.last_level_cache.as_ref()).collect();
    if caches.is_empty() {
        return Outcome::unknown("/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list");
    }
    // What is not pinned may be anywhere; a vCPU pinned inside one cache has one place in the guest's picture.
    let inside = |cpus: &CpuSet| caches.iter().any(|cache| cpus.is_subset(cache));
    let loose = (0..subject.facts.vcpus.current).filter(|vcpu| !subject.vcpus.get(vcpu).is_some_and(inside)).count();
    let cure = Cure::Definition(DefinitionEdit::Remove { at: "cpu/cache".to_owned() });
    Outcome::one((caches.len() > 1 && loose > 0).then(|| {
        let found = format!("the host's, while {loose} vCPUs float over {} last-level caches", caches.len());
        Object::new("guest's last-level cache", found, "an emulated one, or vCPUs pinned inside one cache")
            .cured_by(cure)
    }))
}
