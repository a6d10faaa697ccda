//! Memory policy is explicit and strict for pinned guests.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
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
    let memory = |name: &str, value: &str| Cure::attribute("numatune/memory", name, value);
    let nodeset = || (!pinned.is_empty()).then(|| memory("nodeset", &pinned.to_string()));
    let Some(tune) = &subject.facts.numatune else {
        let object = Object::new("memory policy", "none, with pinned vCPUs", format!("strict on node {pinned}"));
        let nodeset = nodeset();
        let strict = nodeset.is_some().then(|| memory("mode", "strict"));
        return Outcome::one(Some(object.cured_by_all(strict).cured_by_all(nodeset)));
    };
    // Cells have policies of their own, and which cell belongs where is the planner's to say.
    let whole = tune.cells.is_empty();
    let mut objects = Vec::new();
    let modes = tune.cells.iter().map(|cell| cell.mode.as_deref()).chain([tune.mode.as_deref()]);
    if let Some(mode) = modes.flatten().find(|mode| *mode != "strict") {
        let cure = whole.then(|| memory("mode", "strict"));
        objects.push(Object::new("memory policy", mode, "strict").cured_by_all(cure));
    }
    match subject.memory_nodes() {
        Some(nodes) if nodes != pinned => {
            let object = Object::new("memory nodes", nodes.to_string(), format!("{pinned}, the vCPUs' nodes"));
            objects.push(object.cured_by_all(nodeset().filter(|_| whole)));
        }
        _ => {}
    }
    Outcome::of(objects)
}
