//! The files of /sys and /proc that a description in another format comes to.
//!
//! Only what the description says gets a file: what has none is unknown to the readers.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_host::{Entry, MemoryTree, TreeError};
use nearmetal_units::{Bytes, CpuSet, PciAddress};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// What is known of a machine.
#[derive(Debug, Default)]
pub(crate) struct Description {
    /// PUs that are online, by index.
    pub(crate) pus: BTreeMap<u32, Pu>,
    /// NUMA nodes by index.
    pub(crate) nodes: BTreeMap<u32, Node>,
    /// PCI functions.
    pub(crate) pci: Vec<Pci>,
    /// Memory of the whole machine, where there are no nodes.
    pub(crate) memory: Option<Bytes>,
    /// Other files: path and text, without the newline.
    pub(crate) texts: Vec<(String, String)>,
}

/// A PU.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pu {
    pub(crate) package: Option<u32>,
    pub(crate) die: Option<u32>,
    pub(crate) core: Option<u32>,
    pub(crate) siblings: Option<CpuSet>,
    /// Caches it uses.
    pub(crate) caches: Vec<Cache>,
}

/// A cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cache {
    pub(crate) level: u32,
    /// `Data`, `Instruction` or `Unified`, as the kernel says it.
    pub(crate) kind: &'static str,
    pub(crate) size: Option<Bytes>,
    pub(crate) cpus: CpuSet,
}

/// A NUMA node.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) cpus: CpuSet,
    pub(crate) memory: Option<Bytes>,
    /// SLIT distances, to each node by rising index.
    pub(crate) distances: Vec<u32>,
    /// Huge pages there are: page size in KiB, pages.
    pub(crate) pools: Vec<(u64, u64)>,
}

/// A PCI function.
#[derive(Debug, Default)]
pub(crate) struct Pci {
    pub(crate) address: Option<PciAddress>,
    /// Its place under /sys/devices, if told.
    pub(crate) place: Option<String>,
    pub(crate) class: Option<u32>,
    pub(crate) vendor: Option<u16>,
    pub(crate) device: Option<u16>,
    /// -1 where the source says that the firmware gave none; `None` where it does not say.
    pub(crate) node: Option<i64>,
    /// PUs next to it.
    pub(crate) local: Option<CpuSet>,
    pub(crate) driver: Option<String>,
    pub(crate) iommu_group: Option<u32>,
    pub(crate) physical_function: Option<PciAddress>,
    /// VFs it can have, and those it has.
    pub(crate) virtual_functions: Option<(u32, Vec<PciAddress>)>,
    /// Block devices on it: name, bytes, extra files below the device.
    pub(crate) blocks: Vec<(String, Option<Bytes>)>,
    /// Network interfaces on it: name, state.
    pub(crate) interfaces: Vec<(String, Option<String>)>,
}

impl Pci {
    fn place(&self, address: PciAddress) -> String {
        match &self.place {
            Some(place) if place.starts_with("/sys/devices/") => place.clone(),
            // The bridges on the way are left out: no reader asks for them.
            _ => format!("/sys/devices/pci{:04x}:00/{address}", address.domain),
        }
    }
}

/// A tree in the making.
struct Files {
    tree: MemoryTree,
}

impl Files {
    fn text(&mut self, path: &str, text: impl std::fmt::Display) -> Result<(), TreeError> {
        self.tree.put(path, Entry::File(format!("{text}\n").into_bytes()))
    }

    fn optional<T: std::fmt::Display>(&mut self, path: &str, text: Option<T>) -> Result<(), TreeError> {
        text.map_or(Ok(()), |text| self.text(path, text))
    }

    /// A link at `path` to `target`, both from the top; written the relative way, as sysfs does.
    fn link(&mut self, path: &str, target: &str) -> Result<(), TreeError> {
        let up = "../".repeat(path.matches('/').count() - 1);
        self.tree.put(path, Entry::Link(format!("{up}{}", target.trim_start_matches('/'))))
    }
}

impl Description {
    /// The files.
    ///
    /// # Errors
    /// More, or longer names, than a tree takes.
    pub(crate) fn files(&self) -> Result<MemoryTree, TreeError> {
        let mut files = Files { tree: MemoryTree::new() };
        files.tree.put("/proc", Entry::Directory)?;
        let online: CpuSet = self.pus.keys().copied().collect();
        if !online.is_empty() {
            files.text(&format!("{CPU}/online"), &online)?;
        }
        for (index, pu) in &self.pus {
            processor(&mut files, &format!("{CPU}/cpu{index}"), pu)?;
        }
        for (index, node) in &self.nodes {
            self.node(&mut files, *index, node)?;
        }
        if let Some(memory) = self.memory {
            files.text("/proc/meminfo", format!("MemTotal: {} kB", memory.kib()))?;
        }
        for (path, text) in &self.texts {
            files.text(path, text)?;
        }
        let known: BTreeSet<PciAddress> = self.pci.iter().filter_map(|pci| pci.address).collect();
        for pci in &self.pci {
            function(&mut files, pci, &known)?;
        }
        Ok(files.tree)
    }

