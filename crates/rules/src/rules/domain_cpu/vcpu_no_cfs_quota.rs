//! No CFS quota throttles vCPUs, emulator or iothreads by accident.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vcpu-no-cfs-quota",
    layer: Layer::DomainCpu,
    title: "No CFS quota throttles vCPUs, emulator or iothreads by accident",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <cputune><quota>,<period>,<emulator_quota>,<iothread_quota>,<global_quota>,<shares>"],
    good: "quota absent or -1 and nr_throttled does not grow for performance guests",
    applies: "throughput/latency",
    not_applies: "sold-by-fraction density guests",
    effect: "bounded stalls of (period - quota) each period, up to 100 ms default period; unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "k-cgv2"],
    fix: Fix {
        live: Some("virsh schedinfo DOM vcpu_quota=-1 emulator_quota=-1 iothread_quota=-1 global_quota=-1 --live"),
        persistent: "virsh schedinfo --config",
        needs: &[Need::Live],
        undo: "neighbours lose the cap; undo old quota",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let quotas = subject.facts.scheduling.quotas.iter();
    Outcome::of(
        quotas
            .map(|(name, quota)| {
                let object = Object::new(format!("<{name}>"), format!("{quota} µs of each period"), "none");
                object.cured_by(Cure::no_element(format!("cputune/{name}")))
            })
            .collect(),
    )
}
