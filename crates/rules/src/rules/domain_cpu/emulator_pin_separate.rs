//! QEMU emulator threads do not run on dedicated vCPU CPUs.

use nearmetal_place::WorkloadClass;

use crate::cure::Thread;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, nodes_of};

pub(crate) const RULE: Rule = Rule {
    id: "emulator-pin-separate",
    layer: Layer::DomainCpu,
    title: "QEMU emulator threads do not run on dedicated vCPU CPUs",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <cputune><emulatorpin cpuset>"],
    good: "emulator set is disjoint from the vCPU pins and on the same node",
    applies: "dedicated/RT guests",
    not_applies: "floating guests (kernel balances)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "lv-rt", "nova-cpu", "kv-cpu", "rh-rt"],
    fix: Fix {
        live: Some("virsh emulatorpin DOM cpus --live"),
        persistent: "virsh edit; Nova hw:emulator_threads_policy=share|isolate; KubeVirt isolateEmulatorThread",
        needs: &[Need::Live],
        undo: "uses one host CPU; undo emulatorpin all",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if !subject.is_pinned_one_to_one() {
        return Outcome::NotApplicable;
    }
    let vcpus = subject.vcpu_cpus();
    let facts = subject.facts;
    let object = match facts.emulator_pin.as_ref().or(facts.vcpus.cpuset.as_ref()) {
        None => Some(Object::new("emulator thread", "no pin: it can run on the vCPUs' PUs", "PUs without vCPUs")),
        Some(cpus) if !cpus.is_disjoint(&vcpus) => {
            let shared = cpus.intersection(&vcpus);
            Some(Object::new("emulator thread", format!("on PUs {shared} of vCPUs"), "PUs without vCPUs"))
        }
        Some(cpus) => subject.context.host.and_then(|host| {
            let (own, theirs) = (nodes_of(host, cpus), subject.vcpu_nodes(host));
            let far = !own.is_empty() && own.is_disjoint(&theirs);
            far.then(|| Object::new("emulator thread", format!("on node {own}"), format!("node {theirs} of the vCPUs")))
        }),
    };
    Outcome::one(object.map(|object| object.cured_by_all(subject.move_aside(Thread::Emulator))))
}
