//! PCIe devices run at full link speed and width.

use nearmetal_host::PciDevice;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "pcie-link-full",
    layer: Layer::Pci,
    title: "PCIe devices run at full link speed and width",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/bus/pci/devices/*/{current,max}_link_{speed,width}"],
    good: "current == max for NIC/NVMe/HBA/GPU under load (GPUs may drop speed when idle: check width)",
    applies: "all fast devices",
    not_applies: "slots known to be narrower: report, not fail",
    effect: "bandwidth is proportional to width x speed; one field report of a downgraded link",
    evidence: Evidence::B,
    sources: &["k-pci-abi", "pcie-link"],
    fix: Fix {
        live: None,
        persistent: "re-seat/move card; firmware; pci=pcie_bus_perf for MaxPayload",
        needs: &[Need::HostReboot, Need::Firmware],
        undo: "low",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let object = |device: &PciDevice| {
        let class = device.class? >> 16;
        let link = device.link.as_ref()?;
        // Storage, network, display; a display adapter lowers its speed while it is idle.
        if !matches!(class, 0x01..=0x03) || device.physical_function.is_some() {
            return None;
        }
        let narrow = link.width.zip(link.max_width).filter(|(now, most)| *now > 0 && now < most);
        let slow = link.speed.zip(link.max_speed).filter(|(now, most)| class != 0x03 && now < most);
        let (found, wanted) = match (narrow, slow) {
            (Some((now, most)), _) => (format!("{now} lanes"), format!("{most} lanes")),
            (None, Some((now, most))) => (format!("{now} MT/s"), format!("{most} MT/s")),
            (None, None) => return None,
        };
        Some(Object::new(format!("PCI function {}", device.address), found, wanted))
    };
    Outcome::of(host.pci_devices.iter().filter_map(object).collect())
}
