//! Which machine a plan belongs to.

use std::fmt::Write;

use nearmetal_host::Host;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A machine, by what a plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostIdentity {
    /// Its name, for people; two machines may have the same.
    pub hostname: String,
    /// SHA-256, in hex, over the topology: the same machine in the same shape has the same one.
    pub fingerprint: String,
}

impl HostIdentity {
    /// Of a host.
    pub fn of(host: &Host) -> Self {
        let hostname = host.system.hostname.clone().unwrap_or_else(|| "unnamed".to_owned());
        let digest = Sha256::digest(topology_text(host).as_bytes());
        let fingerprint = digest.iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self { hostname, fingerprint }
    }

    /// Where nothing is compared with it: at boot, when reading the whole host would hold up everything behind.
    pub fn unread() -> Self {
        Self { hostname: "unread".to_owned(), fingerprint: String::new() }
    }

    /// The start of the fingerprint, enough to tell machines apart in a message.
    pub fn short(&self) -> &str {
        self.fingerprint.get(..12).unwrap_or(&self.fingerprint)
    }
}

/// What must be the same for a plan to hold. Left out: memory sizes (they vary with the kernel by a few MiB), virtual
/// functions (they come and go), anything that a setting changes.
fn topology_text(host: &Host) -> String {
    let mut text = String::new();
    for processor in &host.processors {
        let _ = writeln!(
            text,
            "pu {} online {} package {:?} core {:?} node {:?}",
            processor.index, processor.online, processor.package, processor.core, processor.node
        );
    }
    for node in &host.nodes {
        let _ = writeln!(text, "node {} cpus {} distances {:?}", node.index, node.cpus, node.distances);
    }
    for device in host.pci_devices.iter().filter(|device| device.physical_function.is_none()) {
        let _ = writeln!(text, "pci {} {:?}:{:?} node {:?}", device.address, device.vendor, device.device, device.node);
    }
    text
}
