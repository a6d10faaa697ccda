//! Network namespaces that bare metal is measured in, so that its addresses are nobody else's business.

use std::process::Command;

use nearmetal_host::HostFs;
use rustix::process::{Pid, Signal, kill_process};

use super::interface::{exists, ip, until};
use crate::error::MeasureError;
use crate::program::run;

/// The one for a port. Those for functions have a number behind it; none is anybody else's, else the measurement is refused.
pub(crate) const NAMESPACE: &str = "nearmetal-net";
/// Where iproute2 keeps namespaces by name (ip-netns(8)).
const SPACES: &str = "/run/netns";

/// The namespace for the function with this number: in one for all, the kernel would send through the first for each of them.
pub(crate) fn numbered(number: usize) -> String {
    format!("{NAMESPACE}{number}")
}

/// Those of such a name that are there.
pub(crate) fn there(fs: &HostFs) -> Vec<String> {
    fs.list(SPACES).unwrap_or_default().into_iter().filter(|name| is_ours(name)).collect()
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix(NAMESPACE).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Makes a namespace, moves an interface into it and gives it the address.
pub(crate) fn enter(space: &str, interface: &str, address: &str, fs: &HostFs) -> Result<(), MeasureError> {
    // The host's driver takes a function back a moment after its guest has ended.
    if !until(|| exists(fs, interface)) {
        return Err(MeasureError::Unfit(format!("`{interface}` did not come back to the host")));
    }
    ip(&["netns", "add", space])?;
    ip(&["link", "set", "dev", interface, "netns", space])?;
    ip(&["-netns", space, "address", "add", address, "dev", interface])?;
    ip(&["-netns", space, "link", "set", "dev", interface, "up"])?;
    let linked = || {
        let carrier = format!("/sys/class/net/{interface}/carrier");
        run(Command::new("ip").args(["netns", "exec", space, "cat", &carrier])).is_ok_and(|text| text.trim() == "1")
    };
    if until(linked) { Ok(()) } else { Err(MeasureError::Unfit(format!("`{interface}` has no link in its namespace"))) }
}

/// Ends a namespace, if it is there, and what a killed run left running in it: the kernel then gives its hardware back to the
/// host.
pub(crate) fn leave(space: &str, interface: &str, fs: &HostFs) -> Result<(), MeasureError> {
    if !fs.exists(&format!("{SPACES}/{space}")) {
        return Ok(());
    }
    end_processes(space)?;
    ip(&["netns", "delete", space])?;
    if until(|| exists(fs, interface)) {
        return Ok(());
    }
    Err(MeasureError::Unfit(format!("`{interface}` did not come back from the namespace {space}")))
}

/// Ends a namespace with the virtual interface in it, which nothing brings back, and whatever runs there. Safe to repeat.
pub(crate) fn remove(space: &str, interface: &str, fs: &HostFs) -> Result<(), MeasureError> {
    if !fs.exists(&format!("{SPACES}/{space}")) {
        return Ok(());
    }
    end_processes(space)?;
    // The kernel takes a namespace down some time later, and what lies on a port may keep it from a bridge until then.
    let _ = ip(&["-netns", space, "link", "delete", interface]);
    ip(&["netns", "delete", space]).map(drop)
}

/// Only the last process that is in it ends a namespace; its name is not what keeps it.
fn end_processes(space: &str) -> Result<(), MeasureError> {
    for pid in ip(&["netns", "pids", space])?.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_this_gives_are_ours() {
        assert!(is_ours(NAMESPACE) && is_ours(&numbered(0)) && is_ours(&numbered(12)));
        assert!(!is_ours("nearmetal-network") && !is_ours("nearmetal-ne") && !is_ours("blue"));
    }
}
