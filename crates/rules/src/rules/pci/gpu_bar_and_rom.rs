//! Guests with assigned GPUs have a machine type with PCI Express.

use nearmetal_host::PciDevice;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "gpu-bar-and-rom",
    layer: Layer::Pci,
    title: "Guests with assigned GPUs have a machine type with PCI Express",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/{class,max_link_speed}", "domain <os><type machine>, <hostdev>"],
    good: "q35 + pcie-root-port",
    applies: "GPU passthrough",
    not_applies: "vGPU/MIG (other rules)",
    effect: "published paper: KVM passthrough 98-100% of native for GPU compute; a gaming study saw 85 -> < 51 FPS (counter-example)",
    evidence: Evidence::A,
    sources: &["gpu-pt", "k-pci-abi"],
    fix: Fix {
        live: None,
        persistent: "virt-xml DOM --edit --machine q35: a new virtual board, on which the guest's devices move",
        needs: &[Need::VmRestart],
        undo: "the guest may need new drivers or a new activation; undo the old machine type",
    },
    check: Check::Domain(check),
};

/// Display controllers (class 0x03) and accelerators (0x12) of the PCI Code and ID Assignment Specification.
const CLASSES: [u32; 2] = [0x03, 0x12];

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let graphics = host.pci_devices.iter().filter(|device| {
        let class = device.class.is_some_and(|class| CLASSES.contains(&(class >> 16)));
        // Conventional PCI has no link.
        class && device.link.is_some() && subject.facts.hostdevs.contains(&device.address)
    });
    let graphics: Vec<&PciDevice> = graphics.collect();
    if graphics.is_empty() || !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    let machine = subject.facts.boot.machine.as_deref().unwrap_or("pc");
    // `pc` is an alias of the i440FX machine, as `pc-i440fx-*` and Ubuntu's are; all others name q35.
    let conventional = machine == "pc" || machine.starts_with("pc-i440fx");
    if !conventional {
        return Outcome::Clean;
    }
    let object = |device: &&PciDevice| {
        Object::new(
            format!("PCI function {}", device.address),
            format!("on machine {machine}, without PCI Express"),
            "q35",
        )
    };
    Outcome::of(graphics.iter().map(object).collect())
}
