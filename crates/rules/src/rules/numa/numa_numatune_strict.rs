//! Memory policy is explicit and strict for pinned guests.

use nearmetal_host::{GuestProcess, Host, NumaNode};
use nearmetal_place::{Policy, WorkloadClass};
use nearmetal_units::{Bytes, NodeSet};

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, pool_page};

pub(crate) const RULE: Rule = Rule {
    id: "numa-numatune-strict",
    layer: Layer::Numa,
    title: "Memory policy is explicit and strict for pinned guests",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <numatune>, <vcpupin>", "/sys/devices/system/node/node*/meminfo"],
    good: "pinned guest: mode='strict' (policy bind) with the same nodes as the pins; not 'interleave' unless the guest is wider than a node and has no vNUMA",
    applies: "pinned guests",
    not_applies: "density class: 'preferred' or nothing, so that allocation never fails; memory on more nodes than the vCPUs' if those have too little free",
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
    // A node of PUs alone has no memory to bind to.
    let has_memory = |node: &u32| host.node(*node).is_some_and(|node| node.memory_total != Some(Bytes::ZERO));
    let pinned: NodeSet = subject.vcpu_nodes(host).iter().filter(has_memory).collect();
    let fits = !pinned.is_empty() && has_room(subject, host, &pinned);
    let memory = |name: &str, value: &str| Cure::attribute("numatune/memory", name, value);
    let nodeset = || fits.then(|| memory("nodeset", &pinned.to_string()));
    let Some(tune) = &subject.facts.numatune else {
        let wanted = if pinned.is_empty() { "strict".to_owned() } else { format!("strict on node {pinned}") };
        let object = Object::new("memory policy", "none, with pinned vCPUs", wanted);
        let nodeset = nodeset();
        let strict = nodeset.is_some().then(|| memory("mode", "strict"));
        return Outcome::one(Some(object.cured_by_all(strict).cured_by_all(nodeset)));
    };
    // Cells have policies of their own, and which cell belongs where is the planner's to say.
    let whole = tune.cells.is_empty();
    let mut objects = Vec::new();
    let modes = tune.cells.iter().map(|cell| cell.mode.as_deref()).chain([tune.mode.as_deref()]);
    if let Some(mode) = modes.flatten().find(|mode| *mode != "strict") {
        let room = tune.nodes.as_ref().is_none_or(|nodes| has_room(subject, host, nodes));
        let cure = (whole && room).then(|| memory("mode", "strict"));
        objects.push(Object::new("memory policy", mode, "strict").cured_by_all(cure));
    }
    match subject.memory_nodes() {
        // What lacks room on the vCPUs' nodes is rightly on others, too.
        Some(nodes) if nodes != pinned && !pinned.is_empty() && (fits || !pinned.is_subset(&nodes)) => {
            let object = Object::new("memory nodes", nodes.to_string(), format!("{pinned}, the vCPUs' nodes"));
            objects.push(object.cured_by_all(nodeset().filter(|_| whole)));
        }
        _ => {}
    }
    Outcome::of(objects)
}

/// Whether these nodes have room for the guest when it starts next, as the planner counts: free memory beyond its reserve, free
/// pages of a pool that the guest takes them from, and what it has there while it runs. What nobody sees is taken as enough.
fn has_room(subject: &Subject<'_>, host: &Host, nodes: &NodeSet) -> bool {
    let policy = Policy::default();
    let process = subject.domain.running.as_ref().and_then(|running| subject.context.process(&running.name));
    if process.is_some_and(|process| process.residency_error.is_some()) {
        return true;
    }
    let of_node = |node: &NumaNode| {
        let free = host.memory_available(node)?.less(policy.reserve(node.memory_total));
        let pool = pool_page(subject.facts).and_then(|size| node.pool(size));
        let pooled = pool.map_or(Bytes::ZERO, |pool| pool.size.bytes().times(pool.free));
        let own = process.into_iter().flat_map(GuestProcess::memory_by_node);
        let own = own.filter(|(index, _)| *index == node.index).map(|(_, bytes)| bytes);
        Some(own.fold(free.plus(pooled), Bytes::plus))
    };
    let known: Option<Vec<Bytes>> = host.nodes.iter().filter(|node| nodes.contains(node.index)).map(of_node).collect();
    known.is_none_or(|known| known.into_iter().fold(Bytes::ZERO, Bytes::plus) >= subject.facts.memory)
}
