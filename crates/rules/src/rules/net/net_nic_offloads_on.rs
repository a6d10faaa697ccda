//! Uplink NICs have the offloads that help guests.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "net-nic-offloads-on",
    layer: Layer::Net,
    title: "Uplink NICs have the offloads that help guests",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["ethtool -k <uplink>, on the machine itself"],
    good: "tx-checksum, sg, tso, gso, gro, rx-checksum on; lro off on any bridged/forwarding NIC",
    applies: "kernel network path",
    not_applies: "DPDK-owned NICs; latency class may turn gro/lro off",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["rh-netlat", "k-scaling"],
    fix: Fix {
        live: Some("ethtool -K <nic> tso on gso on gro on lro off"),
        persistent: "NetworkManager ethtool.feature-*; systemd .link",
        needs: &[Need::Live],
        undo: "rare driver bugs; undo ethtool -K off",
    },
    check: Check::Host(check),
};

const HELPFUL: [&str; 5] = [
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
];
/// Collects packets before they are handed on: a trade where latency counts.
const COLLECTING: &str = "generic-receive-offload";
/// Joins packets so that they cannot be parted again as they were: nothing to forward.
const JOINING: &str = "large-receive-offload";

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let uplinks = host.network_interfaces.iter().filter(|interface| {
        interface.pci.is_some() && interface.master.is_some() && interface.state.as_deref() == Some("up")
    });
    let uplinks: Vec<_> = uplinks.collect();
    if uplinks.is_empty() {
        return Outcome::NotApplicable;
    }
    if uplinks.iter().all(|interface| interface.offloads.is_empty()) {
        return Outcome::unknown("offloads of network cards (`ethtool -k`, on the machine itself)");
    }
    let latency = context.has_class(WorkloadClass::Latency);
    let mut objects = Vec::new();
    for interface in uplinks {
        for offload in interface.offloads.iter().filter(|offload| !offload.fixed) {
            let name = offload.name.as_str();
            let missing = !offload.on && (HELPFUL.contains(&name) || name == COLLECTING && !latency);
            if missing || offload.on && name == JOINING {
                let (found, wanted) = if offload.on { ("on", "off") } else { ("off", "on") };
                objects.push(Object::new(format!("interface {}", interface.name), format!("{name} {found}"), wanted));
            }
        }
    }
    Outcome::of(objects)
}
