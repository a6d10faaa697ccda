//! RT guests run FIFO vCPUs at low priority on isolated CPUs.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vcpusched-fifo-rt",
    layer: Layer::DomainCpu,
    title: "RT guests run FIFO vCPUs at low priority on isolated CPUs",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain <cputune><vcpusched vcpus scheduler='fifo' priority='1'>", "chrt -p <tid>"],
    good: "fifo priority 1 for RT vCPUs only, others default; emulator not fifo",
    applies: "RT/NFV",
    not_applies: "all others: FIFO vCPU can starve the host",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-rt", "rh-rt", "kv-numa"],
    fix: Fix {
        live: Some("chrt -f -p 1 <vCPU tid>"),
        persistent: "virsh edit",
        needs: &[Need::Live],
        undo: "host lock-up if not isolated; undo chrt -o",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let mut objects = Vec::new();
    for entry in subject.facts.scheduling.schedulers.iter().filter(|entry| entry.is_real_time()) {
        let what = format!("{} scheduler", entry.threads);
        let priority = entry.priority.unwrap_or(0);
        if entry.threads == "emulator" {
            objects.push(Object::new(what, entry.scheduler.clone(), "none: it must yield to the vCPUs"));
        } else if subject.class != WorkloadClass::Latency {
            objects.push(Object::new(
                what,
                entry.scheduler.clone(),
                "none outside the latency class: it starves the host",
            ));
        } else if entry.threads == "vcpu" && priority != 1 {
            objects.push(Object::new(
                what,
                format!("priority {priority}"),
                "priority 1, below the kernel's own threads",
            ));
        }
    }
    Outcome::of(objects)
}
