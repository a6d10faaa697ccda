//! Dedicated guests have one-to-one vCPU pins.

use std::collections::BTreeMap;

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vcpu-pin-1to1",
    layer: Layer::DomainCpu,
    title: "Dedicated guests have one-to-one vCPU pins",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &["domain <cputune><vcpupin vcpu cpuset>"],
    good: "each vCPU pinned to exactly one CPU, no CPU carries two vCPUs of any running dedicated guest, emulator not on them",
    applies: "latency/RT/NFV, HPC, NUMA-wide guests",
    not_applies: "density: pins stop the scheduler from balancing; do not pin overcommitted guests",
    effect: "the SGI UV paper: 16 vCPUs pinned to one socket (HT on): random memory latency +4%, bandwidth -5% against native; the gain over no pins is a chart only; less impact at 160 than at 32 cores",
    evidence: Evidence::A,
    sources: &["paper-sgi-uv", "lv-dom", "rh-rhel7vtog", "nova-cpu", "kv-numa"],
    fix: Fix {
        live: Some("virsh vcpupin DOM n cpu --live"),
        persistent: "virsh edit <cputune> / --config; Nova hw:cpu_policy=dedicated; K8s dedicatedCpuPlacement",
        needs: &[Need::Live],
        undo: "unbalanced load; guest fails to start if CPU is offline; undo vcpupin to all CPUs",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let mut objects = Vec::new();
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    let pins = subject.single_pins();
    for vcpu in 0..subject.facts.vcpus.current {
        match (pins.get(&vcpu), subject.vcpus.get(&vcpu)) {
            (Some(pu), _) => {
                if let Some(other) = seen.insert(*pu, vcpu) {
                    let found = format!("on PU {pu} together with vCPU {other}");
                    objects.push(Object::new(format!("vCPU {vcpu}"), found, "its own PU"));
                }
            }
            (None, Some(cpus)) => {
                objects.push(Object::new(format!("vCPU {vcpu}"), format!("on PUs {cpus}"), "its own PU"))
            }
            (None, None) => objects.push(Object::new(format!("vCPU {vcpu}"), "no pin", "its own PU")),
        }
    }
    Outcome::of(objects)
}