    fn node(&self, files: &mut Files, index: u32, node: &Node) -> Result<(), TreeError> {
        let root = format!("{NODE}/node{index}");
        files.text(&format!("{root}/cpulist"), &node.cpus)?;
        if let Some(memory) = node.memory {
            files.text(&format!("{root}/meminfo"), format!("Node {index} MemTotal: {} kB", memory.kib()))?;
        }
        if node.distances.len() == self.nodes.len() {
            let row: Vec<_> = node.distances.iter().map(ToString::to_string).collect();
            files.text(&format!("{root}/distance"), row.join(" "))?;
        }
        for (kib, pages) in &node.pools {
            files.text(&format!("{root}/hugepages/hugepages-{kib}kB/nr_hugepages"), pages)?;
        }
        Ok(())
    }
}

fn processor(files: &mut Files, root: &str, pu: &Pu) -> Result<(), TreeError> {
    files.tree.put(&format!("{root}/topology"), Entry::Directory)?;
    files.optional(&format!("{root}/topology/physical_package_id"), pu.package)?;
    files.optional(&format!("{root}/topology/die_id"), pu.die)?;
    files.optional(&format!("{root}/topology/core_id"), pu.core)?;
    files.optional(&format!("{root}/topology/core_cpus_list"), pu.siblings.as_ref())?;
    files.optional(&format!("{root}/topology/thread_siblings_list"), pu.siblings.as_ref())?;
    for (index, cache) in pu.caches.iter().enumerate() {
        let root = format!("{root}/cache/index{index}");
        files.text(&format!("{root}/level"), cache.level)?;
        files.text(&format!("{root}/type"), cache.kind)?;
        files.optional(&format!("{root}/size"), cache.size.map(|size| format!("{}K", size.kib())))?;
        files.text(&format!("{root}/shared_cpu_list"), &cache.cpus)?;
    }
    Ok(())
}

fn function(files: &mut Files, pci: &Pci, known: &BTreeSet<PciAddress>) -> Result<(), TreeError> {
    let Some(address) = pci.address else { return Ok(()) };
    let place = pci.place(address);
    files.tree.put(&place, Entry::Directory)?;
    let listed = |address: PciAddress| format!("/sys/bus/pci/devices/{address}");
    files.link(&listed(address), &place)?;
    files.optional(&format!("{place}/class"), pci.class.map(|class| format!("0x{class:06x}")))?;
    files.optional(&format!("{place}/vendor"), pci.vendor.map(|vendor| format!("0x{vendor:04x}")))?;
    files.optional(&format!("{place}/device"), pci.device.map(|device| format!("0x{device:04x}")))?;
    files.optional(&format!("{place}/numa_node"), pci.node)?;
    files.optional(&format!("{place}/local_cpulist"), pci.local.as_ref())?;
    if let Some(driver) = pci.driver.as_ref().filter(|driver| !driver.contains('/')) {
        files.tree.put(&format!("/sys/bus/pci/drivers/{driver}"), Entry::Directory)?;
        files.link(&format!("{place}/driver"), &format!("/sys/bus/pci/drivers/{driver}"))?;
    }
    if let Some(group) = pci.iommu_group {
        files.tree.put(&format!("/sys/kernel/iommu_groups/{group}"), Entry::Directory)?;
        files.link(&format!("{place}/iommu_group"), &format!("/sys/kernel/iommu_groups/{group}"))?;
    }
    if let Some(physical) = pci.physical_function.filter(|physical| known.contains(physical)) {
        files.link(&format!("{place}/physfn"), &listed(physical))?;
    }
    if let Some((total, functions)) = &pci.virtual_functions {
        files.text(&format!("{place}/sriov_totalvfs"), total)?;
        files.text(&format!("{place}/sriov_numvfs"), functions.len())?;
        for (index, function) in functions.iter().filter(|function| known.contains(function)).enumerate() {
            files.link(&format!("{place}/virtfn{index}"), &listed(*function))?;
        }
    }
    for (name, size) in pci.blocks.iter().filter(|(name, _)| is_name(name)) {
        let device = format!("{place}/block/{name}");
        files.tree.put(&device, Entry::Directory)?;
        files.optional(&format!("{device}/size"), size.map(|size| size.get() / 512))?;
        files.link(&format!("/sys/class/block/{name}"), &device)?;
    }
    for (name, state) in pci.interfaces.iter().filter(|(name, _)| is_name(name)) {
        let device = format!("{place}/net/{name}");
        files.tree.put(&device, Entry::Directory)?;
        files.link(&format!("{device}/device"), &place)?;
        files.optional(&format!("{device}/operstate"), state.as_ref())?;
        files.link(&format!("/sys/class/net/{name}"), &device)?;
    }
    Ok(())
}

/// Whether a name is one directory's.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}
