//! vPMU is on only where profiling is wanted.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "pmu-by-class",
    layer: Layer::DomainCpu,
    title: "vPMU is on only where profiling is wanted",
    severity: Severity::Note,
    classes: &[WorkloadClass::Latency],
    reads: &["domain <features><pmu state>, <vcpusched>"],
    good: "off for RT/latency and Windows stability; on when users profile inside",
    applies: "RT",
    not_applies: "profiling guests",
    effect: "unquantified (removes PMI interrupts and MSR switches)",
    evidence: Evidence::B,
    sources: &["lv-dom", "lv-rt"],
    fix: Fix {
        live: None,
        persistent: "<pmu state='off'/>",
        needs: &[Need::VmRestart],
        undo: "guest perf shows no hardware events; undo on",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let real_time =
        subject.facts.scheduling.schedulers.iter().any(|entry| entry.threads == "vcpu" && entry.is_real_time());
    if !real_time || !subject.is_kvm() {
        return Outcome::NotApplicable;
    }
    let found = match subject.facts.features.pmu.as_deref() {
        Some("off") => return Outcome::Clean,
        Some(state) => state,
        None => "on, since nothing says otherwise",
    };
    let cure = Cure::attribute("features/pmu", "state", "off");
    Outcome::one(Some(Object::new("performance counters", found, "off for real-time vCPUs").cured_by(cure)))
}
