//! No unneeded emulated devices (USB tablet, sound, floppy, parallel, spice).

use std::collections::BTreeMap;

use nearmetal_domain::PeripheralFacts;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "unused-emulated-devices-removed",
    layer: Layer::DomainCpu,
    title: "No unneeded emulated devices (USB tablet, sound, floppy, parallel, spice)",
    severity: Severity::Note,
    classes: &[WorkloadClass::Density, WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &[
        "domain devices: <input type='tablet' bus='usb'>, <sound>, <redirdev>, <controller type='usb'>, <video>, <controller type='fdc'>",
    ],
    good: "server guests: no usb tablet, no sound, no redirdev, video none or virtio/vga 1 head, one qemu-guest-agent channel",
    applies: "server/RT guests",
    not_applies: "desktop/VDI guests",
    effect: "unquantified; less idle wakeups (USB tablet polling)",
    evidence: Evidence::B,
    sources: &["lv-rt", "pve-qm", "rh-rt"],
    fix: Fix {
        live: Some("virsh detach-device --live where hot-pluggable"),
        persistent: "virsh edit",
        needs: &[Need::VmRestart],
        undo: "loses console mouse; undo add",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    // In the density class a guest with a screen and sound is somebody's desktop.
    let has = |element| subject.peripherals(element).next().is_some();
    if subject.class == WorkloadClass::Density && has("graphics") && has("sound") {
        return Outcome::NotApplicable;
    }
    let name = |device: &PeripheralFacts| match (device.element.as_str(), device.kind.as_deref(), device.bus.as_deref())
    {
        ("input", Some("tablet"), Some("usb") | None) => Some("USB tablet"),
        ("sound", ..) => Some("sound card"),
        ("redirdev", ..) => Some("USB redirection"),
        ("parallel", ..) => Some("parallel port"),
        _ => None,
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    subject.facts.peripherals.iter().filter_map(name).for_each(|name| *counts.entry(name).or_default() += 1);
    let floppies = subject.facts.disks.iter().filter(|disk| disk.device == "floppy").count();
    if floppies > 0 {
        counts.insert("floppy", floppies);
    }
    Outcome::of(
        counts.into_iter().map(|(name, count)| Object::new(name, count.to_string(), "none, in a server")).collect(),
    )
}
