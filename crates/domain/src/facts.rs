//! What a domain says about itself, as plain data.

use nearmetal_units::{Bytes, CpuSet, PciAddress};
use serde::{Deserialize, Serialize};

use crate::document::DomainXml;
use crate::element::boot::BootFacts;
use crate::element::cells::CellFacts;
use crate::element::clock::TimerFacts;
use crate::element::cpu::CpuFacts;
use crate::element::disk::DiskFacts;
use crate::element::features::FeatureFacts;
use crate::element::functions::FunctionFacts;
use crate::element::interface::InterfaceFacts;
use crate::element::iothreads::IothreadFacts;
use crate::element::memory_backing::HugepageFacts;
use crate::element::memory_policy::MemoryPolicyFacts;
use crate::element::numatune::NumatuneFacts;
use crate::element::peripherals::PeripheralFacts;
use crate::element::scheduling::SchedulingFacts;
use crate::element::vcpu::VcpuFacts;
use crate::element::{
    boot, cells, channel, clock, cpu, cputune, disk, features, functions, hostdev, interface, iothreads, memory,
    memory_backing, memory_policy, metadata, numatune, peripherals, scheduling, vcpu,
};
use crate::error::DomainError;
use crate::tree;

/// What nearmetal reads from a domain XML. Whether it starts with the host is not in there: libvirt keeps that apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainFacts {
    /// Name.
    pub name: String,
    /// UUID; `None` before libvirt has given one.
    pub uuid: Option<String>,
    /// `kvm`, `qemu` (emulation), ….
    pub kind: String,
    /// Memory at most.
    pub memory: Bytes,
    /// Memory at the start; the rest is in the balloon.
    pub current_memory: Bytes,
    /// Virtual CPUs.
    pub vcpus: VcpuFacts,
    /// vCPU pins, as (vCPU, PUs), rising.
    pub vcpu_pins: Vec<(u32, CpuSet)>,
    /// PUs of the emulator thread.
    pub emulator_pin: Option<CpuSet>,
    /// Iothreads and their pins.
    pub iothreads: IothreadFacts,
    /// Host nodes of the memory.
    pub numatune: Option<NumatuneFacts>,
    /// Huge pages: `None` without, an empty list for the host's default size.
    pub hugepages: Option<Vec<HugepageFacts>>,
    /// NUMA as the guest sees it.
    pub cells: Vec<CellFacts>,
    /// Disks in their order.
    pub disks: Vec<DiskFacts>,
    /// Network interfaces in their order.
    pub interfaces: Vec<InterfaceFacts>,
    /// PCI functions handed through: as hostdev, as interface, as NVMe disk.
    pub hostdevs: Vec<PciAddress>,
    /// Whether there is a channel for the guest agent.
    pub has_agent_channel: bool,
    /// Machine type and boot source.
    pub boot: BootFacts,
    /// Workload class in nearmetal's metadata, as written.
    pub class: Option<String>,
    /// Operating system by libosinfo's name, where virt-install noted it.
    #[serde(default)]
    pub operating_system: Option<String>,
    /// CPU model and topology.
    #[serde(default)]
    pub cpu: CpuFacts,
    /// Timers that are written.
    #[serde(default)]
    pub timers: Vec<TimerFacts>,
    /// Hyper-V and KVM features.
    #[serde(default)]
    pub features: FeatureFacts,
    /// Bandwidth limits and schedulers of the threads.
    #[serde(default)]
    pub scheduling: SchedulingFacts,
    /// vCPUs that have a part of the last-level cache to themselves, one set for each `<cachetune>`.
    #[serde(default)]
    pub cache_parts: Vec<CpuSet>,
    /// How guest memory is held.
    #[serde(default)]
    pub memory_policy: MemoryPolicyFacts,
    /// Controllers, balloon, inputs, sound, displays, shared folders.
    #[serde(default)]
    pub peripherals: Vec<PeripheralFacts>,
    /// Functions of `hostdevs` that ask for KVM's own assignment instead of VFIO.
    #[serde(default)]
    pub legacy_assignment: Vec<PciAddress>,
    /// Functions of `hostdevs` that are no disks, with the cell each is shown on.
    #[serde(default)]
    pub functions: Vec<FunctionFacts>,
}

impl DomainFacts {
    /// The host node that a guest cell's memory is bound to; `None` if it is bound to none, or to several.
    pub fn node_of_cell(&self, cell: u32) -> Option<u32> {
        let policies = self.numatune.as_ref()?.cells.iter();
        let nodes = policies.filter(|policy| policy.cell == cell).find_map(|policy| policy.nodes.as_ref())?;
        nodes.first().filter(|_| nodes.len() == 1)
    }

    /// The disk that storage is measured by: the first that the guest drives by virtio-blk and may write to.
    pub fn first_writable_virtio_disk(&self) -> Option<&DiskFacts> {
        self.disks.iter().find(|disk| disk.is_virtio_blk() && !disk.readonly)
    }
}

impl DomainXml {
    /// Reads what nearmetal needs to know.
    ///
    /// # Errors
    /// A value that libvirt would refuse, or one that is missing: with its place.
    pub fn facts(&self) -> Result<DomainFacts, DomainError> {
        self.with_tree(|document| {
            let root = document.root_element();
            let missing = |what: &str| DomainError::Missing { position: tree::position(root), what: what.to_owned() };
            let (memory, current_memory) = memory::read(document)?;
            Ok(DomainFacts {
                name: tree::child_text(root, "name").ok_or_else(|| missing("<name>"))?,
                uuid: tree::child_text(root, "uuid"),
                kind: tree::attribute(root, "type").ok_or_else(|| missing("domain/@type"))?,
                memory,
                current_memory,
                vcpus: vcpu::read(document)?,
                vcpu_pins: cputune::vcpu_pins(document)?.into_iter().collect(),
                emulator_pin: cputune::emulator_pin(document)?,
                iothreads: iothreads::read(document)?,
                numatune: numatune::read(document)?,
                hugepages: memory_backing::read(document)?,
                cells: cells::read(document)?,
                disks: disk::read(document)?,
                interfaces: interface::read(document)?,
                hostdevs: hostdev::read(document)?,
                has_agent_channel: channel::has_agent(document),
                boot: boot::read(document),
                class: metadata::class(document),
                operating_system: metadata::operating_system(document),
                cpu: cpu::read(document)?,
                timers: clock::read(document),
                features: features::read(document),
                scheduling: scheduling::read(document)?,
                cache_parts: scheduling::cache_parts(document)?,
                memory_policy: memory_policy::read(document)?,
                peripherals: peripherals::read(document)?,
                legacy_assignment: hostdev::legacy(document)?,
                functions: functions::read(document)?,
            })
        })
    }
}
