//! The address of a PCI function.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// `domain:bus:device.function`, as in /sys/bus/pci/devices. The domain may exceed 16 bits (VMD uses 10000 and up).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl FromStr for PciAddress {
    type Err = ParseError;

    /// Accepts `0000:3b:00.1` and, as lspci prints it, `3b:00.1`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error =
            || ParseError::new("a PCI address", text, "write domain:bus:device.function in hex, such as 0000:3b:00.1");
        let hex = |digits: &str, limit: u32| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|value| plain && *value <= limit).ok_or_else(error)
        };
        let (rest, function) = text.trim().rsplit_once('.').ok_or_else(error)?;
        let mut parts = rest.rsplit(':');
        let device = parts.next().ok_or_else(error)?;
        let bus = parts.next().ok_or_else(error)?;
        let domain = parts.next().unwrap_or("0");
        if parts.next().is_some() {
            return Err(error());
        }
        Ok(Self {
            domain: hex(domain, u32::MAX)?,
            bus: hex(bus, 0xff)? as u8,
            device: hex(device, 0x1f)? as u8,
            function: hex(function, 7)? as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl TryFrom<String> for PciAddress {
    type Error = ParseError;
    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_print() {
        for (text, shown) in
            [("0000:3b:00.1", "0000:3b:00.1"), ("3b:1f.7", "0000:3b:1f.7"), ("10000:e1:00.0", "10000:e1:00.0")]
        {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), shown);
        }
        for junk in ["", "3b", "3b:00", "3b:20.0", "3b:00.8", "1:2:3:4.5", "0000:xx:00.0", "0000:+b:00.0", ":00.0"] {
            assert!(junk.parse::<PciAddress>().is_err(), "{junk}");
        }
    }
}
