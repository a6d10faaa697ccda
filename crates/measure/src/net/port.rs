//! The port that is measured: whether it may be, what it is made into for each arm, and how it was before.

use std::net::IpAddr;
use std::process::Command;

use nearmetal_host::{Host, HostFs};
use nearmetal_results::PortRole;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::interface::{exists, has_link, ip, ip_json, master, until};
use super::space::{self, NAMESPACE};
use crate::error::MeasureError;
use crate::leftovers::Leftovers;
use crate::program::run;

/// Names of what is made: none is anybody else's, else the measurement is refused.
pub(crate) const BRIDGE: &str = "nmbr0";
/// Taps and macvtaps of the guests begin with it.
pub(crate) const TAP: &str = "nmtap";

/// The network before it was changed; kept in the record of leftovers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetBefore {
    /// The port.
    pub port: String,
    /// Whether it was up.
    pub was_up: bool,
    /// Hardware addresses its filters were told.
    pub told: Vec<String>,
    /// Interfaces of its virtual functions.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Those of them that were down; a macvtap takes its own up and leaves it so.
    #[serde(default)]
    pub down: Vec<String>,
    /// Addresses the kernel had given the port itself, with their prefix. A macvtap in passthrough mode lends it the guest's
    /// hardware address, and the kernel makes it another of these. `None`: not written down.
    #[serde(default)]
    pub link_local: Option<Vec<String>>,
}

impl NetBefore {
    /// Removes what was made and gives the port the state it had. Safe to repeat.
    pub(crate) fn restore(&self, fs: &HostFs) -> Result<(), MeasureError> {
        let names = fs.list("/sys/class/net").unwrap_or_default();
        for tap in names.iter().filter(|name| name.starts_with(TAP)) {
            // Most are gone with their guest, some between the listing and here.
            let _ = ip(&["link", "delete", tap]);
        }
        for space in space::there(fs) {
            space::leave(&space, &self.port, fs)?;
        }
        // A namespace or a guest that has just ended gives its function back a moment later. One that is somebody's by now,
        // or no longer there, is not this record's.
        until(|| self.functions.iter().all(|function| exists(fs, function)));
        if exists(fs, BRIDGE) {
            if exists(fs, &self.port) && master(fs, &self.port).as_deref() == Some(BRIDGE) {
                ip(&["link", "set", "dev", &self.port, "nomaster"])?;
            }
            ip(&["link", "delete", BRIDGE])?;
        }
        if exists(fs, &self.port) {
            for mac in &self.told {
                // Told only for some of the arms; what was not told is not there to be forgotten.
                let _ = run(Command::new("bridge").args(["fdb", "delete", mac, "dev", &self.port, "self"]));
            }
            for function in self.down.iter().filter(|function| exists(fs, function)) {
                ip(&["link", "set", "dev", function, "down"])?;
            }
            ip(&["link", "set", "dev", &self.port, if self.was_up { "up" } else { "down" }])?;
            if let Some(before) = &self.link_local {
                let now = link_local(&ip_json(&["address", "show", "dev", &self.port])?);
                for foreign in now.iter().filter(|address| !before.contains(address)) {
                    ip(&["address", "delete", foreign, "dev", &self.port])?;
                }
                // The kernel may be making it at this moment, too.
                for own in before.iter().filter(|address| !now.contains(address)) {
                    ip(&["address", "replace", own, "dev", &self.port, "scope", "link"])?;
                }
            }
        }
        Ok(())
    }
}

/// The port, and what it is at the moment.
#[derive(Debug)]
pub(crate) struct Port {
    pub name: String,
    /// Whether it has virtual functions: then the card's own switch delivers by address.
    has_functions: bool,
    role: Option<PortRole>,
    told: Vec<String>,
}

