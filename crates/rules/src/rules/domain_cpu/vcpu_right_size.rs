//! vCPU count matches use.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vcpu-right-size",
    layer: Layer::DomainCpu,
    title: "vCPU count matches use",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <vcpu>", "/sys/devices/system/cpu/online"],
    good: "over the observation window 20% <= mean busy per vCPU <= 80% (chosen); vcpu.wait small; sum(vCPU) of a guest <= host CPUs",
    applies: "all",
    not_applies: "RT/DPDK guests (always 100% busy)",
    effect: "unquantified; oversize raises IPIs, halt exits and lock contention",
    evidence: Evidence::B,
    sources: &["rh-rhel10cpu", "lv-dom"],
    fix: Fix {
        live: Some("virsh setvcpus DOM n --live (guest CPU hotplug)"),
        persistent: "virsh setvcpus --config",
        needs: &[Need::Live],
        undo: "too few: saturation; undo setvcpus",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let (vcpus, online) = (subject.facts.vcpus.current, subject.context.online.len());
    if online == 0 {
        return Outcome::no_host();
    }
    let many = vcpus as usize > online;
    Outcome::one(
        many.then(|| Object::new("vCPUs", vcpus.to_string(), format!("at most {online}, the host's online PUs"))),
    )
}
