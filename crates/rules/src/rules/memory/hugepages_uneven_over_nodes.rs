//! Hugepage pools are equal on all nodes, unless intended.

use nearmetal_host::HugepagePool;
use nearmetal_units::{Bytes, PageSize};

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "hugepages-uneven-over-nodes",
    layer: Layer::Memory,
    title: "Hugepage pools are equal on all nodes, unless intended",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/sys/devices/system/node/node*/hugepages/*/nr_hugepages"],
    good: "persistent pages of a size differ by at most a tenth",
    applies: "NUMA hosts with pools",
    not_applies: "-",
    effect: "a split of 1290 and 758 pages kept a guest from starting",
    evidence: Evidence::B,
    sources: &["t-kubevirt-6981", "k-huge"],
    fix: Fix {
        live: Some("echo N > /sys/devices/system/node/nodeK/hugepages/hugepages-2048kB/nr_hugepages"),
        persistent: "hugepagesz=2M hugepages=0:N,1:N",
        needs: &[Need::Live],
        undo: "write the old numbers",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    let nodes = || {
        host.nodes
            .iter()
            .filter(|node| node.memory_total.is_some_and(|total| total > Bytes::ZERO) && !node.cpus.is_empty())
    };
    if nodes().count() < 2 {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    for size in [PageSize::HUGE_2M, PageSize::HUGE_1G] {
        let pools: Vec<(u32, u64)> =
            nodes().map(|node| (node.index, node.pool(size).map_or(0, HugepagePool::persistent))).collect();
        let (least, most) = (pools.iter().map(|(_, pages)| *pages).min(), pools.iter().map(|(_, pages)| *pages).max());
        if let (Some(least), Some(most)) = (least, most) {
            if most - least > most / 10 {
                let found: Vec<String> = pools.iter().map(|(node, pages)| format!("node {node} {pages}")).collect();
                objects.push(Object::new(
                    format!("pages of {}", size.bytes()),
                    found.join(", "),
                    "equal, unless intended",
                ));
            }
        }
    }
    Outcome::of(objects)
}
