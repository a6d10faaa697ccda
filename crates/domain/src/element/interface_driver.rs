//! `<driver>` of a network interface: who moves its packets, queues, offloads.

use nearmetal_units::MacAddress;
use roxmltree::Node;

use crate::document::DomainXml;
use crate::error::{DomainError, short};
use crate::fragment::Fragment;
use crate::new_domain::NetworkBackend;
use crate::order;
use crate::tree;

/// Offloads of a virtio card by libvirt's names: for what the host receives, and for what the guest receives.
pub const OFFLOADS: [(&str, &[&str]); 2] = [
    ("host", &["csum", "gso", "tso4", "tso6", "ecn", "ufo", "mrg_rxbuf"]),
    ("guest", &["csum", "tso4", "tso6", "ecn", "ufo"]),
];

impl NetworkBackend {
    /// libvirt's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vhost => "vhost",
            Self::Qemu => "qemu",
        }
    }
}

/// Options to set on a virtio interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceOptions {
    /// Who moves its packets.
    pub backend: NetworkBackend,
    /// Pairs of queues, from 1; one is what libvirt gives where nothing is written, and nothing is written for it.
    pub queues: u32,
    /// Whether all of [`OFFLOADS`] are switched off; else they stay as they are.
    pub offloads_off: bool,
}

impl DomainXml {
    /// Sets driver options of the interface with that address; other options stay.
    ///
    /// # Errors
    /// Not exactly one such interface; one that is not virtio on a tap or macvtap; no queues.
    pub fn set_interface_driver(&mut self, mac: MacAddress, options: &InterfaceOptions) -> Result<bool, DomainError> {
        if options.queues == 0 {
            return Err(DomainError::argument("a number of queues", "0", "they count from 1"));
        }
        self.rewrite(|document, edits| {
            let all = tree::find_all(document, &["devices", "interface"]);
            let mut own = all.iter().copied().filter(|node| address(*node) == Some(mac));
            let interface = match (own.next(), own.next()) {
                (Some(interface), None) => interface,
                (Some(_), Some(_)) => {
                    let rule = "more than one interface has it";
                    return Err(DomainError::argument("the address of one interface", &mac.to_string(), rule));
                }
                (None, _) => {
                    let known: Vec<String> =
                        all.iter().filter_map(|node| address(*node)).map(|mac| mac.to_string()).collect();
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    return Err(DomainError::NoSuchInterface { mac: mac.to_string(), known: short(&known) });
                }
            };
            let model = tree::child(interface, "model").and_then(|model| model.attribute("type"));
            let carried = matches!(interface.attribute("type"), Some("bridge" | "network" | "direct" | "ethernet"));
            if !carried || !model.is_some_and(|model| model.starts_with("virtio")) {
                let rule = "backend and queues need a virtio model on a bridge, network or macvtap";
                return Err(DomainError::argument("an interface's driver", &mac.to_string(), rule));
            }
            let Some(driver) = tree::child(interface, "driver") else {
                let mut new = Fragment::new("driver").attribute("name", options.backend.as_str());
                if options.queues > 1 {
                    new = new.attribute("queues", options.queues);
                }
                let sides = OFFLOADS.iter().filter(|_| options.offloads_off).map(|(side, names)| off(side, names));
                let behind = order::before("interface", "driver").unwrap_or_default();
                edits.insert_behind(interface, behind, &new.children(sides));
                return Ok(());
            };
            edits.set_attribute(driver, "name", options.backend.as_str());
            match options.queues {
                1 => edits.remove_attribute(driver, "queues"),
                several => edits.set_attribute(driver, "queues", &several.to_string()),
            }
            let mut missing = Vec::new();
            for (side, names) in OFFLOADS.iter().filter(|_| options.offloads_off) {
                match tree::child(driver, side) {
                    Some(node) => names.iter().for_each(|name| edits.set_attribute(node, name, "off")),
                    None => missing.push(off(side, names)),
                }
            }
            edits.insert_all_behind(driver, &["host"], &missing);
            Ok(())
        })
    }
}

/// The address as written; `None` for none, and for one that is none.
fn address(interface: Node<'_, '_>) -> Option<MacAddress> {
    tree::child(interface, "mac")?.attribute("address")?.parse().ok()
}

fn off(side: &'static str, names: &'static [&'static str]) -> Fragment {
    names.iter().fold(Fragment::new(side), |side, name| side.attribute(*name, "off"))
}
