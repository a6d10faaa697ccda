//! Machine type is q35 and not years old.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, machine_version};

pub(crate) const RULE: Rule = Rule {
    id: "machine-type-current-q35",
    layer: Layer::DomainCpu,
    title: "Machine type is q35 and not years old",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["domain <os><type machine>"],
    good: "pc-q35-<version within ~3 years>; not deprecated; PCIe topology when VFIO is used",
    applies: "new guests",
    not_applies: "old guest OS without PCIe/AHCI drivers",
    effect: "unquantified; older types keep old defaults (e.g. queue counts from machine 5.2)",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-help"],
    fix: Fix {
        live: None,
        persistent: "virt-install --machine q35; rebuild the device tree (i440fx -> q35 is not an in-place edit)",
        needs: &[Need::VmRestart],
        undo: "boot failure if drivers missing; keep the old XML to undo",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    let Some(machine) = subject.facts.boot.machine.as_deref() else { return Outcome::NotApplicable };
    if subject.facts.operating_system.as_deref().is_some_and(predates_pci_express) {
        return Outcome::NotApplicable;
    }
    let old = machine == "pc"
        || machine.starts_with("pc-i440fx")
        || machine.starts_with("pc-0.")
        || machine.starts_with("pc-1.");
    // 5.2 is the first whose disks have one queue for each vCPU.
    let aged = machine_version(machine).is_some_and(|(_, major, minor)| (major, minor) < (5, 2));
    let wanted = "pc-q35 of QEMU 5.2 or later, for new guests";
    Outcome::one((old || aged).then(|| Object::new("machine type", machine, wanted)))
}

/// Systems that have no driver for q35's disks or do not start on it, by libosinfo's names.
fn predates_pci_express(system: &str) -> bool {
    const OLD: [&str; 9] = [
        "http://microsoft.com/win/1.",
        "http://microsoft.com/win/2",
        "http://microsoft.com/win/3.",
        "http://microsoft.com/win/9",
        "http://microsoft.com/win/me",
        "http://microsoft.com/win/xp",
        "http://microsoft.com/winnt/",
        "http://microsoft.com/msdos/",
        "http://redhat.com/rhel/4",
    ];
    // Servers are named by year: 2k and 2k3 are old, 2k8 and later are not.
    let newer = ["2k8", "2k12", "2k16", "2k19", "2k22", "2k25"].iter().any(|year| system.contains(year));
    !newer && OLD.iter().any(|old| system.starts_with(old))
}
