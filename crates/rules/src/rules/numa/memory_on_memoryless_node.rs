//! No memory policy names a node without memory.

use nearmetal_units::{Bytes, NodeSet};

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "memory-on-memoryless-node",
    layer: Layer::Numa,
    title: "No memory policy names a node without memory",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/devices/system/node/node*/meminfo", "domain <numatune>"],
    good: "each node of the policy exists and has memory",
    applies: "NUMA hosts",
    not_applies: "-",
    effect: "the domain does not start, or its memory lands elsewhere",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: None,
        persistent: "virsh numatune DOM --nodeset N --config",
        needs: &[Need::VmRestart],
        undo: "virsh numatune with the old nodes",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let Some(nodes) = subject.memory_nodes() else { return Outcome::NotApplicable };
    let strict = subject
        .facts
        .numatune
        .as_ref()
        .is_some_and(|tune| matches!(tune.mode.as_deref(), None | Some("strict" | "restrictive")));
    let empty = |index: &u32| host.node(*index).is_none_or(|node| node.memory_total == Some(Bytes::ZERO));
    let poor: NodeSet = nodes.iter().filter(empty).collect();
    let found = format!("from node {poor}, which has none");
    // Where nothing is left, or cells have nodes of their own, the planner has to say.
    let rest = nodes.difference(&poor);
    let whole = subject.facts.numatune.as_ref().is_some_and(|tune| tune.cells.is_empty());
    let cure = (whole && !rest.is_empty()).then(|| Cure::attribute("numatune/memory", "nodeset", rest.to_string()));
    let object = || Object::new("memory", found, "nodes that have memory");
    Outcome::one((strict && !poor.is_empty()).then(|| object().cured_by_all(cure)))
}
