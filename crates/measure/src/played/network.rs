//! The network of the machine: a port with two virtual functions, bridges, namespaces, taps, and a peer that answers.

use nearmetal_domain::{DomainFacts, DomainXml, InterfaceFacts};
use serde_json::{Value, json};

use super::world::World;

const CLASS: &str = "/sys/class/net";
/// Virtual functions of the port: address, interface, IOMMU group.
const FUNCTIONS: [(&str, &str, &str); 2] = [("0000:39:10.0", "v0", "40"), ("0000:39:10.2", "v1", "41")];

impl World {
    /// `ip …`.
    pub(super) fn ip(&self, words: &[&str]) -> Result<String, String> {
        let nothing = || Ok(String::new());
        match words {
            ["-json", "-details", what, "show", "dev", name] => {
                let state = self.state.lock().unwrap();
                let mut row = state.macvtaps.get(*name).cloned().unwrap_or_else(|| json!({}));
                row["ifname"] = json!(name);
                row["flags"] = if state.up.contains(*name) { json!(["UP"]) } else { json!([]) };
                if *what == "address" {
                    row["addr_info"] =
                        json!([{"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]);
                }
                Ok(Value::Array(vec![row]).to_string())
            }
            ["-netns", _, "link", "delete", name] => {
                self.state.lock().unwrap().moved.retain(|(own, _)| own != name);
                self.pair_of(name);
                nothing()
            }
            ["-netns", ..] | ["address", ..] | ["netns", "pids", _] => nothing(),
            ["link", "add", name, "type", "bridge", ..] => {
                self.appears(name, &format!("devices/virtual/net/{name}"));
                nothing()
            }
            ["link", "add", name, "type", "veth", "peer", "name", other] => {
                for end in [name, other] {
                    self.appears(end, &format!("devices/virtual/net/{end}"));
                }
                self.state.lock().unwrap().pairs.extend([(*name).to_owned(), (*other).to_owned()]);
                nothing()
            }
            ["link", "add", "link", _, "name", name, "address", _, "type", "macvlan", "mode", "bridge"] => {
                self.appears(name, &format!("devices/virtual/net/{name}"));
                nothing()
            }
            ["link", "delete", name] => match self.kernel.exists(&format!("{CLASS}/{name}")) {
                true => {
                    self.vanishes(name);
                    self.pair_of(name);
                    nothing()
                }
                false => Err(format!("Cannot find device \"{name}\"")),
            },
            ["link", "set", "dev", name, "netns", space] => {
                self.kernel.remove(&format!("{CLASS}/{name}"));
                self.state.lock().unwrap().moved.push(((*name).to_owned(), (*space).to_owned()));
                nothing()
            }
            ["link", "set", "dev", name, rest @ ..] => {
                if !self.kernel.exists(&format!("{CLASS}/{name}")) {
                    return Err(format!("Cannot find device \"{name}\""));
                }
                match rest {
                    ["up"] => drop(self.state.lock().unwrap().up.insert((*name).to_owned())),
                    ["down"] => drop(self.state.lock().unwrap().up.remove(*name)),
                    ["address", _] => {}
                    ["nomaster"] => self.kernel.remove(&format!("{CLASS}/{name}/master")),
                    ["master", bridge] => self.kernel.link(&format!("{CLASS}/{name}/master"), &format!("../{bridge}")),
                    other => panic!("ip link set knows no {other:?}"),
                }
                nothing()
            }
            ["netns", "add", space] => {
                self.kernel.put(&format!("/run/netns/{space}"), "");
                nothing()
            }
            ["netns", "delete", space] => {
                self.kernel.remove(&format!("/run/netns/{space}"));
                let (back, rest) = {
                    let mut state = self.state.lock().unwrap();
                    std::mem::take(&mut state.moved).into_iter().partition::<Vec<_>, _>(|(_, own)| own == space)
                };
                self.state.lock().unwrap().moved = rest;
                for (name, _) in &back {
                    // A virtual one ends with its namespace.
                    if name.starts_with("nmtap") {
                        self.pair_of(name);
                    } else {
                        self.comes_back(name);
                    }
                }
                nothing()
            }
            other => panic!("ip knows no {other:?}"),
        }
    }

    fn appears(&self, name: &str, place: &str) {
        self.kernel.put(&format!("/sys/{place}/carrier"), "1");
        self.kernel.link(&format!("{CLASS}/{name}"), &format!("../../{place}"));
    }

    /// The other end of a pair of interfaces goes with one of them.
    fn pair_of(&self, name: &str) {
        let ends = {
            let pairs = &mut self.state.lock().unwrap().pairs;
            if !pairs.contains(name) {
                return;
            }
            std::mem::take(pairs)
        };
        for end in ends.iter().filter(|end| *end != name) {
            self.state.lock().unwrap().moved.retain(|(own, _)| own != end);
            if self.kernel.exists(&format!("{CLASS}/{end}")) {
                self.vanishes(end);
            }
        }
    }

    fn vanishes(&self, name: &str) {
        self.kernel.remove(&format!("{CLASS}/{name}/master"));
        self.kernel.remove(&format!("{CLASS}/{name}"));
        let mut state = self.state.lock().unwrap();
        state.up.remove(name);
        state.macvtaps.remove(name);
        drop(state);
        // A bridge that is gone has nobody in it.
        for other in self.kernel.names(CLASS) {
            if self.kernel.leads_to(&format!("{CLASS}/{other}/master"), name) {
                self.kernel.remove(&format!("{CLASS}/{other}/master"));
            }
        }
    }

    /// An interface of a card: it is down, as any that is new.
    fn comes_back(&self, name: &str) {
        let function = FUNCTIONS.iter().find(|(_, own, _)| *own == name).map_or("0000:39:00.0", |(own, ..)| own);
        self.state.lock().unwrap().up.remove(name);
        self.appears(name, &format!("devices/pci0000:38/{function}/net/{name}"));
    }

    /// What libvirt makes for the cards of a guest that starts.
    pub(super) fn join(&self, facts: &DomainFacts, pid: usize) {
        for (number, card) in facts.interfaces.iter().enumerate() {
            let source = card.source.clone().unwrap_or_default();
            if let Some((function, name, group)) = given(card) {
                self.kernel
                    .link(&format!("/sys/bus/pci/devices/{function}/driver"), "../../../bus/pci/drivers/vfio-pci");
                self.kernel.remove(&format!("{CLASS}/{name}"));
                self.kernel.link(&format!("/proc/{pid}/fd/{}", 60 + number), &format!("/dev/vfio/{group}"));
                self.kernel.put(&format!("/proc/{pid}/fdinfo/{}", 60 + number), "pos:\t0\nflags:\t02");
                continue;
            }
            let Some(tap) = &card.target else { continue };
            self.appears(tap, &format!("devices/virtual/net/{tap}"));
            if card.kind == "bridge" {
                if self.state.lock().unwrap().stray_tap.as_ref() != Some(tap) {
                    self.kernel.link(&format!("{CLASS}/{tap}/master"), &format!("../{source}"));
                }
            } else {
                let mode = card.source_mode.clone().unwrap_or_default().replace("passthrough", "passthru");
                let row = json!({"link": source, "linkinfo": {"info_kind": "macvtap", "info_data": {"mode": mode}}});
                let mut state = self.state.lock().unwrap();
                state.macvtaps.insert(tap.clone(), row);
                state.up.insert(source);
            }
        }
    }

    /// What becomes of them when it ends.
    pub(super) fn part(&self, facts: &DomainFacts) {
        for card in &facts.interfaces {
            if let Some((function, name, _)) = given(card) {
                self.kernel.link(&format!("/sys/bus/pci/devices/{function}/driver"), "../../../bus/pci/drivers/igbvf");
                self.comes_back(name);
            } else if let Some(tap) = &card.target {
                self.vanishes(tap);
            }
        }
    }

    fn facts(&self, guest: &str) -> DomainFacts {
        let xml = self.state.lock().unwrap().domains.get(guest).map(|(xml, _)| xml.clone()).unwrap_or_default();
        DomainXml::parse(&xml).and_then(|xml| xml.facts()).unwrap()
    }

    /// The cards of a guest as its kernel has them, in the form of the script that lists them.
    pub(super) fn cards_of(&self, guest: &str) -> String {
        let line = |(number, card): (usize, &InterfaceFacts)| {
            let mac = card.mac.clone().unwrap_or_default();
            if given(card).is_some() {
                return format!("eth{number}|{mac}|igbvf|1|||\n");
            }
            let (queues, offloads) = (card.queues.unwrap_or(1), card.offloads_off.is_empty());
            let is_on = |bit: usize| if bit == 22 { queues > 1 } else { offloads && (bit == 0 || bit == 11) };
            let features: String = (0..64).map(|bit| if is_on(bit) { '1' } else { '0' }).collect();
            let rps = if self.state.lock().unwrap().spread.contains(&mac) { "3" } else { "0" };
            format!("eth{number}|{mac}|virtio_net|{queues}|{features}||{rps}\n")
        };
        self.facts(guest).interfaces.iter().enumerate().map(line).collect()
    }

    /// A second of packets through the card of a guest that is up: who moves them spends time on it.
    pub(super) fn packets(&self, guest: &str) {
        let mac = self.state.lock().unwrap().cards.get(guest).cloned().unwrap_or_default();
        let Some(pid) = self.state.lock().unwrap().domains.get(guest).map(|(_, pid)| *pid) else { return };
        let facts = self.facts(guest);
        let card = facts.interfaces.iter().find(|card| card.mac.as_ref() == Some(&mac));
        let mover = if card.is_some_and(|card| card.driver_name.as_deref() == Some("qemu")) { pid } else { pid + 90 };
        let path = format!("/proc/{mover}/task/{mover}/schedstat");
        let time: u64 =
            self.kernel.text(&path).split(' ').next().and_then(|time| time.parse().ok()).unwrap_or_default();
        self.kernel.put(&path, &format!("{} 0 1", time + 300_000_000));
    }
}

/// The virtual function behind a card of a guest.
fn given(card: &InterfaceFacts) -> Option<(&'static str, &'static str, &'static str)> {
    let source = card.source.as_deref().filter(|_| card.kind == "hostdev")?;
    FUNCTIONS.into_iter().find(|(function, ..)| source.contains(function))
}

/// What netperf says.
pub(super) fn netperf(rate: u32, stream: bool) -> String {
    let unit = if stream { "10^6bits/s" } else { "Trans/s" };
    let latencies = "P50_LATENCY=380\nP90_LATENCY=500\nP99_LATENCY=900\n";
    format!("THROUGHPUT={rate}.00\nTHROUGHPUT_UNITS={unit}\nELAPSED_TIME=3.00\n{}", if stream { "" } else { latencies })
}
