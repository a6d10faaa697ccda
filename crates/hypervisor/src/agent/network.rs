//! The guest's network interfaces, as the guest sees them.

use serde::Deserialize;
use serde_json::json;

use super::{QUICK, ask};
use crate::{Hypervisor, HypervisorError};

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestInterface {
    /// Its name in the guest.
    pub name: String,
    /// Its MAC address.
    pub hardware_address: Option<String>,
    /// Its addresses as `address/prefix`.
    pub addresses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Interface {
    name: String,
    hardware_address: Option<String>,
    #[serde(default)]
    ip_addresses: Vec<Address>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Address {
    ip_address: String,
    prefix: u32,
}

/// All interfaces, loopback included.
pub fn interfaces(hypervisor: &mut dyn Hypervisor, name: &str) -> Result<Vec<GuestInterface>, HypervisorError> {
    let found: Vec<Interface> = ask(hypervisor, name, "guest-network-get-interfaces", json!({}), QUICK)?;
    let interface = |found: Interface| GuestInterface {
        name: found.name,
        hardware_address: found.hardware_address,
        addresses: found.ip_addresses.iter().map(|one| format!("{}/{}", one.ip_address, one.prefix)).collect(),
    };
    Ok(found.into_iter().map(interface).collect())
}
