//! hugetlb pool covers the VMs that ask for it, on the right node.

use nearmetal_units::{Bytes, NodeSet, PageSize};

use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "hugetlb-pool-sized-per-node",
    layer: Layer::Memory,
    title: "hugetlb pool covers the VMs that ask for it, on the right node",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/devices/system/node/node*/hugepages/*/free_hugepages", "domain <hugepages>, <numatune>"],
    good: "free >= demand of defined VMs per node before start; surplus == 0",
    applies: "hugetlb-backed VMs (DB, NFV, VFIO, vhost-user)",
    not_applies: "THP-only hosts",
    effect: "unquantified; the KVM tuning talk slide: 'significant performance boost' (chart only)",
    evidence: Evidence::B,
    sources: &["k-huge", "nova-huge", "ovs-dpdk", "talk-kvm-tuning"],
    fix: Fix {
        live: Some("echo N > /sys/devices/system/node/nodeX/hugepages/hugepages-2048kB/nr_hugepages"),
        persistent: "hugepagesz=2M hugepages=0:N,1:M (node form) or systemd oneshot early in boot",
        needs: &[Need::Live, Need::HostReboot],
        undo: "memory is taken from everything else, cannot swap; undo write smaller N",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    if subject.which == Which::Running {
        return Outcome::NotApplicable;
    }
    let Some(pages) = subject.facts.hugepages.as_ref().filter(|_| subject.uses_hugetlb()) else {
        return Outcome::NotApplicable;
    };
    // While it runs its pages are taken already.
    let runs =
        subject.context.domains.iter().any(|domain| domain.name == subject.facts.name && domain.running.is_some());
    if runs {
        return Outcome::NotApplicable;
    }
    let size = pages.first().map_or(PageSize::HUGE_2M, |page| page.size);
    let tune = subject.facts.numatune.as_ref();
    let mut demands: Vec<(Bytes, NodeSet)> = Vec::new();
    for cell in &subject.facts.cells {
        let nodes = tune.and_then(|tune| tune.cells.iter().find(|memory| memory.cell == cell.id)?.nodes.clone());
        demands.push((cell.memory, nodes.or_else(|| tune?.nodes.clone()).unwrap_or_else(|| host.node_set())));
    }
    if demands.is_empty() {
        demands
            .push((subject.facts.memory, tune.and_then(|tune| tune.nodes.clone()).unwrap_or_else(|| host.node_set())));
    }
    let mut objects = Vec::new();
    for (memory, nodes) in demands {
        let pools = host.nodes.iter().filter(|node| nodes.contains(node.index)).filter_map(|node| node.pool(size));
        let free: u64 = pools.map(|pool| pool.free).sum();
        let needed = memory.pages(size);
        if free < needed {
            let found = format!("{free} free pages of {}", size.bytes());
            objects.push(Object::new(format!("node {nodes}"), found, format!("{needed} for this domain")));
        }
    }
    Outcome::of(objects)
}
