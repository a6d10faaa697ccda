//! mrg_rxbuf is off only for DPDK guests without jumbo frames.

use nearmetal_domain::{DefinitionEdit, InterfaceFacts};

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-mrgrxbuf-dpdk",
    layer: Layer::DomainNet,
    title: "mrg_rxbuf is off only for DPDK guests without jumbo frames",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <interface><driver><host mrg_rxbuf>, <mtu>"],
    good: "on by default; off for DPDK vhost-user guests at MTU 1500",
    applies: "vhost-user NFV",
    not_applies: "kernel guests and jumbo MTU",
    effect: "unquantified; OVS-DPDK doc says it can improve",
    evidence: Evidence::B,
    sources: &["ovs-dpdk", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "<driver><host mrg_rxbuf='off'/></driver>",
        needs: &[Need::VmRestart],
        undo: "breaks jumbo; undo on",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    const STANDARD_MTU: u32 = 1500;
    let object = |interface: &InterfaceFacts| {
        if !interface.offloads_off.iter().any(|name| name == "host/mrg_rxbuf") {
            return None;
        }
        let found = match (interface.kind.as_str(), interface.mtu) {
            ("vhostuser", Some(mtu)) if mtu > STANDARD_MTU => format!("off, with packets of up to {mtu} bytes"),
            ("vhostuser", _) => return None,
            _ => "off, which does not help a guest that uses its kernel's network stack".to_owned(),
        };
        let cure = interface.mac.as_ref().map(|mac| {
            let at = format!("devices/interface[mac/@address='{mac}']/driver/host");
            Cure::Definition(DefinitionEdit::RemoveAttribute { at, name: "mrg_rxbuf".to_owned() })
        });
        let object = Object::new(format!("{} mrg_rxbuf", interface_name(interface)), found, "on, the default");
        Some(match cure {
            Some(cure) => object.cured_by(cure),
            None => object,
        })
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
