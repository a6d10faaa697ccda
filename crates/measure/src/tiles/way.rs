//! How the guests of tiles reach the port, and how what asks them reaches it beside them.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

use nearmetal_host::HostFs;
use nearmetal_results::{ArmName, Link, NetPath, PortRole, Role};
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::net::interface::{exists, ip};
use crate::net::port::{BRIDGE, Port};
use crate::net::space::{self, NAMESPACE};
use crate::program;

/// A way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TileWay {
    /// Each guest has a virtio card with vhost on one bridge that the port is in.
    Bridge,
    /// Each guest has a virtual function of the port.
    Vf,
}

impl TileWay {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Bridge, Self::Vf];

    /// As documents and commands write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Vf => "vf",
        }
    }

    /// The arm of it.
    pub fn arm(self) -> ArmName {
        match self {
            Self::Bridge => ArmName::new(self.word(), "virtio on a bridge", Role::AsFound),
            Self::Vf => ArmName::new(self.word(), "virtual functions", Role::Planned),
        }
    }

    /// One sentence on it.
    pub(super) fn description(self, port: &str) -> String {
        match self {
            Self::Bridge => format!("each guest has a virtio card with vhost on one bridge, which {port} is in"),
            Self::Vf => format!("each guest has a virtual function of {port}"),
        }
    }

    /// What a guest's card is.
    pub(super) fn card(self) -> NetPath {
        match self {
            Self::Bridge => NetPath::libvirt_default(),
            Self::Vf => NetPath::hardware(Link::VfHostdev),
        }
    }

    /// What the port must be. Its functions have a link when the port has, and the bridge would only get their broadcasts.
    pub(super) fn role(self) -> PortRole {
        match self {
            Self::Bridge => Link::Bridge.role(),
            Self::Vf => Link::Bare.role(),
        }
    }
}

impl fmt::Display for TileWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for TileWay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Self::ALL.map(Self::word).join(", ");
        let found = Self::ALL.into_iter().find(|way| way.word() == text);
        found.ok_or_else(|| format!("`{text}` is not a way to the guests: {words}"))
    }
}

/// The interface in the drivers' namespace. The names begin as those of taps do, so that what a killed measurement left is
/// found by them.
const INSIDE: &str = "nmtap-inside";
/// The other end of a pair, on the bridge.
const ON_BRIDGE: &str = "nmtap-drivers";

/// A namespace from which programs of this host ask guests of the port: over a pair of virtual interfaces on the bridge, or as
/// one more address of the port, which the card's own switch joins with its functions. The port itself stays where it is:
/// libvirt sets the addresses of functions through it.
pub(super) struct Drivers {
    /// Address there, with the prefix.
    pub address: String,
    /// Hardware address there.
    pub mac: String,
    /// Whether it is there in full.
    pub is_entered: bool,
}

impl Drivers {
    /// Makes it; the port is ready for this way. What an earlier try left half made is removed first.
    pub(super) fn enter(&mut self, way: TileWay, port: &Port, fs: &HostFs) -> Result<(), MeasureError> {
        self.leave(fs)?;
        match way {
            TileWay::Bridge => {
                ip(&["link", "add", ON_BRIDGE, "type", "veth", "peer", "name", INSIDE])?;
                ip(&["link", "set", "dev", INSIDE, "address", &self.mac])?;
                ip(&["link", "set", "dev", ON_BRIDGE, "master", BRIDGE])?;
                ip(&["link", "set", "dev", ON_BRIDGE, "up"])?;
                port.hold(ON_BRIDGE, &self.mac)?;
            }
            TileWay::Vf => {
                ip(&[
                    "link", "add", "link", &port.name, "name", INSIDE, "address", &self.mac, "type", "macvlan", "mode",
                    "bridge",
                ])?;
            }
        }
        space::enter(NAMESPACE, INSIDE, &self.address, fs)?;
        self.is_entered = true;
        Ok(())
    }

    /// Removes what of it is there.
    pub(super) fn leave(&mut self, fs: &HostFs) -> Result<(), MeasureError> {
        self.is_entered = false;
        space::remove(NAMESPACE, INSIDE, fs)?;
        // The first is on the host where it was not moved into its namespace. The other end of a pair is gone with it, a
        // moment later at most.
        for name in [INSIDE, ON_BRIDGE].into_iter().filter(|name| exists(fs, name)) {
            let _ = ip(&["link", "delete", name]);
        }
        Ok(())
    }

    /// The words before a command that is to run there.
    pub(super) fn words() -> [&'static str; 4] {
        ["ip", "netns", "exec", NAMESPACE]
    }

    /// Runs a program there to its end.
    pub(super) fn run(words: &[&str]) -> Result<String, MeasureError> {
        let [first, before @ ..] = Self::words();
        program::run(Command::new(first).args(before).args(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_has_one_word_and_its_names_fit_the_kernel() {
        for way in TileWay::ALL {
            assert_eq!(way.word().parse(), Ok(way));
            assert_eq!(serde_json::to_string(&way).unwrap(), format!("\"{way}\""));
        }
        assert!("macvtap".parse::<TileWay>().unwrap_err().contains("bridge, vf"));
        // IFNAMSIZ is 16, the end included.
        assert!(INSIDE.len() < 16 && ON_BRIDGE.len() < 16);
        assert!([INSIDE, ON_BRIDGE].iter().all(|name| name.starts_with(crate::net::port::TAP)));
    }
}
