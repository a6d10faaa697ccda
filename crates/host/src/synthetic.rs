//! Hosts that nobody owns, for tests: any number of packages, nodes, cache domains, cores and threads, with devices.
//!
//! ```
//! use nearmetal_host::synthetic::{Numbering, Synthetic};
//! let host = Synthetic::new().packages(2).cores_per_node(4).threads(2).numbering(Numbering::Split).nvme(1).build();
//! assert_eq!(host.processors[0].siblings.as_ref().map(ToString::to_string).as_deref(), Some("0,8"));
//! ```

use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};

use crate::lab_counters::DEVICES;
use crate::{
    BlockDevice, Cache, CacheKind, Core, CpuGroup, Entry, GuestProcess, Host, HugepagePool, MemoryTree,
    NetworkInterface, NumaNode, PciDevice, Processor, SriovState, System, TreeError,
};

/// The files by which a lab that counts is known: its vendor in the firmware's tables, and the device whose memory is the page
/// of counts.
///
/// # Errors
/// More words than a file of a tree may hold.
pub fn counting_lab(vendor: &str, words: &[u64]) -> Result<MemoryTree, TreeError> {
    let device = format!("{DEVICES}/0000:00:05.0");
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut tree = MemoryTree::new();
    for (path, bytes) in [
        ("/sys/class/dmi/id/sys_vendor".to_owned(), format!("{vendor}\n").into_bytes()),
        (format!("{device}/vendor"), b"0x1af4\n".to_vec()),
        (format!("{device}/device"), b"0x1110\n".to_vec()),
        (format!("{device}/resource2"), bytes),
    ] {
        tree.put(&path, Entry::File(bytes))?;
    }
    Ok(tree)
}

/// How firmware numbers PUs. Arithmetic on indices is right on one kind of machine and wrong on the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// PUs of a core follow each other: 0,1 are siblings (POWER, ARM, many virtual machines).
    Adjacent,
    /// All first threads, then all second threads: 0 and `cores` are siblings (most Intel and AMD machines).
    Split,
    /// As `Split`, and cores dealt over the nodes in turn: node 0 of 4 has 0, 4, 8, … (Dell servers).
    Dealt,
}

/// What one device is to be; addresses and names are given at [`Synthetic::build`].
#[derive(Debug, Clone, Copy)]
enum Device {
    Nvme { total_vfs: u32 },
    Network { total_vfs: u32, vfs: u32 },
}

/// A description of a host. Every setting has a default: 1 package, 1 node, 2 cores, no SMT, 4 GiB, no devices.
#[derive(Debug, Clone)]
pub struct Synthetic {
    packages: u32,
    nodes_per_package: u32,
    caches_per_node: u32,
    cores_per_node: u32,
    threads: u32,
    numbering: Numbering,
    memory_per_node: Bytes,
    pools: Vec<(PageSize, u64)>,
    iommu: bool,
    devices: Vec<(u32, Device)>,
    guests: Vec<GuestProcess>,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            packages: 1,
            nodes_per_package: 1,
            caches_per_node: 1,
            cores_per_node: 2,
            threads: 1,
            numbering: Numbering::Adjacent,
            memory_per_node: Bytes::from_mib(4096),
            pools: vec![(PageSize::HUGE_2M, 0), (PageSize::HUGE_1G, 0)],
            iommu: true,
            devices: Vec::new(),
            guests: Vec::new(),
        }
    }
}

impl Synthetic {
    /// One package, one node, two cores, no SMT, 4 GiB, empty pools of 2 MiB and 1 GiB, an IOMMU, no devices.
    pub fn new() -> Self {
        Self::default()
    }

    /// Packages (sockets).
    pub fn packages(mut self, count: u32) -> Self {
        self.packages = count.max(1);
        self
    }

    /// NUMA nodes in each package.
    pub fn nodes_per_package(mut self, count: u32) -> Self {
        self.nodes_per_package = count.max(1);
        self
    }

    /// Last-level caches in each node. Cores are dealt to them in equal blocks.
    pub fn caches_per_node(mut self, count: u32) -> Self {
        self.caches_per_node = count.max(1);
        self
    }

