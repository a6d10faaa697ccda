//! What the planner is asked: the facts of each guest, without any XML.

use std::fmt;
use std::str::FromStr;

use nearmetal_units::{Bytes, CpuSet, PciAddress};
use serde::{Deserialize, Serialize};

/// What a guest is for; decides which trade-offs are right for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadClass {
    /// Nothing special is known.
    #[default]
    General,
    /// Many guests on few cores: floating beats pinning.
    Density,
    /// Work done per second counts.
    Throughput,
    /// The slowest answer counts.
    Latency,
    /// A Windows guest.
    Windows,
    /// Devices are handed through.
    Passthrough,
}

impl WorkloadClass {
    /// Every class.
    pub const ALL: [Self; 6] =
        [Self::General, Self::Density, Self::Throughput, Self::Latency, Self::Windows, Self::Passthrough];

    /// Its word in definitions, plans and fleet files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Density => "density",
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Windows => "windows",
            Self::Passthrough => "passthrough",
        }
    }
}

impl FromStr for WorkloadClass {
    type Err = UnknownClass;

    /// Its word, whatever space is around it.
    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        let word = text.trim();
        Self::ALL.into_iter().find(|class| class.word() == word).ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

/// A word that is not a workload class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownClass(String);

impl fmt::Display for UnknownClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = WorkloadClass::ALL.map(WorkloadClass::word);
        let (last, others) = words.split_last().unwrap_or((&"", &[]));
        write!(formatter, "`{}` is not a workload class: {} or {last}", self.0, others.join(", "))
    }
}

impl std::error::Error for UnknownClass {}

/// One guest to place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRequest {
    /// Domain name.
    pub name: String,
    /// Domain UUID.
    pub uuid: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Workload class.
    pub class: WorkloadClass,
    /// Disks, in the domain's order.
    pub disks: Vec<DiskRequest>,
    /// Network interfaces, in the domain's order.
    pub networks: Vec<NetworkRequest>,
    /// PCI functions handed through.
    pub passthrough: Vec<PciAddress>,
    /// What its definition shows it of a machine.
    #[serde(default)]
    pub shows: Shown,
}

/// What a definition shows its guest of a machine, and a plan may have to heed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shown {
    /// Its cells, by number: what they are stays.
    pub cells: Vec<ShownCell>,
    /// Threads of a core; 0 or 1 where it says none.
    pub threads: u32,
}

/// A cell that a guest has already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCell {
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// Its memory.
    pub memory: Bytes,
    /// The node that its memory is bound to, if it may come from no other.
    #[serde(default)]
    pub node: Option<u32>,
}

/// A disk of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRequest {
    /// Target name in the guest, `vda`.
    pub target: String,
    /// Host path of its source (`/dev/nvme0n1`, `/var/lib/…/x.qcow2`); `None` for empty drives and network disks.
    pub source: Option<String>,
    /// Host block device that holds the source, where it is one or lies on one (`nvme0n1`).
    pub block_device: Option<String>,
    /// Whether it is a whole block device or partition rather than a file.
    pub is_block: bool,
    /// Whether the guest drives it by virtio-blk: only then do iothread and queues apply.
    pub is_virtio_blk: bool,
    /// Whether it is a CD-ROM, floppy or read-only disk: left as it is.
    pub is_read_only: bool,
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRequest {
    /// MAC address: names the interface.
    pub mac: String,
    /// Host interface it hangs on, if known.
    pub host_interface: Option<String>,
    /// Whether vhost-net carries it (a tap, bridge or network interface with the virtio model).
    pub uses_vhost: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_one_word_everywhere() {
        for class in WorkloadClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.word());
            assert_eq!(format!(" {} ", class.word()).parse(), Ok(class));
        }
        let error = "fast".parse::<WorkloadClass>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`fast` is not a workload class: general, density, throughput, latency, windows or passthrough"
        );
    }
}
