//! What names a network function on the wire: its hardware address and its VLAN.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// Hardware address of one interface: six bytes that are no group's (IEEE 802, the I/G bit) and not all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

impl FromStr for MacAddress {
    type Err = ParseError;

    /// Accepts `52:54:00:12:34:56`, in any case.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error =
            || ParseError::new("a MAC address", text, "write six bytes in hex, of one interface: 52:54:00:12:34:56");
        let mut bytes = [0; 6];
        let mut parts = text.trim().split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(error)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(error());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() || bytes[0] & 1 == 1 || bytes == [0; 6] {
            return Err(error());
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for MacAddress {
    /// In lower case, as libvirt prints it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl TryFrom<String> for MacAddress {
    type Error = ParseError;
    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

/// A VLAN, 1 to 4094 (IEEE 802.1Q keeps 0 and 4095 for itself).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct VlanId(u16);

impl TryFrom<u16> for VlanId {
    type Error = ParseError;
    fn try_from(number: u16) -> Result<Self, ParseError> {
        let error = || ParseError::new("a VLAN", &number.to_string(), "take a number from 1 to 4094");
        (1..=4094).contains(&number).then_some(Self(number)).ok_or_else(error)
    }
}

impl From<VlanId> for u16 {
    fn from(vlan: VlanId) -> Self {
        vlan.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_interface_read_and_print() {
        assert_eq!("52:54:00:AB:cd:0f".parse::<MacAddress>().unwrap().to_string(), "52:54:00:ab:cd:0f");
        let junk = [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:0f:00",
            "52:54:0:ab:cd:0f",
            "+2:54:00:ab:cd:0f",
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ];
        for text in junk {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn vlans_that_are_reserved_are_none() {
        assert!([1, 100, 4094].into_iter().all(|number| VlanId::try_from(number).is_ok()));
        assert!([0, 4095, u16::MAX].into_iter().all(|number| VlanId::try_from(number).is_err()));
    }
}
