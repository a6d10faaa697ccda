//! Who moves the packets of the guest's interfaces: each queue of vhost-net is a file that QEMU holds open.

use nearmetal_domain::{DomainFacts, InterfaceFacts};
use nearmetal_host::{HostFs, guests};
use nearmetal_place::{NetworkBackend, Placement};

use super::{Check, CheckKind};

/// The kernel's file. Those of vsock and of SCSI have other names.
const VHOST_NET: &str = "/dev/vhost-net";

/// How many queues of vhost-net a process has.
pub(super) fn look(files: &HostFs, pid: u32) -> Result<u32, String> {
    let open = guests::open_files(files, pid).map_err(|error| error.to_string())?;
    Ok(open.iter().filter(|file| file.target == VHOST_NET).count() as u32)
}

/// One check for all interfaces together: the files do not say whose they are.
pub(super) fn judge(
    placement: &Placement,
    live: Option<&Result<DomainFacts, String>>,
    held: Option<&Result<u32, String>>,
) -> Option<Check> {
    let held = held?;
    let subject = "queues of vhost-net";
    let live = match live? {
        Ok(live) => live,
        Err(why) => return Some(Check::cannot_tell(CheckKind::Network, subject, "as planned", why)),
    };
    let of_plan = placement.networks.iter().filter(|network| network.backend == NetworkBackend::Vhost);
    let least: u32 = of_plan.map(|network| network.queues).fold(0, u32::saturating_add);
    let (mut least, mut most) = (least, least);
    let planned = |interface: &InterfaceFacts| {
        placement.networks.iter().any(|network| interface.has_mac(&network.mac.to_string()))
    };
    for other in live.interfaces.iter().filter(|interface| interface.is_virtio_tap() && !planned(interface)) {
        let queues = other.queues.unwrap_or(1);
        match other.driver_name.as_deref() {
            Some("qemu") => {}
            // Where nothing is written, libvirt takes vhost-net if it can, and says nothing if it cannot.
            None => most = most.saturating_add(queues),
            Some(_) => (least, most) = (least.saturating_add(queues), most.saturating_add(queues)),
        }
    }
    let wanted =
        if least == most { format!("{least} open in QEMU") } else { format!("{least} to {most} open in QEMU") };
    Some(match held {
        Err(why) => Check::cannot_tell(CheckKind::Network, subject, wanted, why),
        Ok(held) => {
            let found = format!("{held} open in QEMU");
            Check::compared(CheckKind::Network, subject, wanted, found, (least..=most).contains(held)).at(VHOST_NET)
        }
    })
}
