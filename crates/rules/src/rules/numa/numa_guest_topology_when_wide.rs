//! A guest wider than one node sees matching virtual NUMA cells.

use nearmetal_domain::CellFacts;
use nearmetal_host::NumaNode;
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, CpuSet};

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, nodes_of};

pub(crate) const RULE: Rule = Rule {
    id: "numa-guest-topology-when-wide",
    layer: Layer::Numa,
    title: "A guest wider than one node sees matching virtual NUMA cells",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <cpu><numa><cell>, <memnode>, <vcpupin>", "/sys/devices/system/node/node*/{cpulist,meminfo}"],
    good: "number of cells == host nodes used; each cell's vCPUs pinned to one node and its memnode strict to the same node; distances taken from /sys/devices/system/node/node*/distance",
    applies: "guests whose vCPUs or RAM exceed a node",
    not_applies: "guests inside a node: no cells needed",
    effect: "the SGI UV paper: even with cells and pins one wide VM lost ground (native better by 23-26% at 2 nodes, 57% at 4, HT off), so splitting is better when the load can be split; against an uninformed wide VM the gain is a chart only (about 28% is named for the first step, HT on); the RHEL 6.3 I/O paper used cells for its 40-vCPU guest",
    evidence: Evidence::A,
    sources: &["talk-rhel63-io", "paper-sgi-uv", "lv-dom", "rh-rhel7vtog", "nova-cpu"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <cpu><numa> + <memnode> + <vcpupin>",
        needs: &[Need::VmRestart],
        undo: "some licences and in-guest pins depend on topology; undo remove cells",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let facts = subject.facts;
    let fits = |node: &NumaNode| {
        facts.vcpus.maximum as usize <= node.cpus.len() && node.memory_total.is_none_or(|total| facts.memory < total)
    };
    if host.nodes.len() < 2 || host.nodes.iter().any(fits) {
        return Outcome::NotApplicable;
    }
    let cells = &facts.cells;
    if cells.len() < 2 {
        let found = format!("{} vCPUs and {} as one node", facts.vcpus.maximum, facts.memory);
        return Outcome::one(Some(Object::new("guest NUMA", found, "a cell for each host node")));
    }
    let mut objects: Vec<Object> = Vec::new();
    for cell in cells {
        let cpus = cell
            .vcpus
            .iter()
            .filter_map(|vcpu| subject.vcpus.get(&vcpu))
            .fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let nodes = nodes_of(host, &cpus);
        let memory = facts.numatune.as_ref().and_then(|tune| tune.cells.iter().find(|memory| memory.cell == cell.id));
        let memory = memory.and_then(|memory| memory.nodes.clone());
        if nodes.len() != 1 || memory.as_ref() != Some(&nodes) {
            let shown = |set: Option<String>| set.filter(|text| !text.is_empty()).unwrap_or_else(|| "any".to_owned());
            let found = format!(
                "vCPUs on node {}, memory on node {}",
                shown(Some(nodes.to_string())),
                shown(memory.map(|set| set.to_string()))
            );
            objects.push(Object::new(format!("cell {}", cell.id), found, "both on one node, strictly"));
        }
    }
    // Equal memory over unequal vCPUs makes some of them reach over the border.
    let share = |cell: &CellFacts| cell.memory.get() / (cell.vcpus.len().max(1) as u64);
    let shares = || cells.iter().map(share);
    if let (Some(least), Some(most)) = (shares().min(), shares().max()) {
        if most > least.saturating_add(least / 4) {
            let found = format!("{} to {} for each vCPU", Bytes::new(least), Bytes::new(most));
            objects.push(Object::new("cells", found, "memory in proportion to vCPUs"));
        }
    }
    Outcome::of(objects)
}
