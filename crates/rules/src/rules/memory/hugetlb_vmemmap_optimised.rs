//! HVO frees struct pages on hugetlb-heavy hosts.

use nearmetal_units::Bytes;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "hugetlb-vmemmap-optimised",
    layer: Layer::Memory,
    title: "HVO frees struct pages on hugetlb-heavy hosts",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/proc/sys/vm/hugetlb_optimize_vmemmap", "/sys/devices/system/node/node*/hugepages"],
    good: "1/on when hugetlb > 50% of RAM",
    applies: "hugetlb hosts on kernels >= 5.14",
    not_applies: "hosts resizing pools often",
    effect: "saves 7 struct-page pages (28 KiB) per 2 MiB page; capacity, not speed",
    evidence: Evidence::A,
    sources: &["k-params", "k-huge"],
    fix: Fix {
        live: Some("sysctl vm.hugetlb_optimize_vmemmap=1 (before allocation)"),
        persistent: "hugetlb_free_vmemmap=on",
        needs: &[Need::Live, Need::HostReboot],
        undo: "slower pool resize; undo 0",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    const PATH: &str = "/proc/sys/vm/hugetlb_optimize_vmemmap";
    let Some(host) = context.host else { return Outcome::no_host() };

    let total = host.nodes.iter().filter_map(|node| node.memory_total).fold(Bytes::ZERO, Bytes::plus);
    let pools = host.nodes.iter().flat_map(|node| &node.pools);
    let pooled = pools.fold(Bytes::ZERO, |sum, pool| sum.plus(pool.size.bytes().times(pool.total)));
    // Kernels that cannot do it have no such file.
    let Some(on) = host.tuning.hugetlb_optimize_vmemmap else { return Outcome::NotApplicable };
    let mostly = pooled.get() > total.get() / 2;
    Outcome::one((mostly && !on).then(|| {
        let found = format!("off, with {pooled} of {total} in hugepage pools");
        Object::new("hugetlb_optimize_vmemmap", found, "1, set before pages are allocated")
            .cured_by(Cure::kernel_file(PATH, "1"))
    }))
}
