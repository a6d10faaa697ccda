//! Who owns which PU, which memory and which device now, rebuilt from kernel state alone: affinity of threads, pages in
//! numa_maps, open files, drivers. No configuration is asked, so that nothing that was only meant to be is in it.
//!
//! ```
//! use nearmetal_host::{ledger, synthetic::Synthetic};
//! let ledger = ledger::of(&Synthetic::new().build(), &[]);
//! assert!(ledger.claims.is_empty() && ledger.conflicts.is_empty());
//! ```

mod conflicts;
mod text;

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, CpuSet, PciAddress};
use serde::{Deserialize, Serialize};

use crate::{GuestProcess, Host, HostFs, ThreadRole, guests};

pub use conflicts::Conflict;
pub use text::render;

/// What is owned, by whom, and where owners get in each other's way.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Threads bound to fewer PUs than are online, by guest and thread. Floating threads own nothing.
    pub claims: Vec<Claim>,
    /// Guests with threads that float over all PUs, and how many.
    pub floating: Vec<(Owner, usize)>,
    /// Guest memory by guest and node.
    pub memory: Vec<MemoryUse>,
    /// Devices held by a guest, or taken from the host's drivers for one.
    pub devices: Vec<DeviceUse>,
    /// PUs no vCPU is bound to.
    pub free: CpuSet,
    /// Where owners get in each other's way, the worst first.
    pub conflicts: Vec<Conflict>,
    /// What this user may not see of some guests: their devices, or their pages.
    pub unknown: Vec<String>,
    /// Guests with devices that this user may not see. Each may hold any function that is bound to vfio and has no
    /// owner.
    #[serde(default)]
    pub unseen: Vec<Owner>,
}

/// A running guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Its name, or `process PID`.
    pub name: String,
    /// Its process.
    pub pid: u32,
}

/// A thread bound to some PUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The guest.
    pub owner: Owner,
    /// Thread id.
    pub thread: u32,
    /// What the thread does.
    pub role: ThreadRole,
    /// Where it may run.
    pub cpus: CpuSet,
}

/// Guest memory on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The guest.
    pub owner: Owner,
    /// The node.
    pub node: u32,
    /// Pages there.
    pub memory: Bytes,
}

/// A device that guests use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Its name: `0000:41:00.1`, `nvme0n1`.
    pub name: String,
    /// Its PCI function, if it has one.
    pub function: Option<PciAddress>,
    /// Its node.
    pub node: Option<u32>,
    /// How it is held: `vfio-pci`, `open`.
    pub by: String,
    /// The guest; `None` while a device is only set aside, or where this user may not see who holds it.
    pub owner: Option<Owner>,
}

/// Devices a process has open: names of files under /dev.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenDevices {
    /// The process.
    pub pid: u32,
    /// `/dev/vfio/17`, `/dev/vfio/devices/vfio3`, `/dev/nvme0n1`; `None` where this user may not see them.
    pub files: Option<Vec<String>>,
}

/// The ledger of a host, with the open files of its guests read now.
pub fn read(fs: &HostFs, host: &Host) -> Ledger {
    let open: Vec<OpenDevices> = host
        .guests
        .iter()
        .map(|guest| {
            let files = guests::open_files(fs, guest.pid).ok().map(|files| {
                let targets = files.into_iter().map(|file| file.target);
                targets.filter(|target| target.starts_with("/dev/")).collect()
            });
            OpenDevices { pid: guest.pid, files }
        })
        .collect();
    build(host, &open, &groups_of_files(fs, host))
}

/// The ledger of a host and of the devices its guests have open. Pure: whose a file below /dev/vfio/devices is,
/// [`read`] alone looks up.
pub fn of(host: &Host, open: &[OpenDevices]) -> Ledger {
    build(host, open, &BTreeMap::new())
}

/// IOMMU groups by the file that a function has of its own since Linux 6.6: `devices/vfio3`. One user has all of a
/// group, whichever file it opens.
fn groups_of_files(fs: &HostFs, host: &Host) -> BTreeMap<String, u32> {
    let mut groups = BTreeMap::new();
    for device in host.pci_devices.iter().filter(|device| device.vfio_driver().is_some()) {
        let Some(group) = device.iommu_group else { continue };
        let names = fs.list(&format!("/sys/bus/pci/devices/{}/vfio-dev", device.address)).unwrap_or_default();
        groups.extend(names.into_iter().map(|name| (format!("devices/{name}"), group)));
    }
    groups
}

