//! There are as many VFs as needed, with enough queues/MSI-X.

use nearmetal_units::PciAddress;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "sriov-vfs-sized",
    layer: Layer::Pci,
    title: "There are as many VFs as needed, with enough queues/MSI-X",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/{sriov_numvfs,virtfn*,driver}", "domain <hostdev>"],
    good: "0 < numvfs <= what is needed (more VFs mean fewer queues each on several NICs); autoprobe 0 when VFs only go to guests; msix >= guest queues + 1",
    applies: "SR-IOV NICs/NVMe",
    not_applies: "-",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-pci-abi", "k-ice"],
    fix: Fix {
        live: Some("echo 0 > sriov_numvfs; echo N > sriov_numvfs"),
        persistent: "udev/systemd unit, devlink, netplan virtual-function-count",
        needs: &[Need::Live],
        undo: "all VF users lose the device on change; undo 0; link aggregation excluded on Intel ice PFs",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let used = |address: &PciAddress| {
        context.domains.iter().filter_map(Domain::in_force).any(|facts| facts.hostdevs.contains(address))
    };
    let mut objects = Vec::new();
    for card in host.pci_devices.iter().filter_map(|device| device.sriov.as_ref()) {
        // A card none of whose functions goes to a domain serves something else.
        if !card.functions.iter().any(used) {
            continue;
        }
        for function in
            host.pci_devices.iter().filter(|device| card.functions.contains(&device.address) && !used(&device.address))
        {
            if let Some(driver) = function.driver.as_deref().filter(|driver| !driver.contains("vfio")) {
                let found = format!("a spare virtual function, with the host's driver {driver}");
                objects.push(Object::new(
                    format!("PCI function {}", function.address),
                    found,
                    "no more VFs than needed, and sriov_drivers_autoprobe 0",
                ));
            }
        }
    }
    Outcome::of(objects)
}
