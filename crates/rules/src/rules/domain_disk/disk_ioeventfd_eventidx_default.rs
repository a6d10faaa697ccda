//! ioeventfd and event_idx stay on.

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name, of_disk, of_interface};

pub(crate) const RULE: Rule = Rule {
    id: "disk-ioeventfd-eventidx-default",
    layer: Layer::DomainDisk,
    title: "ioeventfd and event_idx stay on",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <driver ioeventfd event_idx>"],
    good: "on/absent (libvirt: normally do not touch)",
    applies: "virtio devices",
    not_applies: "debugging",
    effect: "unquantified; without ioeventfd every kick is a synchronous userspace exit",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-help"],
    fix: Fix { live: None, persistent: "remove the attributes", needs: &[Need::VmRestart], undo: "none" },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let mut objects = Vec::new();
    let mut judge = |what: String, driver: Option<String>, ioeventfd: &Option<String>, event_idx: &Option<String>| {
        for (name, value) in [("ioeventfd", ioeventfd), ("event_idx", event_idx)] {
            if value.as_deref() == Some("off") {
                let object = Object::new(format!("{what} {name}"), "off", "not set (on is the default)");
                let cure = driver.clone().map(|driver| Cure::no_attribute(driver, name));
                objects.push(object.cured_by_all(cure));
            }
        }
    };
    for disk in &subject.facts.disks {
        let driver = of_disk(disk, "driver");
        judge(format!("disk {}", disk.target), driver, &disk.driver.ioeventfd, &disk.driver.event_idx);
    }
    for interface in &subject.facts.interfaces {
        let driver = of_interface(interface, "driver");
        judge(interface_name(interface), driver, &interface.ioeventfd, &interface.event_idx);
    }
    Outcome::of(objects)
}