impl Port {
    /// Checks that the port is nobody's, writes down how it is, and takes it up.
    ///
    /// # Errors
    /// No such port, or the machine uses it; then nothing was changed.
    pub(crate) fn take(
        name: &str,
        macs: Vec<String>,
        host: &Host,
        fs: &HostFs,
        leftovers: &mut Leftovers,
    ) -> Result<Self, MeasureError> {
        if let Some(why) = why_not(name, host) {
            return Err(MeasureError::Unfit(why));
        }
        let rows = ip_json(&["address", "show", "dev", name])?;
        if let Some(address) = address_in(&rows) {
            return Err(MeasureError::Unfit(format!(
                "`{name}` has the address {address}, so somebody may reach this machine through it: name a port that carries nothing"
            )));
        }
        let bridge = exists(fs, BRIDGE).then(|| BRIDGE.to_owned());
        if let Some(taken) = bridge.into_iter().chain(space::there(fs)).next() {
            return Err(MeasureError::Unfit(format!("there is a `{taken}` already, which this would make: remove it")));
        }
        let was_up = flags_up(&rows);
        let device = host.network_interfaces.iter().find(|interface| interface.name == name);
        let function = device.and_then(|device| device.pci);
        let sriov = host.pci_devices.iter().find(|device| Some(device.address) == function);
        let has_functions = sriov.and_then(|device| device.sriov.as_ref()).is_some_and(|sriov| sriov.vfs > 0);
        let addresses = sriov.and_then(|device| device.sriov.as_ref()).map(|sriov| sriov.functions.as_slice());
        let of_a_function = |address| addresses.unwrap_or_default().contains(&address);
        let on_functions = host.network_interfaces.iter().filter(|found| found.pci.is_some_and(of_a_function));
        let (mut functions, mut down) = (Vec::new(), Vec::new());
        for interface in on_functions {
            functions.push(interface.name.clone());
            if !flags_up(&ip_json(&["link", "show", "dev", &interface.name])?) {
                down.push(interface.name.clone());
            }
        }
        let link_local = Some(link_local(&rows));
        leftovers.network =
            Some(NetBefore { port: name.to_owned(), was_up, told: macs.clone(), functions, down, link_local });
        leftovers.save()?;
        ip(&["link", "set", "dev", name, "up"])?;
        Ok(Self { name: name.to_owned(), has_functions, role: None, told: macs })
    }

    /// Makes it what arms of `role` need. No guest may be there.
    pub(crate) fn make(&mut self, role: PortRole, fs: &HostFs) -> Result<(), MeasureError> {
        if self.role == Some(role) {
            return Ok(());
        }
        // Also one that was left when making it failed half way: `take` has refused any other.
        if exists(fs, BRIDGE) {
            self.tell("delete");
            ip(&["link", "delete", BRIDGE])?;
        }
        self.role = None;
        if role == PortRole::Bridged {
            // Without spanning tree and its delay, so that it forwards from the beginning.
            ip(&["link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0"])?;
            ip(&["link", "set", "dev", &self.name, "master", BRIDGE])?;
            ip(&["link", "set", "dev", BRIDGE, "up"])?;
            self.tell("add");
        }
        ip(&["link", "set", "dev", &self.name, "up"])?;
        if !until(|| has_link(fs, &self.name)) {
            return Err(MeasureError::Unfit(format!("`{}` has no link: is its cable in, and the peer up?", self.name)));
        }
        self.role = Some(role);
        Ok(())
    }

    /// What may be behind a bridge without an answer; nothing where that is not known.
    pub(crate) fn why_a_bridge_fails(&self, bridged: bool) -> String {
        if !bridged || !self.has_functions {
            return String::new();
        }
        format!(
            "; `{0}` has virtual functions, and not every card passes the frames of a bridge then (QEMU's igb does not): take \
             them away with `nearmetal device vfs {0} 0`, and measure the ways over a bridge without them",
            self.name
        )
    }

    /// A card with virtual functions has a switch of its own, which delivers by the addresses it was told and not by
    /// what it has seen: the bridge's guests are told to it, as `bridge(8)` has it under `fdb add … self`.
    fn tell(&self, what: &str) {
        if !self.has_functions {
            return;
        }
        for mac in &self.told {
            // A card that takes none has its port listen to all instead.
            let _ = run(Command::new("bridge").args(["fdb", what, mac, "dev", &self.name, "self"]));
        }
    }

    /// Puts a guest's tap into the bridge, which may be another one than it was in before.
    pub(crate) fn attach(&self, tap: &str, mac: &str) -> Result<(), MeasureError> {
        ip(&["link", "set", "dev", tap, "master", BRIDGE])?;
        self.settle(tap, mac)
    }

