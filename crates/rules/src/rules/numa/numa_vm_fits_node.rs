//! A guest that fits on one host NUMA node runs on one.

use nearmetal_host::NumaNode;
use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, nodes_of};

pub(crate) const RULE: Rule = Rule {
    id: "numa-vm-fits-node",
    layer: Layer::Numa,
    title: "A guest that fits on one host NUMA node runs on one",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["/sys/devices/system/node/node*/{cpulist,meminfo}", "domain <vcpu>, <memory>, <vcpupin>, <numatune>"],
    good: "vCPUs <= CPUs of the node minus housekeeping, RAM <= node MemTotal minus host reserve, and every vcpupin cpuset and nodeset names the same single node",
    applies: "every multi-node host; throughput and latency classes",
    not_applies: "guest larger than a node (use numa-guest-topology-when-wide); density class may float",
    effect: "the SGI UV paper SPECjbb2005: one VM inside one node, native about 17% better; the same VM widened over 2 nodes 23-26% better, 4 nodes 57% better (HT off); one-VM-per-node stayed within 18% of native at 32 and 160 cores; the RHEL 6.3 I/O paper: one guest per node, 8 KB IOPS reached the bare-metal limit of 1.4M",
    evidence: Evidence::A,
    sources: &["talk-rhel63-io", "paper-sgi-uv", "rh-numa", "rh-rhel10cpu", "lv-dom"],
    fix: Fix {
        live: Some("virsh vcpupin / virsh emulatorpin / virsh numatune --live --nodeset N"),
        persistent: "virsh edit: <vcpu placement='static' cpuset='node CPUs'>, <numatune><memory mode='strict' nodeset='N'/>",
        needs: &[Need::Live, Need::VmRestart],
        undo: "a strict node may run out of memory while others are free; undo by removing numatune and pins",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let with_memory =
        |node: &&NumaNode| !node.cpus.is_empty() && node.memory_total.is_some_and(|total| total > Bytes::ZERO);
    if host.nodes.iter().filter(with_memory).count() < 2 {
        return Outcome::NotApplicable;
    }
    let facts = subject.facts;
    let fits = |node: &NumaNode| {
        facts.vcpus.maximum as usize <= node.cpus.len() && node.memory_total.is_some_and(|total| facts.memory < total)
    };
    if !host.nodes.iter().any(fits) {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    let cpus =
        if subject.vcpus.is_empty() { facts.vcpus.cpuset.clone().unwrap_or_default() } else { subject.vcpu_cpus() };
    let nodes = nodes_of(host, &cpus);
    let wanted = "one node, since it fits on one";
    if nodes.len() != 1 {
        let found = if nodes.is_empty() { "on any node".to_owned() } else { format!("on nodes {nodes}") };
        objects.push(Object::new("vCPUs", found, wanted));
    }
    match subject.memory_nodes() {
        Some(memory) if memory.len() == 1 && (nodes.len() != 1 || memory == nodes) => {}
        Some(memory) => objects.push(Object::new("memory", format!("on nodes {memory}"), wanted)),
        None => objects.push(Object::new("memory", "on any node", wanted)),
    }
    Outcome::of(objects)
}
