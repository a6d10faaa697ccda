//! What no file of /sys or /proc tells, asked on the machine itself: of KVM, ethtool, Open vSwitch, and the images.
//!
//! A capture has none of it; rules then say what they lack. Each question is put only where its answer can matter.

mod images;
mod offloads;
mod open_vswitch;
pub(crate) mod vf_table;

use std::process::{Command, Stdio};

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Hypervisor, Versions};
use nearmetal_rules::Domain;
use serde_json::Value;

use crate::kvm;

/// Versions of libvirt, and of QEMU where that is what it drives.
pub(crate) fn tell_versions(host: &mut Host, versions: Versions) {
    host.system.libvirt_version = Some(versions.libvirt);
    host.system.qemu_version = Some(versions.hypervisor).filter(|_| versions.hypervisor_kind == "QEMU");
}

/// This machine with the versions that rules about definitions go by. Where libvirt does not answer they are unknown.
pub(crate) fn read_with_versions(files: &HostFs, hypervisor: &mut dyn Hypervisor) -> Host {
    let mut host = Host::read(files);
    if let Ok(versions) = hypervisor.versions() {
        tell_versions(&mut host, versions);
    }
    host
}

/// Fills in what the rules about these domains look at.
pub(crate) fn complete(host: &mut Host, domains: &[Domain]) {
    let facts: Vec<_> = domains.iter().filter_map(Domain::in_force).collect();
    // Also where no domain is known yet: a host whose KVM only emulates is no ground for any.
    host.system.kvm_accelerates = kvm::verdict(host).and_then(|kvm| kvm.accelerates());
    offloads::fill_in(host);
    vf_table::fill_in(host);
    if facts.iter().flat_map(|facts| &facts.interfaces).any(|interface| interface.kind == "vhostuser") {
        host.open_vswitch = open_vswitch::ask_it(&host.online());
    }
    images::fill_in(host, domains);
}

/// JSON documents a program prints, one after the other; `None` where it is not there, fails, or prints something else.
fn ask(program: &str, arguments: &[&str]) -> Option<Vec<Value>> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>().collect::<Result<_, _>>().ok()
}
