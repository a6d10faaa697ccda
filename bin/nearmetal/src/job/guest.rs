//! The VM's card, from its two definitions.

use nearmetal_domain::DomainFacts;
use nearmetal_host::Host;
use nearmetal_report::view::{DiskCard, GuestCard};

use super::describe;

/// What the VM is. `name` and `uuid` are the plan's, which libvirt gave.
pub(crate) fn card(name: &str, uuid: &str, before: &DomainFacts, after: &DomainFacts, host: &Host) -> GuestCard {
    let disks = before.disks.iter().map(|disk| {
        let planned = after.disks.iter().find(|other| other.target == disk.target);
        let driven = disk.device == "disk";
        DiskCard {
            target: disk.target.clone(),
            source: disk.source.clone(),
            size: disk.source.as_deref().and_then(block_name).and_then(|name| host.block_device(name)?.size),
            as_found: driven.then(|| describe::driver(&disk.driver)),
            planned: planned.filter(|_| driven).map(|disk| describe::driver(&disk.driver)),
        }
    });
    GuestCard {
        name: name.to_owned(),
        uuid: Some(uuid.to_owned()),
        vcpus: Some(before.vcpus.current),
        memory: Some(before.memory),
        class: after.class.clone().or_else(|| before.class.clone()),
        disks: disks.collect(),
    }
}

/// The kernel's name of a block device by its plain path. Other paths (by-id links, LVM names) were links when the job
/// ran, and cannot be followed afterwards.
pub(crate) fn block_name(path: &str) -> Option<&str> {
    path.strip_prefix("/dev/").filter(|name| !name.contains('/'))
}
