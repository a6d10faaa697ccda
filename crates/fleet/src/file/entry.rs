//! What a fleet file says, understood: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::model::{DeviceDemand, Locality, SpreadHosts, Vm};
use crate::supply::Reserve;

/// A fleet file, understood.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct FleetFile {
    /// Whether VMs are gathered on few hosts or spread over many.
    pub spread: SpreadHosts,
    /// Hosts, in the file's order. Names are unique.
    pub hosts: Vec<HostEntry>,
    /// VMs, in the file's order; one with a `count` stands there so many times. Names are unique.
    pub vms: Vec<VmEntry>,
}

/// A host of the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostEntry {
    /// Its name in the fleet.
    pub name: String,
    /// How it is read.
    pub reach: HostReach,
    /// Labels for selectors.
    pub labels: BTreeMap<String, String>,
    /// Hosts of one failure domain go down together.
    pub failure_domain: Option<String>,
    /// What it keeps for itself.
    pub reserve: Reserve,
}

/// How a host is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostReach {
    /// It is this machine.
    Local,
    /// Over ssh.
    Ssh {
        /// `NAME` or `USER@NAME`.
        destination: String,
        /// Program and options that reach it, split at spaces; `None`: `ssh`.
        command: Option<String>,
    },
    /// By libvirt's word alone, at this URI.
    Libvirt(String),
    /// A capture; a path that is not absolute counts from the fleet file's directory.
    Capture(PathBuf),
}

/// A VM of the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmEntry {
    /// What the planner is asked. Its devices follow from `disks`, `nics` and `devices`; `hosts` holds `on` already.
    pub vm: Vm,
    /// UUID of the domain it is, where a name is not enough.
    pub uuid: Option<String>,
    /// Host on which it is defined, with its disks: it stays there.
    pub on: Option<String>,
    /// Domain XML to start from; a path that is not absolute counts from the fleet file's directory.
    pub template: Option<PathBuf>,
    /// Firmware; `None`: the template's, or libvirt's default.
    pub firmware: Option<Firmware>,
    /// Disks, in their order.
    pub disks: Vec<DiskEntry>,
    /// Network interfaces, in their order.
    pub nics: Vec<NicEntry>,
    /// PCI functions handed through, in their order.
    pub devices: Vec<DeviceDemand>,
    /// The `[[vm]]` it came from and its number there, from 1, where that has a `count`.
    pub copy: Option<(String, u32)>,
}

/// Firmware, in libvirt's words (`<os firmware=…>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// UEFI (OVMF).
    Efi,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskEntry {
    /// Where its data is.
    pub source: DiskSource,
    /// How the guest sees it.
    pub bus: DiskBus,
    /// Whether the guest may only read it.
    pub read_only: bool,
    /// Host drive that holds it (`nvme0n1`), where it is to be near that.
    pub drive: Option<String>,
    /// How near; `None`: it has no part in the choice.
    pub locality: Option<Locality>,
}

/// Where a disk's data is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskSource {
    /// A block device of the host, whole: `/dev/nvme1n1`.
    Device(PathBuf),
    /// A file of the host.
    File {
        /// Absolute path there.
        path: PathBuf,
        /// Its format.
        format: DiskFormat,
    },
    /// A volume of a libvirt pool.
    Volume {
        /// Pool.
        pool: String,
        /// Volume.
        volume: String,
    },
}

/// Format of a disk's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFormat {
    /// QEMU's own.
    Qcow2,
    /// As it is.
    Raw,
}

/// How a guest sees a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBus {
    /// virtio-blk.
    Virtio,
    /// virtio-scsi.
    Scsi,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NicEntry {
    /// What carries its packets.
    pub kind: NicKind,
    /// libvirt network or bridge; `None` for macvtap, and for virtual functions that the plan deals.
    pub attach: Option<NicAttach>,
    /// Host interface: macvtap's lower one, a VF's physical function, or the uplink to be near.
    pub interface: Option<String>,
    /// MAC address, six pairs of lower-case hex digits.
    pub mac: Option<String>,
    /// VLAN, 1 to 4094.
    pub vlan: Option<u16>,
    /// How near to its interface; `None`: it has no part in the choice.
    pub locality: Option<Locality>,
}

/// What carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    /// virtio, served by QEMU.
    Virtio,
    /// virtio, served by the kernel's vhost-net.
    Vhost,
    /// macvtap on a host interface.
    Macvtap,
    /// A virtual function, handed through.
    Vf,
}

/// What an interface hangs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicAttach {
    /// A libvirt network.
    Network(String),
    /// A bridge of the host.
    Bridge(String),
}

impl NicEntry {
    /// The libvirt network that deals this virtual function when the VM starts.
    pub fn function_pool(&self) -> Option<&str> {
        match (&self.kind, &self.attach) {
            (NicKind::Vf, Some(NicAttach::Network(network))) => Some(network),
            _ => None,
        }
    }
}

impl FleetFile {
    /// The VM of that name.
    pub fn vm(&self, name: &str) -> Option<&VmEntry> {
        self.vms.iter().find(|entry| entry.vm.name == name)
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<&HostEntry> {
        self.hosts.iter().find(|entry| entry.name == name)
    }
}
