//! The host keeps enough memory outside hugepage pools.

use nearmetal_host::NumaNode;
use nearmetal_units::Bytes;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "host-memory-reserve",
    layer: Layer::Memory,
    title: "The host keeps enough memory outside hugepage pools",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/devices/system/node/node*/{meminfo,hugepages}"],
    good: "after reservations >= max(4 GiB, 5%) of RAM and >= 1 GiB per node free for host + QEMU overhead",
    applies: "all",
    not_applies: "-",
    effect: "unquantified; Proxmox rule of thumb 1 GB, libvirt RT example 6 GB per 32 GB node",
    evidence: Evidence::B,
    sources: &["pve-qm", "lv-rt", "nova-huge"],
    fix: Fix {
        live: Some("shrink pool or migrate"),
        persistent: "reserved_host_memory_mb (Nova) / sizing",
        needs: &[Need::Live],
        undo: "OOM kills QEMU if too small",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    let reserve = Bytes::from_mib(context.settings.node_reserve_mib);
    let object = |node: &NumaNode| {
        let total = node.memory_total.filter(|total| *total > Bytes::ZERO)?;
        let pooled = node.pools.iter().fold(Bytes::ZERO, |sum, pool| sum.plus(pool.size.bytes().times(pool.total)));
        let left = total.less(pooled);
        // A node without CPUs holds memory for guests alone.
        (pooled > Bytes::ZERO && !node.cpus.is_empty() && left < reserve).then(|| {
            Object::new(
                format!("node {}", node.index),
                format!("{left} outside hugepage pools"),
                format!("at least {reserve}"),
            )
        })
    };
    Outcome::of(host.nodes.iter().filter_map(object).collect())
}
