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

/// PCI devices for guests: which can be given away, their virtual functions, and who drives them
///
/// `list` only looks: which functions (network cards, drives, displays, accelerators) could be given to a guest, on which
/// node, and what stands in the way of each. `vfs` makes and removes virtual functions, small copies of a card (SR-IOV) that
/// guests can be given instead of the whole. `bind` sets a function aside for a guest, `release` gives it back to the host.
///
/// Each change is journalled, read back, and undone by `nearmetal rollback`. What would cut this machine off (its root disk,
/// its default route, its console) is never given away.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal device list                            what could be given away, and why not the rest
  nearmetal device list --free --node 1            functions a guest on node 1 could have now
  nearmetal device vfs enp57s0 4 --dry-run         what it would take to make 4 virtual functions
  nearmetal device vfs enp57s0 4 --mac-base 02:00:00:00:01:00 --vlan 0=7,1=9 --persist
  nearmetal device bind 0000:39:10.0               set VF 0 aside (libvirt: <hostdev managed='no'>)
  nearmetal device release 0000:39:10.0            give it back to the host
  nearmetal device vfs enp57s0 0                   remove them all

libvirt binds and releases by itself a function of a <hostdev managed='yes'>; bind is for functions that
the host's drivers should not get between two guests. A card is named by its PCI address (as lspci prints it),
by its interface (enp57s0), or by its drive (nvme0n1).";

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
        Some(None) => {
            Err(format!("`{name}` hangs on no PCI function: `nearmetal device list` shows those that guests are given"))
        }
        None => Err(format!(
            "`{name}` is neither a PCI address (such as 0000:39:00.0) nor an interface or drive of this machine: `nearmetal \
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