    /// Cores in each node.
    pub fn cores_per_node(mut self, count: u32) -> Self {
        self.cores_per_node = count.max(1);
        self
    }

    /// PUs in each core.
    pub fn threads(mut self, count: u32) -> Self {
        self.threads = count.max(1);
        self
    }

    /// How PUs are numbered.
    pub fn numbering(mut self, numbering: Numbering) -> Self {
        self.numbering = numbering;
        self
    }

    /// Memory of each node, pools included.
    pub fn memory_per_node(mut self, memory: Bytes) -> Self {
        self.memory_per_node = memory;
        self
    }

    /// Pages of one size in each node's pool, all free. Replaces an earlier setting of the same size.
    pub fn pool(mut self, size: PageSize, pages: u64) -> Self {
        self.pools.retain(|(other, _)| *other != size);
        self.pools.push((size, pages));
        self.pools.sort_unstable();
        self
    }

    /// Without an IOMMU: devices have no groups.
    pub fn without_iommu(mut self) -> Self {
        self.iommu = false;
        self
    }

    /// An NVMe drive of 100 GiB on a node: a PCI function and `nvmeNn1`, N counting from 0.
    pub fn nvme(self, node: u32) -> Self {
        self.device(node, Device::Nvme { total_vfs: 0 })
    }

    /// An NVMe drive that can have virtual functions, none made yet.
    pub fn nvme_with_sriov(self, node: u32, total_vfs: u32) -> Self {
        self.device(node, Device::Nvme { total_vfs })
    }

    /// A network card on a node: a PCI function and `ethN`, N counting from 0; with SR-IOV if `total_vfs` is not 0, and
    /// `vfs` of them made, without a driver.
    pub fn network(self, node: u32, total_vfs: u32, vfs: u32) -> Self {
        self.device(node, Device::Network { total_vfs, vfs: vfs.min(total_vfs) })
    }

    /// A running guest.
    pub fn guest(mut self, guest: GuestProcess) -> Self {
        self.guests.push(guest);
        self
    }

    fn device(mut self, node: u32, device: Device) -> Self {
        self.devices.push((node, device));
        self
    }

    fn nodes(&self) -> u32 {
        self.packages * self.nodes_per_package
    }

    /// The host. Distances: 10 local, 12 inside the package, 20 beyond.
    pub fn build(&self) -> Host {
        let mut host = Host {
            source: "synthetic".to_owned(),
            system: System {
                hostname: Some("synthetic".to_owned()),
                kernel: Some("6.12.0-synthetic".to_owned()),
                boot_id: Some("00000000-0000-4000-8000-000000000000".to_owned()),
                processor_model: Some("Synthetic Processor".to_owned()),
                hypervisor: Some(false),
                numa_balancing: Some(1),
                io_uring_disabled: Some(0),
                transparent_hugepage: Some("madvise".to_owned()),
                ..System::default()
            },
            guests: self.guests.clone(),
            ..Host::default()
        };
        for node in 0..self.nodes() {
            self.add_node(&mut host, node);
        }
        host.processors.sort_by_key(|processor| processor.index);
        self.add_groups(&mut host);
        self.add_devices(&mut host);
        host
    }

    /// The index of a PU, from the core's place on the machine.
    fn cpu(&self, node: u32, core: u32, thread: u32) -> u32 {
        let cores = self.nodes() * self.cores_per_node;
        let place = node * self.cores_per_node + core;
        match self.numbering {
            Numbering::Adjacent => place * self.threads + thread,
            Numbering::Split => thread * cores + place,
            Numbering::Dealt => thread * cores + core * self.nodes() + node,
        }
    }