fn build(host: &Host, open: &[OpenDevices], files: &BTreeMap<String, u32>) -> Ledger {
    let online = host.online();
    let mut ledger = Ledger::default();
    for guest in &host.guests {
        let owner = Owner::of(guest);
        let mut floating = 0;
        for thread in &guest.threads {
            match &thread.affinity {
                Some(cpus) if online.is_subset(cpus) => floating += 1,
                Some(cpus) => ledger.claims.push(Claim {
                    owner: owner.clone(),
                    thread: thread.id,
                    role: thread.role.clone(),
                    cpus: cpus.intersection(&online),
                }),
                None => ledger.unknown.push(format!("affinity of thread {} of {}", thread.id, owner.name)),
            }
        }
        if floating > 0 {
            ledger.floating.push((owner.clone(), floating));
        }
        if let Some(reason) = &guest.residency_error {
            ledger.unknown.push(format!("pages of {}: {reason}", owner.name));
        }
        let uses = guest.memory_by_node().into_iter();
        ledger.memory.extend(uses.map(|(node, memory)| MemoryUse { owner: owner.clone(), node, memory }));
    }
    devices(host, open, files, &mut ledger);
    let vcpus: CpuSet = ledger.vcpus().flat_map(|claim| claim.cpus.iter().collect::<Vec<_>>()).collect();
    ledger.free = online.difference(&vcpus);
    ledger.conflicts = conflicts::find(host, &ledger);
    ledger
}

impl Ledger {
    /// Claims of vCPUs.
    pub fn vcpus(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| matches!(claim.role, ThreadRole::Vcpu(_)))
    }

    /// Claims on one PU.
    pub fn on(&self, cpu: u32) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| claim.cpus.contains(cpu))
    }

    /// Functions of a guest, as far as they are known.
    pub fn held_by(&self, pid: u32) -> impl Iterator<Item = PciAddress> {
        let is_its = move |device: &&DeviceUse| device.owner.as_ref().is_some_and(|owner| owner.pid == pid);
        self.devices.iter().filter(is_its).filter_map(|device| device.function)
    }

    /// Whether a guest holds a function, or may hold it: it is bound to vfio, and not all that guests have open is
    /// known.
    pub fn may_be_held(&self, function: PciAddress) -> bool {
        let unseen = !self.unseen.is_empty();
        let is_it = |device: &&DeviceUse| device.function == Some(function);
        let held = |device: &DeviceUse| device.owner.is_some() || (unseen && device.by.contains("vfio"));
        self.devices.iter().filter(is_it).any(held)
    }
}

impl Owner {
    /// This guest.
    pub fn of(guest: &GuestProcess) -> Self {
        let name = guest.name.clone().unwrap_or_else(|| format!("process {}", guest.pid));
        Self { name, pid: guest.pid }
    }
}

/// Functions bound to a vfio driver, and disks a guest has open. `files`: as [`groups_of_files`] has them.
fn devices(host: &Host, open: &[OpenDevices], files: &BTreeMap<String, u32>, ledger: &mut Ledger) {
    let owners: BTreeMap<u32, Owner> = host.guests.iter().map(|guest| (guest.pid, Owner::of(guest))).collect();
    let mut groups: BTreeMap<u32, &Owner> = BTreeMap::new();
    let mut disks: Vec<DeviceUse> = Vec::new();
    for process in open {
        let Some(owner) = owners.get(&process.pid) else { continue };
        let Some(names) = &process.files else {
            ledger.unknown.push(format!("open devices of {}", owner.name));
            ledger.unseen.push(owner.clone());
            continue;
        };
        for file in names {
            let name = file.strip_prefix("/dev/").unwrap_or(file);
            if let Some(group) = name.strip_prefix("vfio/").and_then(|file| group_of_file(file, files)) {
                groups.insert(group, owner);
            } else if name.starts_with("vfio/devices/") {
                ledger.unknown.push(format!("which function {} has by {file}", owner.name));
                ledger.unseen.push(owner.clone());
            } else if let Some(disk) = host.block_device(name) {
                let (name, by) = (disk.name.clone(), "open".to_owned());
                let use_of = DeviceUse { name, function: disk.pci, node: disk.node, by, owner: Some(owner.clone()) };
                if !disks.contains(&use_of) {
                    disks.push(use_of);
                }
            }
        }
    }
    for device in &host.pci_devices {
        let Some(driver) = device.vfio_driver() else { continue };
        ledger.devices.push(DeviceUse {
            name: device.address.to_string(),
            function: Some(device.address),
            node: device.node,
            by: driver.to_owned(),
            owner: device.iommu_group.and_then(|group| groups.get(&group).copied()).cloned(),
        });
    }
    ledger.devices.extend(disks);
}

/// The IOMMU group that a file below /dev/vfio stands for: `17`, `noiommu-17`, `devices/vfio3`.
fn group_of_file(file: &str, files: &BTreeMap<String, u32>) -> Option<u32> {
    let number = file.strip_prefix("noiommu-").unwrap_or(file);
    number.parse().ok().or_else(|| files.get(file).copied())
}
