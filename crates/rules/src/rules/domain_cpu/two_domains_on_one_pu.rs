//! No two domains pin vCPUs to the same PU.

use std::collections::BTreeSet;

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, some_of};

pub(crate) const RULE: Rule = Rule {
    id: "two-domains-on-one-pu",
    layer: Layer::DomainCpu,
    title: "No two domains pin vCPUs to the same PU",
    severity: Severity::Fault,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <vcpupin> of all domains", "/proc/PID/task/*/status"],
    good: "each PU with a single-PU pin belongs to one domain",
    applies: "pinned guests",
    not_applies: "density: shared on purpose",
    effect: "each guest gets at most half of the PU; users notice only by chance",
    evidence: Evidence::B,
    sources: &["t-kata-13539", "t-cocoon-226", "t-one-6596"],
    fix: Fix {
        live: Some("virsh vcpupin DOM N PU --live"),
        persistent: "virsh vcpupin DOM N PU --config",
        needs: &[Need::Live],
        undo: "virsh vcpupin with the old PU",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let mut objects = Vec::new();
    for (vcpu, pu) in subject.single_pins() {
        let owners = subject.context.owners.get(&pu).into_iter().flatten();
        let others: BTreeSet<&str> = owners.copied().filter(|owner| *owner != subject.facts.name).collect();
        if !others.is_empty() {
            let found = format!("on PU {pu} together with {}", some_of(&others));
            objects.push(Object::new(format!("vCPU {vcpu}"), found, "its own PU"));
        }
    }
    Outcome::of(objects)
}
