//! NICs use virtio (or SR-IOV), not e1000/rtl8139.

use nearmetal_domain::InterfaceFacts;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-model-virtio",
    layer: Layer::DomainNet,
    title: "NICs use virtio (or SR-IOV), not e1000/rtl8139",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <interface><model type>"],
    good: "virtio (virtio-transitional/non-transitional) or hostdev/vdpa",
    applies: "every guest with drivers",
    not_applies: "appliances without virtio drivers (vmxnet3/e1000e only there)",
    effect: "Proxmox: virtio up to 3x e1000",
    evidence: Evidence::A,
    sources: &["pve-qm", "lv-dom", "talk-kvm-tuning", "paper-infn"],
    fix: Fix {
        live: Some("virsh detach-interface / attach-interface model virtio (hot-plug)"),
        persistent: "virsh edit",
        needs: &[Need::Live, Need::VmRestart],
        undo: "NIC name/MAC rules; undo old model",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let object = |interface: &InterfaceFacts| {
        if matches!(interface.kind.as_str(), "hostdev" | "vdpa" | "vhostuser") {
            return None;
        }
        let found = match interface.model.as_deref() {
            Some(model) if model.starts_with("virtio") => return None,
            Some(model) => model.to_owned(),
            // libvirt writes a model into what it stores, but for a network that deals out functions of a card.
            None if interface.kind == "network" => return None,
            None if subject.is_x86() => "no model: an emulated card on x86".to_owned(),
            None => return None,
        };
        Some(Object::new(interface_name(interface), found, "virtio"))
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
