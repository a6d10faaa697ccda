//! `nearmetal device …`: functions for guests. One file a verb.

mod bind;
mod carry;
mod list;
mod release;
mod vfs;

use nearmetal_host::Host;
use nearmetal_units::PciAddress;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Manage PCI devices for guests: list, virtual functions, drivers
///
/// `list` shows which functions (network cards, drives, displays, accelerators) a guest can have, on which node, and what
/// is in the way of the others. `vfs` makes and removes virtual functions (SR-IOV): small copies of a card, so that
/// several guests can share it. `bind` reserves a function for guests; `release` returns it to the host.
///
/// Each change is journalled and read back, and `nearmetal rollback` undoes it. A function that would cut this machine off
/// (its root disk, its default route, its console) is always refused.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal device list                            which functions guests can have, and why not the rest
  nearmetal device list --free --node 1            functions a guest on node 1 can have now
  nearmetal device vfs enp57s0 4 --dry-run         what making 4 virtual functions would change
  nearmetal device vfs enp57s0 4 --mac-base 02:00:00:00:01:00 --vlan 0=7,1=9 --persist
  nearmetal device bind 0000:39:10.0               reserve VF 0 (libvirt: <hostdev managed='no'>)
  nearmetal device release 0000:39:10.0            return it to the host
  nearmetal device vfs enp57s0 0                   remove them all

libvirt itself binds and releases a function with <hostdev managed='yes'>. Use `bind` for functions that
the host's drivers must not claim between two guests. Name a card by its PCI address (as lspci prints it),
its interface (enp57s0) or its drive (nvme0n1).";

#[derive(Debug, clap::Subcommand)]
enum Verb {
    List(list::Args),
    Vfs(vfs::Args),
    Bind(bind::Args),
    Release(release::Args),
}

/// Runs one verb.
pub fn device(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match args.verb {
        Verb::List(args) => list::list(args, printer),
        Verb::Vfs(args) => Ok(vfs::vfs(&args, printer)),
        Verb::Bind(args) => Ok(bind::bind(&args, printer)),
        Verb::Release(args) => Ok(release::release(&args, printer)),
    }
}

/// A function by its address, by libvirt's name for it, by its interface or by its drive.
fn function(host: &Host, name: &str) -> Result<PciAddress, String> {
    if let Ok(address) = name.parse() {
        return Ok(address);
    }
    // pci_0000_39_10_0
    let parts: Vec<&str> = name.strip_prefix("pci_").unwrap_or_default().split('_').collect();
    if let [domain, bus, device, function] = parts[..] {
        if let Ok(address) = format!("{domain}:{bus}:{device}.{function}").parse() {
            return Ok(address);
        }
    }
    let of_interface = host.network_interfaces.iter().find(|one| one.name == name).map(|one| one.pci);
    let of_drive = host.block_device(name).map(|drive| drive.pci);
    match of_interface.or(of_drive) {
        Some(Some(address)) => Ok(address),
        Some(None) => Err(format!(
            "`{name}` belongs to no PCI function: `nearmetal device list` shows the functions guests can have"
        )),
        None => Err(format!(
            "`{name}` is not a PCI address (such as 0000:39:00.0), nor an interface or drive of this machine: `nearmetal \
             device list` shows them"
        )),
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_host::synthetic::Synthetic;

    use super::*;

    #[test]
    fn functions_have_several_names() {
        let mut host = Synthetic::new().nvme(0).network(0, 7, 0).build();
        host.network_interfaces[0].name = "enp2s0".to_owned();
        let card: PciAddress = "0000:02:00.0".parse().unwrap();
        for name in ["0000:02:00.0", "02:00.0", "pci_0000_02_00_0", "enp2s0"] {
            assert_eq!(function(&host, name), Ok(card), "{name}");
        }
        assert_eq!(function(&host, "nvme0n1").unwrap().to_string(), "0000:01:00.0");
        for junk in ["", "eth9", "pci_0000_02", "pci_x_y_z_0"] {
            assert!(function(&host, junk).unwrap_err().contains("device list"), "{junk}");
        }
        host.network_interfaces[0].pci = None;
        assert!(function(&host, "enp2s0").unwrap_err().contains("no PCI function"));
    }
}