    /// Tells the bridge where a guest is, for good. A card with virtual functions may give its port back what the port has
    /// sent to all (QEMU's igb does), and the bridge would learn from that echo that its guest is out there.
    pub(crate) fn settle(&self, tap: &str, mac: &str) -> Result<(), MeasureError> {
        run(Command::new("bridge").args(["fdb", "replace", mac, "dev", tap, "master", "static"])).map(drop)
    }

    /// The same so that no echo moves it: an entry that is only static follows one (`br_fdb_update`), a sticky one stays (Linux
    /// 4.20).
    pub(crate) fn hold(&self, tap: &str, mac: &str) -> Result<(), MeasureError> {
        run(Command::new("bridge").args(["fdb", "replace", mac, "dev", tap, "master", "static", "sticky"])).map(drop)
    }

    /// Moves an interface into the namespace and gives it the address. Everything else of the port is left.
    pub(crate) fn enter(&mut self, interface: &str, address: &str, fs: &HostFs) -> Result<(), MeasureError> {
        self.make(PortRole::Bare, fs)?;
        space::enter(NAMESPACE, interface, address, fs)
    }

    /// Ends the namespace.
    pub(crate) fn leave(&mut self, interface: &str, fs: &HostFs) -> Result<(), MeasureError> {
        self.role = None;
        space::leave(NAMESPACE, interface, fs)?;
        ip(&["link", "set", "dev", &self.name, "up"]).map(drop)
    }
}

/// Why a port cannot be measured; `None` if it can.
pub(crate) fn why_not(name: &str, host: &Host) -> Option<String> {
    let Some(interface) = host.network_interfaces.iter().find(|interface| interface.name == name) else {
        let known: Vec<&str> = host
            .network_interfaces
            .iter()
            .filter(|interface| interface.pci.is_some())
            .map(|interface| interface.name.as_str())
            .collect();
        return Some(format!("there is no interface `{name}`; on cards there are: {}", known.join(", ")));
    };
    if interface.pci.is_none() {
        return Some(format!("`{name}` is on no card: name the port of a card, such as enp57s0"));
    }
    if interface.default_route == Some(true) {
        return Some(format!("the default route leads through `{name}`: measuring it would cut this machine off"));
    }
    if let Some(master) = &interface.master {
        return Some(format!("`{name}` belongs to `{master}`: name a port that carries nothing"));
    }
    None
}

/// The first address that is more than one the kernel gave by itself.
fn address_in(rows: &[Value]) -> Option<String> {
    let addresses = rows.iter().filter_map(|row| row.get("addr_info")?.as_array()).flatten();
    let mut own = addresses.filter(|address| address.get("scope").and_then(Value::as_str) != Some("link"));
    own.next().and_then(|address| address.get("local")?.as_str().map(str::to_owned))
}

/// The IPv6 addresses that reach no further than the link, with their prefix.
fn link_local(rows: &[Value]) -> Vec<String> {
    let addresses = rows.iter().filter_map(|row| row.get("addr_info")?.as_array()).flatten();
    let text = |address: &Value, key: &str| address.get(key).and_then(Value::as_str).map(str::to_owned);
    let own = addresses.filter(|address| {
        text(address, "scope").as_deref() == Some("link") && text(address, "family").as_deref() == Some("inet6")
    });
    own.filter_map(|address| Some(format!("{}/{}", text(address, "local")?, address.get("prefixlen")?.as_u64()?)))
        .collect()
}

fn flags_up(rows: &[Value]) -> bool {
    let flags = rows.iter().filter_map(|row| row.get("flags")?.as_array()).flatten();
    flags.filter_map(Value::as_str).any(|flag| flag == "UP")
}

