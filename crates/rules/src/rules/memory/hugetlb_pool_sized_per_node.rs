//! hugetlb pool covers the VMs that ask for it, on the right node.

use std::collections::BTreeSet;

use nearmetal_host::Host;
use nearmetal_units::{Bytes, NodeSet, PageSize};

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome, Which};
use crate::input::Domain;
use crate::pools::{asked, demands, free_pages};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, pool_page, some_of};

pub(crate) const RULE: Rule = Rule {
    id: "hugetlb-pool-sized-per-node",
    layer: Layer::Memory,
    title: "hugetlb pool covers the VMs that ask for it, on the right node",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &[
        "/sys/devices/system/node/node*/hugepages/*/free_hugepages",
        "domain <hugepages>, <numatune>",
        "what libvirt starts with the host",
    ],
    good: "free >= demand of each defined VM, and of those that start with the host beside it, per node before start; surplus == 0",
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
    let Some(size) = pool_page(subject.facts) else { return Outcome::NotApplicable };
    // While it runs its pages are taken already.
    if subject.domain.running.is_some() {
        return Outcome::NotApplicable;
    }
    let sets: BTreeSet<NodeSet> = demands(subject.facts, host).into_iter().map(|(_, nodes)| nodes).collect();
    let mut objects = Vec::new();
    for nodes in sets {
        let pools = Pools { context: subject.context, host, free: free_pages(host, &nodes, size), nodes, size };
        let own = asked(subject.facts, host, &pools.nodes, size);
        let needed = own + pools.beside(subject.domain).map(|(_, pages)| pages).sum::<u64>();
        if pools.free < needed {
            let found = format!("{} free pages of {}", pools.free, size.bytes());
            let names: BTreeSet<&str> = pools.beside(subject.domain).map(|(name, _)| name).collect();
            let wanted = match names.is_empty() {
                true => format!("{needed} for this domain"),
                false => format!(
                    "{needed}: {own} for this domain, the others for {}, which libvirt starts with the host",
                    some_of(&names)
                ),
            };
            let object = Object::new(format!("node {}", pools.nodes), found, wanted);
            objects.push(object.cured_by_all(pools.grown(needed)));
        }
    }
    Outcome::of(objects)
}

/// Pools of one page size on some nodes.
struct Pools<'a> {
    context: &'a Context<'a>,
    host: &'a Host,
    nodes: NodeSet,
    size: PageSize,
    free: u64,
}

impl<'a> Pools<'a> {
    /// Domains that do not run and take pages from here alone, with how many.
    fn off(&self) -> impl Iterator<Item = (&'a Domain, u64)> + '_ {
        let off = self.context.domains.iter().filter(|domain| domain.running.is_none());
        let off = off.filter_map(|domain| Some((domain, domain.defined.as_ref()?)));
        let off = off.filter(move |(_, facts)| pool_page(facts) == Some(self.size));
        let pages = off.map(move |(domain, facts)| (domain, asked(facts, self.host, &self.nodes, self.size)));
        pages.filter(|(_, pages)| *pages > 0)
    }

    /// Those beside one domain that libvirt starts with the host, so that it does not have the pools for itself.
    fn beside(&self, domain: &Domain) -> impl Iterator<Item = (&'a str, u64)> + '_ {
        let own = domain.name.clone();
        let others = self.off().filter(move |(other, _)| other.starts_with_host && other.name != own);
        others.map(|(other, pages)| (other.name.as_str(), pages))
    }

    /// The pool with so many free pages, where it is clear which one, and the node has the memory. Domains that want more, and whose
    /// pages the node has room for, have the same cure: one pool has one size.
    fn grown(&self, needed: u64) -> Option<Cure> {
        let node = self.nodes.first().filter(|_| self.nodes.len() == 1)?;
        let of_node = self.host.node(node)?;
        let persistent = of_node.pool(self.size)?.persistent();
        let reserve = Bytes::from_mib(self.context.settings.node_reserve_mib);
        let room = of_node.memory_available()?.less(reserve);
        let more = |needed: u64| needed.saturating_sub(self.free);
        let fits = |needed: &u64| self.size.bytes().times(more(*needed)) <= room;
        let with_others =
            |(domain, own): (&Domain, u64)| own + self.beside(domain).map(|(_, pages)| pages).sum::<u64>();
        let most = self.off().map(with_others).filter(fits).max().unwrap_or_default();
        let pages = persistent + more(needed.max(most));
        fits(&needed).then_some(Cure::HugepagePool { node, size: self.size, pages })
    }
}
