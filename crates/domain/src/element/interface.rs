//! `<interface>`.

use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use super::hostdev;
use crate::document::DomainXml;
use crate::error::DomainError;
use crate::tree;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// MAC address; `None` where libvirt still has to make one up.
    pub mac: Option<String>,
    /// `bridge`, `network`, `direct`, `user`, `hostdev`, ….
    pub kind: String,
    /// Bridge, network or host interface it hangs on, or the PCI function handed through.
    pub source: Option<String>,
    /// `virtio`, `e1000e`, ….
    pub model: Option<String>,
    /// `vhost` or `qemu`, where it is written.
    pub driver_name: Option<String>,
    /// Queues, where they are written.
    pub queues: Option<u32>,
    /// Tap or macvtap name on the host, where it is written.
    pub target: Option<String>,
    /// Receive ring, in descriptors, where it is written.
    #[serde(default)]
    pub receive_ring: Option<u32>,
    /// Transmit ring, in descriptors, where it is written.
    #[serde(default)]
    pub transmit_ring: Option<u32>,
    /// `on` or `off`: whether notifications go through the kernel.
    #[serde(default)]
    pub ioeventfd: Option<String>,
    /// `on` or `off`: whether needless notifications are left out.
    #[serde(default)]
    pub event_idx: Option<String>,
    /// Offloads switched off, as `host/tso4`.
    #[serde(default)]
    pub offloads_off: Vec<String>,
    /// `server` or `client`: QEMU's side of a vhost-user socket.
    #[serde(default)]
    pub source_mode: Option<String>,
    /// Whether it is one half of a failover pair.
    #[serde(default)]
    pub teaming: bool,
    /// Largest packet, where it is written.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// `on` or `off`: packed virtqueues.
    #[serde(default)]
    pub packed: Option<String>,
    /// `on` or `off`: whether each queue's doorbell has a page of its own.
    #[serde(default)]
    pub page_per_vq: Option<String>,
    /// `yes` or `no` of `<source><reconnect enabled>`: whether QEMU, as a socket's client, calls again.
    #[serde(default)]
    pub reconnect: Option<String>,
    /// `passt` where that program is behind it.
    #[serde(default)]
    pub backend: Option<String>,
    /// Rates in `<bandwidth>` that are not 0, as (`inbound` or `outbound`, KiB/s).
    #[serde(default)]
    pub bandwidth: Vec<(String, u64)>,
}

impl InterfaceFacts {
    /// Whether the guest drives it by virtio and QEMU, or vhost-net, serves it over a tap or macvtap: only then do backend,
    /// queues and offloads apply.
    pub fn is_virtio_tap(&self) -> bool {
        matches!(self.kind.as_str(), "bridge" | "network" | "direct" | "ethernet")
            && self.model.as_deref().is_some_and(|model| model.starts_with("virtio"))
    }

    /// Whether that is its address.
    pub fn has_mac(&self, mac: &str) -> bool {
        self.mac.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(mac))
    }
}

pub(crate) fn read(document: &Document<'_>) -> Result<Vec<InterfaceFacts>, DomainError> {
    tree::find_all(document, &["devices", "interface"]).into_iter().map(read_one).collect()
}

fn read_one(node: Node<'_, '_>) -> Result<InterfaceFacts, DomainError> {
    let of = |child: &str, name: &str| tree::child(node, child).and_then(|child| tree::attribute(child, name));
    let kind = tree::attribute(node, "type").unwrap_or_default();
    let source = match kind.as_str() {
        "hostdev" => hostdev::source_address(node)?.map(|address| address.to_string()),
        _ => ["bridge", "network", "dev", "path"].into_iter().find_map(|name| of("source", name)),
    };
    let driver = tree::child(node, "driver");
    let number = |name: &str| driver.map_or(Ok(None), |driver| tree::number(driver, name));
    Ok(InterfaceFacts {
        mac: of("mac", "address"),
        source,
        model: of("model", "type"),
        driver_name: of("driver", "name"),
        queues: number("queues")?,
        target: of("target", "dev"),
        receive_ring: number("rx_queue_size")?,
        transmit_ring: number("tx_queue_size")?,
        ioeventfd: of("driver", "ioeventfd"),
        event_idx: of("driver", "event_idx"),
        offloads_off: driver.map(offloads_off).unwrap_or_default(),
        source_mode: of("source", "mode"),
        teaming: tree::child(node, "teaming").is_some(),
        mtu: tree::child(node, "mtu").map_or(Ok(None), |mtu| tree::number(mtu, "size"))?,
        packed: of("driver", "packed"),
        page_per_vq: of("driver", "page_per_vq"),
        reconnect: tree::child(node, "source")
            .and_then(|source| tree::child(source, "reconnect"))
            .and_then(|reconnect| tree::attribute(reconnect, "enabled")),
        backend: of("backend", "type"),
        bandwidth: bandwidth(node)?,
        kind,
    })
}

/// Average rates: peak and burst are nothing without one, and `floor` is a promise, not a limit.
fn bandwidth(node: Node<'_, '_>) -> Result<Vec<(String, u64)>, DomainError> {
    let mut rates = Vec::new();
    for direction in ["inbound", "outbound"] {
        let rate = tree::child(node, "bandwidth").and_then(|bandwidth| tree::child(bandwidth, direction));
        let average = rate.map_or(Ok(None), |rate| tree::number::<u64>(rate, "average"))?;
        rates.extend(average.filter(|rate| *rate > 0).map(|rate| (direction.to_owned(), rate)));
    }
    Ok(rates)
}

fn offloads_off(driver: Node<'_, '_>) -> Vec<String> {
    let sides = ["host", "guest"].into_iter().filter_map(|side| Some((side, tree::child(driver, side)?)));
    sides
        .flat_map(|(side, node)| {
            let off = node.attributes().filter(|attribute| attribute.value() == "off");
            off.map(move |attribute| format!("{side}/{}", attribute.name()))
        })
        .collect()
}

impl DomainXml {
    /// Removes the MAC addresses: libvirt makes up new ones, different at every definition.
    pub fn remove_mac_addresses(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            tree::find_all(document, &["devices", "interface", "mac"]).into_iter().for_each(|node| edits.remove(node));
            Ok(())
        })
    }

    /// Gives every interface that has a MAC address another one, the same for the same seed and place: QEMU's prefix
    /// 52:54:00 and three bytes made from both.
    pub fn regenerate_mac_addresses(&mut self, seed: &str) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for (index, mac) in tree::find_all(document, &["devices", "interface", "mac"]).into_iter().enumerate() {
                let hash = fnv1a(format!("{seed}/{index}").as_bytes()).to_be_bytes();
                edits.set_attribute(
                    mac,
                    "address",
                    &format!("52:54:00:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2]),
                );
            }
            Ok(())
        })
    }
}

/// FNV-1a, 64 bits: spreads short texts well and needs no dependency. Not a secret.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
