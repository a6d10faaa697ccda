//! virtio NICs use vhost (kernel or user).

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name, of_interface};

pub(crate) const RULE: Rule = Rule {
    id: "net-driver-vhost",
    layer: Layer::DomainNet,
    title: "virtio NICs use vhost (kernel or user)",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <interface><driver name='vhost'|'qemu'>", "vhost-<pid> threads"],
    good: "vhost (default when /dev/vhost-net exists); never name='qemu' for performance",
    applies: "tap interfaces",
    not_applies: "slirp/passt, vhost-user",
    effect: "unquantified in the sources read",
    evidence: Evidence::B,
    sources: &["lv-dom", "talk-kvm-tuning"],
    fix: Fix { live: None, persistent: "<driver name='vhost'/>", needs: &[Need::VmRestart], undo: "none; undo qemu" },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let user = subject.tap_interfaces().filter(|interface| interface.driver_name.as_deref() == Some("qemu"));
    Outcome::of(
        user.map(|interface| {
            let object = Object::new(interface_name(interface), "driver qemu: packets go through QEMU", "vhost");
            object.cured_by_all(of_interface(interface, "driver").map(|at| Cure::attribute(at, "name", "vhost")))
        })
        .collect(),
    )
}
