//! vDPA settings fit the hardware.

use nearmetal_domain::InterfaceFacts;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-vdpa-hardware",
    layer: Layer::DomainNet,
    title: "vDPA settings fit the hardware",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["domain <interface type='vdpa'><driver page_per_vq>"],
    good: "page_per_vq on where the NIC supports doorbell mapping; memory locked limits adequate",
    applies: "mlx5, vDPA NICs",
    not_applies: "-",
    effect: "libvirt doc: 'wire-speed data path'; unquantified",
    evidence: Evidence::B,
    sources: &["lv-vdpa", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "virsh edit",
        needs: &[Need::VmRestart],
        undo: "no live migration on older hardware; undo virtio",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let vdpa: Vec<&InterfaceFacts> = subject.facts.interfaces.iter().filter(|one| one.kind == "vdpa").collect();
    if vdpa.is_empty() {
        return Outcome::NotApplicable;
    }
    let object = |interface: &&InterfaceFacts| {
        let own_page = interface.page_per_vq.as_deref() == Some("on");
        (!own_page).then(|| {
            let found = "off: the card's doorbells cannot be mapped into the guest";
            let object = Object::new(format!("{} page_per_vq", interface_name(interface)), found, "on");
            match &interface.mac {
                Some(mac) => object.cured_by(Cure::attribute(
                    format!("devices/interface[mac/@address='{mac}']/driver"),
                    "page_per_vq",
                    "on",
                )),
                None => object,
            }
        })
    };
    Outcome::of(vdpa.iter().filter_map(object).collect())
}
