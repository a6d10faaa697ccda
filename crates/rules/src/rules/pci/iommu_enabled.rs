//! IOMMU and interrupt remapping are on when devices are assigned.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "iommu-enabled",
    layer: Layer::Pci,
    title: "IOMMU and interrupt remapping are on when devices are assigned",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/iommu_group", "domain <hostdev>"],
    good: "IOMMU units present, groups non-empty, remapping enabled",
    applies: "hosts with hostdev/SR-IOV",
    not_applies: "hosts without passthrough",
    effect: "prerequisite; unquantified",
    evidence: Evidence::B,
    sources: &["k-params", "pve-pci", "rh-rhel6perf", "talk-rhel63-io"],
    fix: Fix {
        live: None,
        persistent: "firmware VT-d/AMD-Vi on; intel_iommu=on where the kernel default is off (AMD: on by default)",
        needs: &[Need::HostReboot, Need::Firmware],
        undo: "DMA mapping cost for host devices if not identity; undo intel_iommu=off",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let facts = subject.facts;
    if facts.hostdevs.is_empty() {
        return Outcome::NotApplicable;
    }
    let without = facts.hostdevs.iter().filter(|address| {
        let device = host.pci_devices.iter().find(|device| device.address == **address);
        device.is_some_and(|device| device.iommu_group.is_none())
    });
    Outcome::of(
        without
            .map(|address| {
                Object::new(format!("PCI function {address}"), "in no IOMMU group", "IOMMU on in firmware and kernel")
            })
            .collect(),
    )
}
