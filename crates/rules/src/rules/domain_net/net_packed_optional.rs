//! Packed virtqueues only where both ends support them.

use nearmetal_domain::{DefinitionEdit, InterfaceFacts};

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-packed-optional",
    layer: Layer::DomainNet,
    title: "Packed virtqueues only where both ends support them",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["domain <interface><driver packed>"],
    good: "off default; on for vhost-user/DPDK >= 19.11 or hardware vDPA after measurement",
    applies: "NFV, hardware offload",
    not_applies: "older guests",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-packed", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "<driver packed='on'/>",
        needs: &[Need::VmRestart],
        undo: "features differ on migration; undo off",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let object = |interface: &InterfaceFacts| {
        let kernel = matches!(interface.kind.as_str(), "bridge" | "network" | "direct" | "ethernet");
        // vhost-net has no packed queues; with name='qemu' the queues are QEMU's, which has.
        let vhost = kernel && interface.driver_name.as_deref() != Some("qemu");
        if !vhost || interface.packed.as_deref() != Some("on") {
            return None;
        }
        let object = Object::new(
            format!("{} packed", interface_name(interface)),
            "on, which the kernel's vhost-net does not support",
            "absent, but for vhost-user and vDPA",
        );
        Some(match &interface.mac {
            Some(mac) => object.cured_by(Cure::Definition(DefinitionEdit::RemoveAttribute {
                at: format!("devices/interface[mac/@address='{mac}']/driver"),
                name: "packed".to_owned(),
            })),
            None => object,
        })
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
