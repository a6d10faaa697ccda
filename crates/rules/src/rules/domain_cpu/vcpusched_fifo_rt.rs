//! RT guests run FIFO vCPUs at low priority on isolated CPUs.

use nearmetal_domain::SchedulerFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
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
        let place = format!("cputune/{}sched[@scheduler='{}']", entry.threads, entry.scheduler);
        let none = Cure::no_element(&place);
        let priority = entry.priority.unwrap_or(0);
        if entry.threads == "emulator" {
            objects.push(Object::new(what, entry.scheduler.clone(), "none: it must yield to the vCPUs").cured_by(none));
        } else if subject.class != WorkloadClass::Latency {
            let wanted = "none outside the latency class: it starves the host";
            objects.push(Object::new(what, entry.scheduler.clone(), wanted).cured_by(none));
        } else if entry.threads == "vcpu" && priority != 1 {
            let wanted = "priority 1, below the kernel's own threads";
            let object = Object::new(what, format!("priority {priority}"), wanted);
            // Several such entries cannot be told apart by one condition.
            let same =
                |other: &&SchedulerFacts| (&other.threads, &other.scheduler) == (&entry.threads, &entry.scheduler);
            let alone = subject.facts.scheduling.schedulers.iter().filter(same).count() == 1;
            objects.push(object.cured_by_all(alone.then(|| Cure::attribute(place, "priority", "1"))));
        }
    }
    Outcome::of(objects)
}
