//! Passed-through devices are on the same NUMA node as vCPUs and memory.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "pci-device-numa-local",
    layer: Layer::Pci,
    title: "Passed-through devices are on the same NUMA node as vCPUs and memory",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/numa_node", "domain <hostdev>, <vcpupin>, <numatune>"],
    good: "device numa_node in the guest's node set (or -1: unknown, warn); wide guests: device attached to a pxb-pcie with <target><node> of the right cell",
    applies: "VFIO/SR-IOV, vDPA",
    not_applies: "single-node hosts",
    effect: "unquantified; Red Hat/Nova: 'required' gives the best performance",
    evidence: Evidence::B,
    sources: &["nova-pci", "nova-net", "rh-pcinuma", "k-pci-abi", "talk-rhel63-io"],
    fix: Fix {
        live: Some("re-pin: virsh vcpupin; migratepages"),
        persistent: "choose a VF of the local NIC; Nova hw:pci_numa_affinity_policy=required",
        needs: &[Need::VmRestart],
        undo: "less placement freedom; undo 'preferred'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let facts = subject.facts;
    if facts.hostdevs.is_empty() || host.nodes.len() < 2 {
        return Outcome::NotApplicable;
    }
    let nodes = subject.vcpu_nodes(host).union(&subject.memory_nodes().unwrap_or_default());
    if nodes.is_empty() {
        return Outcome::NotApplicable;
    }
    let far = host.pci_devices.iter().filter(|device| facts.hostdevs.contains(&device.address));
    let far = far.filter_map(|device| Some((device.address, device.node.filter(|node| !nodes.contains(*node))?)));
    Outcome::of(
        far.map(|(address, node)| {
            Object::new(
                format!("PCI function {address}"),
                format!("on node {node}"),
                format!("node {nodes} of the domain"),
            )
        })
        .collect(),
    )
}
