//! OVS-DPDK PMD threads are pinned, isolated, NUMA local.

use nearmetal_host::Host;
use nearmetal_units::CpuSet;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "ovs-dpdk-pmd-local-isolated",
    layer: Layer::Net,
    title: "OVS-DPDK PMD threads are pinned, isolated, NUMA local",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "ovs-vsctl: other_config:{pmd-cpu-mask,dpdk-init} of Open_vSwitch, dpdk-devargs of each Interface, on the machine itself",
        "/sys/devices/system/cpu/isolated",
        "cpuset.cpus.partition of control groups",
    ],
    good: "at least one PMD core per NUMA node with a DPDK port; PMD cores in the isolated set and disjoint from vCPU pins",
    applies: "OVS-DPDK hosts",
    not_applies: "kernel OVS / Linux bridge",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["ovs-dpdk", "rh-rt"],
    fix: Fix {
        live: Some(
            "ovs-vsctl set Open_vSwitch . other_config:pmd-cpu-mask=0x..; ovs-appctl dpif-netdev/pmd-rxq-rebalance",
        ),
        persistent: "OVSDB persists; isolation by tuned cpu-partitioning",
        needs: &[Need::Live, Need::HostReboot],
        undo: "PMD cores run at 100%; undo mask",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let mut interfaces = context.domains.iter().filter_map(Domain::in_force).flat_map(|facts| &facts.interfaces);
    let Some(switch) = &host.open_vswitch else {
        return match interfaces.any(|interface| interface.kind == "vhostuser") {
            true => Outcome::unknown("Open vSwitch's other_config (`ovs-vsctl`, on the machine itself)"),
            false => Outcome::NotApplicable,
        };
    };
    if !switch.dpdk {
        return Outcome::NotApplicable;
    }
    let threads = "polling threads of Open vSwitch";
    let Some(polling) = &switch.polling_cpus else {
        let found = "may run on any PU: pmd-cpu-mask is not set";
        return Outcome::one(Some(Object::new(threads, found, "their own PUs on the node of each card")));
    };
    let mut objects = Vec::new();
    for port in &switch.ports {
        let device = host.pci_devices.iter().find(|device| Some(device.address) == port.function);
        let Some(node) = device.and_then(|device| device.node).and_then(|node| host.node(node)) else { continue };
        if !node.cpus.is_empty() && node.cpus.is_disjoint(polling) {
            let found = format!("no polling thread on node {}, where its card is", node.index);
            objects.push(Object::new(format!("port {}", port.name), found, format!("one of PUs {}", node.cpus)));
        }
    }
    let Some(isolated) = isolated(host) else { return Outcome::unknown("/sys/devices/system/cpu/isolated") };
    let mut add = |cpus: CpuSet, why: &str, wanted: &str| {
        if !cpus.is_empty() {
            objects.push(Object::new(threads, format!("on PUs {cpus}, {why}"), wanted));
        }
    };
    add(polling.difference(&isolated), "which the scheduler also gives to others", "isolated PUs");
    let pinned = context.running().flat_map(|facts| &facts.vcpu_pins).map(|(_, cpus)| cpus);
    let pinned = pinned.fold(CpuSet::new(), |all, cpus| all.union(cpus));
    add(polling.intersection(&pinned), "where vCPUs run", "PUs without vCPUs");
    Outcome::of(objects)
}

/// PUs kept from the scheduler at boot, and those of isolated control groups.
fn isolated(host: &Host) -> Option<CpuSet> {
    let mut all = host.system.isolated.clone()?;
    for group in host.cpusets.iter().filter(|group| group.is_isolated()) {
        all = all.union(group.effective_cpus.as_ref().or(group.cpus.as_ref())?);
    }
    Some(all)
}