    fn add_node(&self, host: &mut Host, node: u32) {
        let package = node / self.nodes_per_package;
        let core_cpus = |core| -> CpuSet { (0..self.threads).map(|thread| self.cpu(node, core, thread)).collect() };
        let per_cache = self.cores_per_node.div_ceil(self.caches_per_node);
        for core in 0..self.cores_per_node {
            let cpus = core_cpus(core);
            let first = core / per_cache * per_cache;
            let cache: CpuSet = (first..(first + per_cache).min(self.cores_per_node))
                .flat_map(|other| core_cpus(other).iter().collect::<Vec<_>>())
                .collect();
            let number = (node % self.nodes_per_package) * self.cores_per_node + core;
            host.processors.extend(cpus.iter().map(|index| Processor {
                index,
                online: true,
                package: Some(package),
                core: Some(number),
                siblings: Some(cpus.clone()),
                last_level_cache: Some(cache.clone()),
                node: Some(node),
            }));
            host.cores.push(Core {
                package: Some(package),
                core: Some(number),
                cpus,
                node: Some(node),
                numbers: vec![number],
            });
        }
        let pools: Vec<HugepagePool> = self
            .pools
            .iter()
            .map(|(size, pages)| HugepagePool { size: *size, total: *pages, free: *pages, surplus: 0 })
            .collect();
        let pooled = pools.iter().fold(Bytes::ZERO, |sum, pool| sum.plus(pool.size.bytes().times(pool.total)));
        let distance = |other: u32| match other {
            _ if other == node => 10,
            _ if other / self.nodes_per_package == package => 12,
            _ => 20,
        };
        host.nodes.push(NumaNode {
            index: node,
            cpus: (0..self.cores_per_node).flat_map(|core| core_cpus(core).iter().collect::<Vec<_>>()).collect(),
            memory_total: Some(self.memory_per_node),
            memory_free: Some(self.memory_per_node.less(pooled)),
            memory_reclaimable: Some(Bytes::ZERO),
            distances: (0..self.nodes()).map(|other| (other, distance(other))).collect(),
            pools,
            ..NumaNode::default()
        });
    }

    /// Packages and caches: L1 and L2 of each core, L3 as set.
    fn add_groups(&self, host: &mut Host) {
        for package in 0..self.packages {
            let own = |processor: &&crate::Processor| processor.package == Some(package);
            let cpus = host.processors.iter().filter(own).map(|processor| processor.index).collect();
            host.packages.push(CpuGroup { number: Some(package), cpus });
        }
        let cache = |level, kind, kib, cpus: &CpuSet| Cache {
            level,
            kind: Some(kind),
            size: Some(Bytes::from_kib(kib)),
            line: Some(Bytes::new(64)),
            ways: Some(8),
            cpus: cpus.clone(),
        };
        for core in &host.cores {
            host.caches.push(cache(1, CacheKind::Data, 32, &core.cpus));
            host.caches.push(cache(1, CacheKind::Instruction, 32, &core.cpus));
            host.caches.push(cache(2, CacheKind::Unified, 1024, &core.cpus));
        }
        let last = host.processors.iter().filter_map(|processor| {
            processor.last_level_cache.as_ref().filter(|cache| cache.first() == Some(processor.index))
        });
        host.caches.extend(last.map(|cpus| cache(3, CacheKind::Unified, 32 << 10, cpus)));
        host.caches.sort_by_key(|cache| (cache.level, cache.kind, cache.cpus.first()));
    }

