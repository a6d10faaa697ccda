//! No host driver shares an IOMMU group with an assigned function.

use nearmetal_host::PciDevice;
use std::collections::BTreeSet;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "iommu-group-clean",
    layer: Layer::Pci,
    title: "No host driver shares an IOMMU group with an assigned function",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/{iommu_group,driver,class}", "domain <hostdev>"],
    good: "all endpoints of the group assigned to the guest, without a driver, or bound to vfio/pci-stub/bridge",
    applies: "PCI passthrough",
    not_applies: "-",
    effect: "VFIO refuses to open a group that the host still uses",
    evidence: Evidence::B,
    sources: &["pve-pci", "lv-dom"],
    fix: Fix {
        live: Some("move the card to another slot"),
        persistent: "firmware ACS/ARI on",
        needs: &[Need::HostReboot],
        undo: "the host loses what shared the group; undo: move the card back",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let assigned = &subject.facts.hostdevs;
    if assigned.is_empty() {
        return Outcome::NotApplicable;
    }
    let of_guest = host.pci_devices.iter().filter(|device| assigned.contains(&device.address));
    let groups: BTreeSet<u32> = of_guest.filter_map(|device| device.iommu_group).collect();
    // What the kernel's VFIO lets stay in a group: bridges, functions without a driver, with its own, or parked.
    let stays = |device: &PciDevice| {
        let driver = device.driver.as_deref().unwrap_or("none");
        device.is_bridge() || driver.contains("vfio") || matches!(driver, "none" | "pci-stub" | "pcieport")
    };
    let others = host.pci_devices.iter().filter(|device| !assigned.contains(&device.address) && !stays(device));
    let object = |device: &PciDevice| {
        let group = device.iommu_group.filter(|group| groups.contains(group))?;
        let driver = device.driver.as_deref().unwrap_or("none");
        let found = format!("in IOMMU group {group} with an assigned function, and driven by {driver}");
        let wanted = "assigned too, bound to vfio-pci, or the card in a slot with its own group";
        Some(Object::new(format!("PCI function {}", device.address), found, wanted))
    };
    Outcome::of(others.filter_map(object).collect())
}
