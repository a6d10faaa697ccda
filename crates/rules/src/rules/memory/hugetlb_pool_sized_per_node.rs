//! hugetlb pool covers the VMs that ask for it, on the right node.

use nearmetal_host::Host;
use nearmetal_units::{Bytes, NodeSet, PageSize};

use crate::cure::Cure;
use crate::finding::{Object, Outcome, Which};
use crate::pools::{demands, free_pages};
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
    let Some(pages) = &subject.facts.hugepages else { return Outcome::NotApplicable };
    // While it runs its pages are taken already.
    let runs =
        subject.context.domains.iter().any(|domain| domain.name == subject.facts.name && domain.running.is_some());
    if runs {
        return Outcome::NotApplicable;
    }
    let size = pages.first().map_or(PageSize::HUGE_2M, |page| page.size);
    let mut objects = Vec::new();
    for (memory, nodes) in demands(subject, host) {
        let free = free_pages(host, &nodes, size);
        let needed = memory.pages(size);
        if free < needed {
            let found = format!("{free} free pages of {}", size.bytes());
            objects.push(
                Object::new(format!("node {nodes}"), found, format!("{needed} for this domain")).cured_by_all(grown(
                    subject,
                    host,
                    &nodes,
                    size,
                    needed - free,
                )),
            );
        }
    }
    Outcome::of(objects)
}

/// The pool with so many more pages, where it is clear which one, and the node has the memory.
fn grown(subject: &Subject<'_>, host: &Host, nodes: &NodeSet, size: PageSize, more: u64) -> Option<Cure> {
    let node = nodes.first().filter(|_| nodes.len() == 1)?;
    let of_node = host.node(node)?;
    let pages = of_node.pool(size)?.persistent() + more;
    let reserve = Bytes::from_mib(subject.context.settings.node_reserve_mib);
    let room = of_node.memory_available()?.less(reserve);
    (size.bytes().times(more) <= room).then_some(Cure::HugepagePool { node, size, pages })
}
