//! The form of a machine file.

use std::str::FromStr;

use nearmetal_counters::{Count, TimeModel};
use nearmetal_units::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

/// A server in software.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// One line for people.
    pub description: String,
    /// Kernel arguments this machine needs, before those of the user.
    #[serde(default)]
    pub kernel_arguments: Vec<String>,
    /// How its libvirt confines guests.
    #[serde(default)]
    pub libvirt: Confinement,
    /// What its emulated processors count; nothing by default, since counting costs time.
    #[serde(default)]
    pub count: Option<Count>,
    /// What its time would be made of, were it silicon; without one, no modelled time is given.
    #[serde(default)]
    pub time_model: Option<TimeModel>,
    /// Sockets and cores.
    pub processors: Processors,
    /// NUMA nodes. The cores are split evenly over them, in order.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Network cards.
    #[serde(default, rename = "network")]
    pub networks: Vec<Network>,
    /// NVMe drives.
    #[serde(default, rename = "nvme")]
    pub drives: Vec<Nvme>,
    /// Plain virtio disks, near no node.
    #[serde(default, rename = "disk")]
    pub disks: Vec<Disk>,
}

/// How a machine's libvirt confines guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confinement {
    /// As Debian installs it: a user of their own, an AppArmor profile and a /dev for each guest.
    #[default]
    Stock,
    /// Guests are root's, without AppArmor and with the host's /dev. They start sooner.
    Unconfined,
}

impl Confinement {
    /// What tells the kernel and the lab's initramfs. Of several the last holds, for both.
    pub fn arguments(self) -> [&'static str; 2] {
        match self {
            // Security modules that guard nothing take seconds to set up.
            Self::Unconfined => ["lsm=capability", "lab.libvirt=unconfined"],
            Self::Stock => ["lsm=capability,apparmor", "lab.libvirt=stock"],
        }
    }
}

/// The processors of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// QEMU's name of the model, flags included (`EPYC-Rome`, `host`).
    pub model: String,
    /// What executes them.
    #[serde(default)]
    pub accelerator: Accelerator,
    /// Packages.
    pub sockets: u32,
    /// Cores in each package.
    pub cores_per_socket: u32,
    /// Hardware threads in each core. Emulation shows 1 of AMD models whatever is asked.
    #[serde(default = "one")]
    pub threads_per_core: u32,
}

impl Processors {
    /// Hardware threads of the whole machine.
    pub fn count(&self) -> u32 {
        self.sockets.saturating_mul(self.cores_per_socket).saturating_mul(self.threads_per_core)
    }
}

fn one() -> u32 {
    1
}

/// What executes the machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// Emulation: everywhere the same, and slow.
    #[default]
    Tcg,
    /// Nested virtualization, on hosts whose /dev/kvm is real.
    Kvm,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its memory, in whole MiB.
    #[serde(deserialize_with = "amount")]
    pub memory: Bytes,
    /// Distance to every node in order, 10 to itself.
    pub distances: Vec<u8>,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Name, unique in the machine.
    pub name: String,
    /// Which card.
    pub model: NetworkModel,
    /// Node it is attached to.
    pub node: u32,
    /// What its port is connected to; nothing by default.
    pub cable: Option<Cable>,
}

/// Network cards that can be emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkModel {
    /// Intel 82576: one port, seven virtual functions (it has eight, of which Linux offers seven).
    Igb,
}

/// One end of a cable between two labs on the same host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cable {
    /// Name of the cable, the same in both labs.
    pub name: String,
    /// Which end this is; the other lab has the other.
    pub end: CableEnd,
}

impl FromStr for Cable {
    type Err = String;

    /// `wire:a`. Whether the name can be one is checked with the machine.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, end) = match text.rsplit_once(':') {
            Some((name, "a")) => (name, CableEnd::A),
            Some((name, "b")) => (name, CableEnd::B),
            _ => return Err(format!("`{text}` is not an end of a cable: write its name and the end, such as wire:a")),
        };
        Ok(Self { name: name.to_owned(), end })
    }
}

/// The two ends of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CableEnd {
    /// The one end.
    A,
    /// The other.
    B,
}

/// An NVMe drive.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nvme {
    /// Name, unique in the machine; also its serial number.
    pub name: String,
    /// Node it is attached to.
    pub node: u32,
    /// How many virtual functions it can have.
    #[serde(default)]
    pub virtual_functions: u32,
    /// Its namespaces, numbered from 1.
    #[serde(rename = "namespace")]
    pub namespaces: Vec<Namespace>,
}

/// A namespace of an NVMe drive.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Its size, in whole MiB.
    #[serde(deserialize_with = "amount")]
    pub size: Bytes,
    /// What is on it at first.
    #[serde(default)]
    pub contents: Contents,
}

/// What a disk holds at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// Zeros.
    #[default]
    Empty,
    /// The root file system of a small Linux guest with an agent.
    GuestRoot,
}

/// A plain disk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Name, unique in the machine; also its serial number.
    pub name: String,
    /// Its size, in whole MiB.
    #[serde(deserialize_with = "amount")]
    pub size: Bytes,
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}
