//! What is done inside a guest, through its agent (qemu-ga), on top of any [`Hypervisor`].
//!
//! The guest is not trusted: its replies are read into fixed forms, lengths are checked against what was asked for,
//! and everything else is a typed error.

mod exec;
mod file;
mod network;
mod ready;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Hypervisor, HypervisorError, ShutdownMode};
pub use exec::{ExecOutput, ExecStatus, Running, clock, exec, start};
pub use file::{OpenFile, Part, PartEnd, READ_CHUNK, WRITE_CHUNK, push_executable, read_file, write_file};
pub use network::{GuestInterface, interfaces};
pub use ready::ping_once_connected;

/// How long the agent may take for a command that does no work. Under emulation and load it needs seconds.
const QUICK: Duration = Duration::from_secs(30);

/// Whether the agent answers.
pub fn ping(hypervisor: &mut dyn Hypervisor, name: &str, timeout: Duration) -> Result<(), HypervisorError> {
    hypervisor.agent(name, &json!({"execute": "guest-ping"}), timeout).map(drop)
}

/// Waits until the agent answers, for a guest that boots: as long as it does not respond, it is asked again.
pub fn wait(hypervisor: &mut dyn Hypervisor, name: &str, timeout: Duration) -> Result<(), HypervisorError> {
    let started = hypervisor.now();
    loop {
        let left = timeout.saturating_sub(hypervisor.now().duration_since(started));
        match ping_once_connected(hypervisor, name, left.clamp(Duration::from_secs(1), Duration::from_secs(5))) {
            Err(HypervisorError::AgentNotResponding { .. }) if !left.is_zero() => {
                hypervisor.pause(Duration::from_millis(500).min(left));
            }
            result => return result,
        }
    }
}

/// Has the agent shut the guest down, and waits until it is off.
pub fn shutdown(hypervisor: &mut dyn Hypervisor, name: &str, timeout: Duration) -> Result<(), HypervisorError> {
    // Not by a guest-shutdown command of our own: that one has no reply, and libvirt knows how to wait for it.
    hypervisor.shutdown(name, ShutdownMode::Agent, timeout)
}

/// Asks, and reads the reply into its form.
fn ask<T: DeserializeOwned>(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &str,
    arguments: Value,
    timeout: Duration,
) -> Result<T, HypervisorError> {
    let reply = hypervisor.agent(name, &json!({"execute": command, "arguments": arguments}), timeout)?;
    serde_json::from_value(reply)
        .map_err(|error| unexpected(name, command, format!("{error}; check the version of qemu-ga in the guest")))
}

fn unexpected(name: &str, command: &str, reason: impl Into<String>) -> HypervisorError {
    HypervisorError::AgentReply { name: name.into(), command: command.into(), reason: reason.into() }
}

/// The bytes of a base64 text of the agent.
fn decode(name: &str, command: &str, text: &str) -> Result<Vec<u8>, HypervisorError> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| unexpected(name, command, format!("its data is not base64 ({error})")))
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