    fn add_devices(&self, host: &mut Host) {
        let mut group = 0;
        for (position, (node, device)) in self.devices.iter().enumerate() {
            let position = position as u32;
            // One bus for each device, one PCI domain for each 255 buses.
            let at = |slot: u32| PciAddress {
                domain: position / 255,
                bus: (position % 255 + 1) as u8,
                device: (slot / 8 % 32) as u8,
                function: (slot % 8) as u8,
            };
            let mut function = |slot: u32, id: (u32, u16, u16), driver: Option<&str>| {
                group += 1;
                PciDevice {
                    address: at(slot),
                    class: Some(id.0),
                    vendor: Some(id.1),
                    device: Some(id.2),
                    node: Some(*node),
                    driver: driver.map(str::to_owned),
                    iommu_group: self.iommu.then_some(group),
                    ..PciDevice::default()
                }
            };
            match *device {
                Device::Nvme { total_vfs } => {
                    let mut physical = function(0, (0x01_0802, 0x1b36, 0x0010), Some("nvme"));
                    physical.sriov = sriov(total_vfs, Vec::new());
                    host.pci_devices.push(physical);
                    host.block_devices.push(nvme_drive(host.block_devices.len(), at(0), *node));
                }
                Device::Network { total_vfs, vfs } => {
                    let mut physical = function(0, (0x02_0000, 0x8086, 0x10c9), Some("igb"));
                    physical.sriov = sriov(total_vfs, (1..=vfs).map(at).collect());
                    host.pci_devices.push(physical);
                    for slot in 1..=vfs {
                        let mut virtual_function = function(slot, (0x02_0000, 0x8086, 0x10ca), None);
                        virtual_function.physical_function = Some(at(0));
                        host.pci_devices.push(virtual_function);
                    }
                    host.network_interfaces.push(NetworkInterface {
                        name: format!("eth{}", host.network_interfaces.len()),
                        pci: Some(at(0)),
                        node: Some(*node),
                        driver: Some("igb".to_owned()),
                        receive_queues: Some(8),
                        transmit_queues: Some(8),
                        state: Some("up".to_owned()),
                        ..NetworkInterface::default()
                    });
                }
            }
        }
    }
}

fn sriov(total_vfs: u32, functions: Vec<PciAddress>) -> Option<SriovState> {
    (total_vfs > 0).then_some(SriovState { total_vfs, vfs: functions.len() as u32, functions })
}

fn nvme_drive(number: usize, address: PciAddress, node: u32) -> BlockDevice {
    BlockDevice {
        name: format!("nvme{number}n1"),
        size: Some(Bytes::from_mib(100 << 10)),
        number: Some(format!("259:{number}")),
        rotational: Some(false),
        scheduler: Some("none".to_owned()),
        queues: Some(16),
        logical_block: Some(Bytes::new(512)),
        physical_block: Some(Bytes::new(4096)),
        pci: Some(address),
        paths: vec![address],
        node: Some(node),
        ..BlockDevice::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siblings(host: &Host, cpu: u32) -> String {
        host.processor(cpu).and_then(|processor| processor.siblings.clone()).unwrap_or_default().to_string()
    }

    #[test]
    fn numberings_differ_and_every_cpu_is_there() {
        let host = Synthetic::new().packages(2).cores_per_node(4).threads(2);
        let adjacent = host.clone().build();
        let split = host.clone().numbering(Numbering::Split).build();
        let dealt = host.numbering(Numbering::Dealt).build();
        assert_eq!((siblings(&adjacent, 0), siblings(&split, 0)), ("0-1".to_owned(), "0,8".to_owned()));
        assert_eq!(split.nodes[0].cpus.to_string(), "0-3,8-11");
        assert_eq!(dealt.nodes[0].cpus.to_string(), "0,2,4,6,8,10,12,14");
        for host in [adjacent, split, dealt] {
            assert_eq!(host.online().to_string(), "0-15");
            assert_eq!(host.cores.len(), 8);
        }
    }

    #[test]
    fn devices_hang_on_their_nodes() {
        let host = Synthetic::new().packages(4).nvme(2).network(1, 7, 3).nvme_with_sriov(3, 4).build();
        assert_eq!(host.block_device("nvme0n1").and_then(|disk| disk.node), Some(2));
        assert_eq!(host.block_device("nvme1n1").and_then(|disk| disk.node), Some(3));
        let functions: Vec<_> = host.pci_devices.iter().filter(|device| device.physical_function.is_some()).collect();
        assert_eq!(functions.len(), 3);
        assert_eq!(host.pci_devices[1].sriov.as_ref().map(|state| (state.total_vfs, state.vfs)), Some((7, 3)));
    }

    #[test]
    fn pools_take_their_memory_from_the_node() {
        let host = Synthetic::new().pool(PageSize::HUGE_2M, 1024).build();
        let node = &host.nodes[0];
        assert_eq!(node.memory_free, Some(Bytes::from_mib(2048)));
        assert_eq!(node.pool(PageSize::HUGE_2M).map(HugepagePool::persistent), Some(1024));
        assert_eq!(node.pool(PageSize::HUGE_1G).map(HugepagePool::persistent), Some(0));
    }
}
