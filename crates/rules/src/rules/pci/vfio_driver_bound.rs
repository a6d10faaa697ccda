//! Assigned devices use VFIO; the legacy KVM assignment is gone.

use crate::cure::Cure;
use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vfio-driver-bound",
    layer: Layer::Pci,
    title: "Assigned devices use VFIO; the legacy KVM assignment is gone",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/driver", "domain <hostdev><driver name>"],
    good: "vfio-pci or variant while the VM runs; never <driver name='kvm'>",
    applies: "PCI passthrough",
    not_applies: "-",
    effect: "prerequisite; the RHEL 6.3 I/O paper did 800k IOPS by the legacy path",
    evidence: Evidence::B,
    sources: &["lv-dom", "pve-pci", "talk-rhel63-io"],
    fix: Fix {
        live: Some("virsh nodedev-detach pci_0000_.."),
        persistent: "<hostdev managed='yes'>",
        needs: &[Need::VmRestart],
        undo: "device vanishes from the host; undo nodedev-reattach",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    if facts.hostdevs.is_empty() {
        return Outcome::NotApplicable;
    }
    let legacy = facts.legacy_assignment.iter();
    let mut objects: Vec<Object> = legacy
        .map(|address| {
            let object = Object::new(format!("PCI function {address}"), "driver kvm, gone since Linux 4.12", "vfio");
            // Without the element libvirt takes vfio.
            object.cured_by(Cure::no_element("devices/hostdev/driver[@name='kvm']"))
        })
        .collect();
    if let (Which::Running, Some(host)) = (subject.which, subject.context.host) {
        for device in host.pci_devices.iter().filter(|device| facts.hostdevs.contains(&device.address)) {
            let driver = device.driver.as_deref().unwrap_or("none");
            if !driver.contains("vfio") && driver != "nvme" {
                objects.push(Object::new(
                    format!("PCI function {}", device.address),
                    format!("driver {driver}"),
                    "vfio-pci",
                ));
            }
        }
    }
    Outcome::of(objects)
}
