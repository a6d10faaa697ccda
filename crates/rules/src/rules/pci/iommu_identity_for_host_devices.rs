//! Host-owned fast devices use identity (pt) or lazy DMA domains.

use nearmetal_host::PciDevice;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "iommu-identity-for-host-devices",
    layer: Layer::Pci,
    title: "Host-owned fast devices use identity (pt) or lazy DMA domains",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/sys/kernel/iommu_groups/*/type", "/sys/class/net/*/speed"],
    good: "identity for trusted host NIC/NVMe on throughput hosts (iommu=pt), else DMA-FQ; plain DMA (strict) flagged as slow",
    applies: "hosts with IOMMU on and fast host NIC/NVMe",
    not_applies: "hosts under a hypervisor; hosts that need DMA protection (Thunderbolt, untrusted devices, SEV-SNP/TDX rules)",
    effect: "kernel ABI: identity is 'maximum performance but zero protection'; Intel E810 note: IOMMU affects latency and CPU; unquantified",
    evidence: Evidence::B,
    sources: &["k-iommu-abi", "k-params", "intel-e810", "pve-pci"],
    fix: Fix {
        live: Some("echo identity > /sys/kernel/iommu_groups/N/type (driver unbound)"),
        persistent: "grubby --update-kernel=ALL --args='iommu=pt'",
        needs: &[Need::Live, Need::HostReboot],
        undo: "removes DMA protection of the host from that device; undo DMA-FQ",
    },
    check: Check::Host(check),
};

/// From here on a network card is fast, in Mbit/s.
const FAST: u64 = 10_000;

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    // An emulated IOMMU must be told of every change at once: the kernel leaves no choice.
    if host.system.hypervisor == Some(true) {
        return Outcome::NotApplicable;
    }
    let is_fast = |device: &&PciDevice| {
        let drive = device.class.is_some_and(|class| class >> 8 == 0x0108);
        let mut cards = host.network_interfaces.iter().filter(|interface| interface.pci == Some(device.address));
        drive || cards.any(|interface| interface.speed.is_some_and(|speed| speed >= FAST))
    };
    let is_hosts = |device: &&PciDevice| device.driver.as_deref().is_some_and(|driver| driver != "vfio-pci");
    let devices = host.pci_devices.iter().filter(is_hosts).filter(is_fast);
    let mut found = devices.filter_map(|device| Some((device, device.iommu_group?))).peekable();
    if found.peek().is_none() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    for (device, group) in found {
        match device.dma_domain.as_deref() {
            None => return Outcome::unknown(format!("/sys/kernel/iommu_groups/{group}/type")),
            Some("DMA") => objects.push(Object::new(
                format!("PCI function {}", device.address),
                "DMA: the IOMMU is flushed after each transfer (strict)",
                "DMA-FQ, or identity if the device is trusted",
            )),
            Some(_) => {}
        }
    }
    Outcome::of(objects)
}
