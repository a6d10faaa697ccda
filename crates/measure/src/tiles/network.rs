//! The addresses of guests and of what asks them.

use std::net::{IpAddr, Ipv4Addr};

use nearmetal_host::Host;

/// A /24 of 198.18.0.0/15, which is kept for benchmarks (RFC 2544).
///
/// Which one follows from the port's hardware address: two hosts on one segment, whose ports pass on each other's broadcasts,
/// would else answer for each other's guests. The same port has the same network after an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network(u16);

impl Network {
    /// That of this port; the first one if its address is unknown.
    pub(super) fn of(port: &str, host: &Host) -> Self {
        Self::of_mac(host.network_interfaces.iter().find(|one| one.name == port).and_then(|port| port.mac.as_deref()))
    }

    fn of_mac(mac: Option<&str>) -> Self {
        let bytes = mac.unwrap_or_default().split(':').map(|byte| u16::from_str_radix(byte, 16).unwrap_or(0));
        // Cards are numbered from below; the makers' part of an address tells few hosts of one site apart.
        Self(bytes.fold(0_u16, |all, byte| (all << 8) | byte) % 512)
    }

    /// The guest with this number, from 0; fewer than 253 have one.
    pub(super) fn guest(self, number: usize) -> IpAddr {
        self.host(number + 2)
    }

    /// What asks the guests, with the length of the prefix: `198.18.7.1/24`.
    pub(super) fn driver(self) -> String {
        format!("{}/{}", self.host(1), Self::PREFIX)
    }

    /// Bits of an address that all of them share.
    pub(super) const PREFIX: u8 = 24;

    fn host(self, last: usize) -> IpAddr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (u32::from(self.0) << 8) + last as u32).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::MOST_GUESTS_OF_TILES;

    #[test]
    fn a_ports_own_address_chooses_the_network_and_all_guests_fit_into_it() {
        let low = Network::of_mac(Some("52:54:00:00:00:07"));
        assert_eq!((low.driver(), low.guest(0).to_string()), ("198.18.7.1/24".into(), "198.18.7.2".into()));
        let high = Network::of_mac(Some("52:54:00:00:ab:ff"));
        assert_eq!(high.driver(), "198.19.255.1/24");
        assert_eq!(high.guest(MOST_GUESTS_OF_TILES - 1).to_string(), "198.19.255.97");
        assert_eq!(Network::of_mac(None).driver(), "198.18.0.1/24");
    }
}
