//! Every virtio function in the guest has its driver.

use nearmetal_host::{Host, PciDevice};
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-virtio-drivers",
    layer: Layer::Guest,
    title: "Every virtio function in the guest has its driver",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /sys/bus/pci/devices/*/{vendor,device,driver}", "guest /sys/class/{net,block}/*/device"],
    good: "virtio_net, virtio_blk, virtio_scsi and virtio_balloon bound wherever the guest has such a function",
    applies: "Linux guests",
    not_applies: "appliances; Windows, which nearmetal does not read inside",
    effect: "see disk-bus-virtio and net-model-virtio",
    evidence: Evidence::B,
    sources: &["pve-qm", "lv-dom"],
    fix: Fix {
        live: Some("install the missing module or kernel package in the guest"),
        persistent: "the same, and the module in its initramfs",
        needs: &[Need::GuestReboot],
        undo: "undo: boot the former kernel",
    },
    check: Check::Inside(check),
};

/// PCI vendor of virtio; its functions are 0x1000 to 0x107f (virtio 1.2, 4.1.2).
const VIRTIO: u16 = 0x1af4;

fn check(_subject: &Subject<'_>, inside: &Host) -> Outcome {
    let is_virtio = |device: &&PciDevice| {
        device.vendor == Some(VIRTIO) && device.device.is_some_and(|id| (0x1000..=0x107f).contains(&id))
    };
    let functions: Vec<&PciDevice> = inside.pci_devices.iter().filter(is_virtio).collect();
    if functions.is_empty() {
        return Outcome::NotApplicable;
    }
    let has_interface = |device: &PciDevice| inside.network_interfaces.iter().any(|it| it.pci == Some(device.address));
    let has_disk = |device: &PciDevice| inside.block_devices.iter().any(|it| it.pci == Some(device.address));
    let object = |device: &&PciDevice| {
        let found = match (device.driver.as_deref(), device.device) {
            (None, _) => "no driver",
            (_, Some(0x1000 | 0x1041)) if !has_interface(device) => "no interface: virtio_net is not loaded",
            (_, Some(0x1001 | 0x1042)) if !has_disk(device) => "no disk: virtio_blk is not loaded",
            _ => return None,
        };
        Some(Object::new(format!("PCI function {} in the guest", device.address), found, "its virtio driver"))
    };
    Outcome::of(functions.iter().filter_map(object).collect())
}
