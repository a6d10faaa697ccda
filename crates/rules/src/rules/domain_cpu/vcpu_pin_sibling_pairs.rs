//! No two guests share a core's SMT siblings, and no core stays half used.

use std::collections::BTreeSet;

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, some_of};

pub(crate) const RULE: Rule = Rule {
    id: "vcpu-pin-sibling-pairs",
    layer: Layer::DomainCpu,
    title: "No two guests share a core's SMT siblings, and no core stays half used",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["/sys/devices/system/cpu/cpu*/topology/thread_siblings_list with all vcpupin sets"],
    good: "a physical core's two threads belong to one guest (pair exposed as threads=2), or the second is idle (policy 'isolate')",
    applies: "pinned guests on SMT hosts",
    not_applies: "SMT off",
    effect: "the SGI UV paper: hyper-threading gave about +10-11% on SPECjbb2005 (native and KVM) but KVM IOzone was 1-17% slower with it",
    evidence: Evidence::A,
    sources: &["paper-sgi-uv", "nova-cpu", "k-l1tf"],
    fix: Fix {
        live: Some("virsh vcpupin"),
        persistent: "virsh edit",
        needs: &[Need::Live, Need::VmRestart],
        undo: "'isolate' halves capacity; undo",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let pins = subject.single_pins();
    if pins.is_empty() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    for (vcpu, pu) in pins {
        let Some(siblings) = host.processor(pu).and_then(|processor| processor.siblings.as_ref()) else {
            return Outcome::unknown(format!("/sys/devices/system/cpu/cpu{pu}/topology/thread_siblings_list"));
        };
        for sibling in siblings.iter().filter(|sibling| *sibling != pu) {
            let owners = subject.context.owners.get(&sibling).into_iter().flatten();
            let others: BTreeSet<&str> = owners.copied().filter(|owner| *owner != subject.facts.name).collect();
            if !others.is_empty() {
                let found = format!("on PU {pu}, whose core's PU {sibling} has a vCPU of {}", some_of(&others));
                objects.push(Object::new(format!("vCPU {vcpu}"), found, "a core that no other domain uses"));
            }
        }
    }
    Outcome::of(objects)
}
