//! Firmware NUMA partitioning is a deliberate choice.

use nearmetal_host::{CpuGroup, NumaNode};
use nearmetal_units::Bytes;
use std::collections::BTreeSet;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::some_of;

pub(crate) const RULE: Rule = Rule {
    id: "numa-firmware-nps-llc",
    layer: Layer::Numa,
    title: "Firmware NUMA partitioning is a deliberate choice",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &[
        "/sys/devices/system/node/node*/{cpumap,meminfo}",
        "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
        "domain <vcpu>, <memory>, <numa>",
    ],
    good: "recorded: NPS/SNC nodes per socket; NPS1 (or 2) with CCX-as-NUMA off for mixed-size guests, NPS4/SNC only when guests fit the smaller nodes and are pinned",
    applies: "AMD EPYC, Intel SNC",
    not_applies: "single-die CPUs",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["broadcom-nps", "lenovo-epyc"],
    fix: Fix {
        live: None,
        persistent: "firmware setup",
        needs: &[Need::HostReboot, Need::Firmware],
        undo: "larger guests no longer fit a node; undo in firmware",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if host.packages.is_empty() {
        return Outcome::unknown("/sys/devices/system/cpu/cpu*/topology/physical_package_id");
    }
    let room = |node: &&NumaNode| node.memory_total.unwrap_or(Bytes::ZERO);
    let nodes_in = |package: &CpuGroup| -> Vec<&NumaNode> {
        host.nodes.iter().filter(|node| !node.cpus.is_empty() && node.cpus.is_subset(&package.cpus)).collect()
    };
    let split: Vec<(&CpuGroup, Vec<&NumaNode>)> =
        host.packages.iter().map(|package| (package, nodes_in(package))).filter(|(_, nodes)| nodes.len() > 1).collect();
    // Guests that see nodes of their own are laid over several on purpose.
    let plain = context.domains.iter().filter_map(Domain::in_force).filter(|facts| facts.cells.len() < 2);
    let too_large = plain.filter(|facts| {
        let fits = |cpus: usize, memory: Bytes| facts.vcpus.maximum as usize <= cpus && facts.memory <= memory;
        let in_a_node = host.nodes.iter().any(|node| fits(node.cpus.len(), room(&node)));
        let in_a_package = split.iter().any(|(package, nodes)| {
            fits(package.cpus.len(), nodes.iter().fold(Bytes::ZERO, |sum, node| sum.plus(room(node))))
        });
        !in_a_node && in_a_package
    });
    let names: BTreeSet<&str> = too_large.map(|facts| facts.name.as_str()).collect();
    let most = split.iter().map(|(_, nodes)| nodes.len()).max().unwrap_or(1);
    Outcome::one((!names.is_empty()).then(|| {
        let found = format!("{most} nodes in a package; {} would fit a package but fits no node", some_of(&names));
        Object::new(
            "NUMA partitioning of the firmware",
            found,
            "NPS1 or SNC off, guests that fit one node, or guest cells",
        )
    }))
}
