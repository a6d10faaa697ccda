//! Memory policy is explicit and strict for pinned guests.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "numa-numatune-strict",
    layer: Layer::Numa,
    title: "Memory policy is explicit and strict for pinned guests",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <numatune>, <vcpupin>"],
    good: "pinned guest: mode='strict' (policy bind) with the same nodes as the pins; not 'interleave' unless the guest is wider than a node and has no vNUMA",
    applies: "pinned guests",
    not_applies: "density class: 'preferred' or nothing, so that allocation never fails",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "rh-rhel7vtog", "rh-numa"],
    fix: Fix {
        live: Some("virsh numatune DOM --mode strict --nodeset N --live (mode change needs restart)"),
        persistent: "virsh edit <numatune>",
        needs: &[Need::VmRestart],
        undo: "boot fails or OOM if the node lacks memory; undo mode='preferred'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    if subject.vcpus.is_empty() || host.nodes.len() < 2 {
        return Outcome::NotApplicable;
    }
    let pinned = subject.vcpu_nodes(host);
    let Some(tune) = &subject.facts.numatune else {
        return Outcome::one(Some(Object::new(
            "memory policy",
            "none, with pinned vCPUs",
            format!("strict on node {pinned}"),
        )));
    };
    let mut objects = Vec::new();
    let modes = tune.cells.iter().map(|cell| cell.mode.as_deref()).chain([tune.mode.as_deref()]);
    if let Some(mode) = modes.flatten().find(|mode| *mode != "strict") {
        objects.push(Object::new("memory policy", mode, "strict"));
    }
    match subject.memory_nodes() {
        Some(nodes) if nodes != pinned => {
            objects.push(Object::new("memory nodes", nodes.to_string(), format!("{pinned}, the vCPUs' nodes")));
        }
        _ => {}
    }
    Outcome::of(objects)
}
