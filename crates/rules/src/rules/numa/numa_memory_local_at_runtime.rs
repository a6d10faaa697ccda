//! The guest's pages really are on its node.

use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "numa-memory-local-at-runtime",
    layer: Layer::Numa,
    title: "The guest's pages really are on its node",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["/proc/PID/numa_maps", "/proc/PID/task/*/status"],
    good: ">= 95% of guest RAM on the nodes where its vCPUs run (chosen); host numa_miss ratio < 10%",
    applies: "guests placed on one node",
    not_applies: "guests that span nodes on purpose (check each cell against its memnode)",
    effect: "RHEL 7 guide: impact of NUMA misses generally starts at about 10% of accesses",
    evidence: Evidence::A,
    sources: &["rh-rhel7vtog", "rh-numa"],
    fix: Fix {
        live: Some("migratepages <pid> <from> <to> (4K/THP pages); or restart the guest"),
        persistent: "numatune strict + vcpupin together",
        needs: &[Need::Live, Need::VmRestart],
        undo: "migratepages stalls the guest while it copies; cannot move pinned pages",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    if subject.which != Which::Running || host.nodes.len() < 2 {
        return Outcome::NotApplicable;
    }
    let nodes = subject.vcpu_nodes(host);
    if nodes.is_empty() || nodes == host.node_set() {
        return Outcome::NotApplicable;
    }
    let Some(process) = subject.process else { return Outcome::unknown("its QEMU process in /proc") };
    if process.residency_error.is_some() {
        return Outcome::unknown(format!("/proc/{}/numa_maps", process.pid));
    }
    let by_node = process.memory_by_node();
    let sum = |keep: &dyn Fn(u32) -> bool| {
        by_node.iter().filter(|(node, _)| keep(*node)).fold(Bytes::ZERO, |sum, (_, bytes)| sum.plus(*bytes))
    };
    let (all, local) = (sum(&|_| true), sum(&|node| nodes.contains(node)));
    if all == Bytes::ZERO {
        return Outcome::NotApplicable;
    }
    let percent = u128::from(local.get()) * 100 / u128::from(all.get());
    let least = subject.context.settings.local_memory_percent;
    let found = format!("{percent} % on node {nodes} of its vCPUs");
    Outcome::one(
        (percent < u128::from(least)).then(|| Object::new("memory in use", found, format!("at least {least} %"))),
    )
}
