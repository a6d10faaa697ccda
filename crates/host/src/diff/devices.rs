//! Differences of PCI functions and disks.

use std::collections::BTreeMap;

use nearmetal_units::PciAddress;

use super::{Found, Weight};
use crate::{BlockDevice, Host, PciDevice};

pub(super) fn compare(before: &Host, now: &Host, found: &mut Found) {
    let functions = |host: &Host| -> BTreeMap<PciAddress, PciDevice> {
        host.pci_devices.iter().map(|device| (device.address, device.clone())).collect()
    };
    let (old, new) = (functions(before), functions(now));
    let mut addresses: Vec<PciAddress> = old.keys().chain(new.keys()).copied().collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in addresses {
        match (old.get(&address), new.get(&address)) {
            (Some(old), Some(new)) => function(old, new, found),
            (old, new) => found.compare(Weight::Capacity, address.to_string(), old.map(identity), new.map(identity)),
        }
    }
    disks(before, now, found);
}

fn identity(device: &PciDevice) -> String {
    let hex = |id: Option<u16>| id.map_or_else(|| "?".to_owned(), |id| format!("{id:04x}"));
    format!("{}:{}", hex(device.vendor), hex(device.device))
}

fn function(old: &PciDevice, new: &PciDevice, found: &mut Found) {
    let name = |what: &str| format!("{}: {what}", old.address);
    // Another card in the same slot: nothing else needs to be said.
    if identity(old) != identity(new) {
        found.compare(Weight::Capacity, old.address.to_string(), Some(identity(old)), Some(identity(new)));
        return;
    }
    found.compare(Weight::Locality, name("node"), old.node, new.node);
    found.compare(Weight::Locality, name("driver"), old.driver.as_ref(), new.driver.as_ref());
    found.compare(Weight::Locality, name("IOMMU group"), old.iommu_group, new.iommu_group);
    let vfs = |device: &PciDevice| device.sriov.as_ref().map(|state| state.vfs);
    let total = |device: &PciDevice| device.sriov.as_ref().map(|state| state.total_vfs);
    found.compare(Weight::Capacity, name("virtual functions"), vfs(old), vfs(new));
    found.compare(Weight::Capacity, name("virtual functions it can have"), total(old), total(new));
    // Speed changes with load on many links; width and what it is able to do not.
    let link = |device: &PciDevice| device.link.unwrap_or_default();
    found.compare(Weight::Locality, name("link width"), link(old).width, link(new).width);
    found.compare(Weight::Locality, name("fastest link in MT/s"), link(old).max_speed, link(new).max_speed);
    let resets = |device: &PciDevice| device.resets.as_ref().map(|resets| resets.join(" "));
    found.compare(Weight::Setting, name("resets"), resets(old), resets(new));
}

fn disks(before: &Host, now: &Host, found: &mut Found) {
    let whole = |host: &Host| -> BTreeMap<String, BlockDevice> {
        let disks = host.block_devices.iter().filter(|disk| disk.partition_of.is_none() && disk.pci.is_some());
        disks.map(|disk| (disk.name.clone(), disk.clone())).collect()
    };
    let (old, new) = (whole(before), whole(now));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (old, new) = (old.get(name), new.get(name));
        let size = |disk: Option<&BlockDevice>| disk.and_then(|disk| disk.size);
        found.compare(Weight::Capacity, format!("{name}: size"), size(old), size(new));
        if let (Some(old), Some(new)) = (old, new) {
            found.compare(Weight::Locality, format!("{name}: PCI function"), old.pci, new.pci);
            let (scheduler, queues) = (format!("{name}: scheduler"), format!("{name}: queues"));
            found.compare(Weight::Setting, scheduler, old.scheduler.as_ref(), new.scheduler.as_ref());
            found.compare(Weight::Setting, queues, old.queues, new.queues);
        }
    }
}