/// `192.0.2.10/24`: an address and the length of its prefix, in whose network the peer is.
///
/// # Errors
/// Not of this form, or the peer is in another network.
pub fn check_address(text: &str, peer: IpAddr) -> Result<(), String> {
    let parts = text
        .split_once('/')
        .and_then(|(address, length)| Some((address.parse::<IpAddr>().ok()?, length.parse::<u32>().ok()?)));
    let Some((address, length)) = parts else {
        return Err(format!("`{text}` is not an address: write it with its prefix, such as 192.0.2.10/24"));
    };
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((own, width), (other, other_width)) = (bits(address), bits(peer));
    if width != other_width || length == 0 || length > width {
        return Err(format!("`{text}` and the peer {peer} are not of one kind, or the prefix is not 1 to {width}"));
    }
    if address == peer {
        return Err(format!("{peer} is the peer's own address"));
    }
    if (own ^ other) >> (128 - length) != 0 {
        return Err(format!("the peer {peer} is not in the network of {text}: nothing here sets routes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::program::scripted;
    use nearmetal_host::synthetic::Synthetic;
    use nearmetal_host::{Entry, MemoryTree};

    #[test]
    fn the_arms_address_must_reach_the_peer_without_a_route() {
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(check_address("192.0.2.10/24", peer), Ok(()));
        for (text, words) in [
            ("192.0.2.10", "with its prefix"),
            ("192.0.3.10/24", "not in the network"),
            ("192.0.2.1/24", "own address"),
            ("2001:db8::1/64", "not of one kind"),
            ("192.0.2.10/33", "1 to 32"),
        ] {
            assert!(check_address(text, peer).unwrap_err().contains(words), "{text}");
        }
        assert_eq!(check_address("2001:db8::9/64", "2001:db8::1".parse().unwrap()), Ok(()));
    }

    #[test]
    fn a_port_that_somebody_uses_is_refused_by_name() {
        let mut host = Synthetic::new().packages(2).network(1, 7, 2).build();
        let card = host.network_interfaces.iter().position(|interface| interface.pci.is_some()).unwrap();
        let name = host.network_interfaces[card].name.clone();
        assert_eq!(why_not(&name, &host), None);
        assert!(why_not("eth77", &host).unwrap().contains(&name), "it names those there are");
        host.network_interfaces[card].default_route = Some(true);
        assert!(why_not(&name, &host).unwrap().contains("cut this machine off"));
        host.network_interfaces[card].default_route = None;
        host.network_interfaces[card].master = Some("br0".into());
        assert!(why_not(&name, &host).unwrap().contains("`br0`"));
    }

    #[test]
    fn a_bridge_that_was_left_half_made_is_deleted_before_the_next() {
        let mut tree = MemoryTree::new();
        for (path, text) in [("nmbr0/carrier", "0\n"), ("e1/carrier", "1\n")] {
            tree.put(&format!("/sys/class/net/{path}"), Entry::File(text.as_bytes().to_vec())).unwrap();
        }
        let ran: Rc<RefCell<Vec<String>>> = Rc::default();
        let seen = Rc::clone(&ran);
        scripted::play(move |words, _| {
            seen.borrow_mut().push(words.join(" "));
            Ok(String::new())
        });
        let mut port = Port { name: "e1".to_owned(), has_functions: false, role: None, told: vec![] };
        port.make(PortRole::Bridged, &HostFs::of_tree(tree, "port")).unwrap();
        let ran = ran.borrow();
        assert_eq!(ran[0], "ip link delete nmbr0");
        assert!(ran[1].starts_with("ip link add nmbr0 "), "{ran:?}");
    }

    #[test]
    fn addresses_and_flags_are_read_from_ip() {
        let rows: Vec<Value> = serde_json::from_str(
            r#"[{"ifname":"e","flags":["BROADCAST","UP"],"addr_info":[{"scope":"link","local":"fe80::1"},{"scope":"global","local":"10.0.0.1"}]}]"#,
        )
        .unwrap();
        assert_eq!(address_in(&rows).as_deref(), Some("10.0.0.1"));
        assert!(flags_up(&rows));
        let own = serde_json::json!({"addr_info": [
            {"scope": "link", "family": "inet6", "local": "fe80::1", "prefixlen": 64},
            {"scope": "link", "family": "inet", "local": "169.254.0.1", "prefixlen": 16}]});
        assert_eq!(link_local(&[own]), ["fe80::1/64"]);
        assert_eq!(address_in(&[serde_json::json!({"addr_info": [{"scope": "link", "local": "fe80::1"}]})]), None);
    }
}
