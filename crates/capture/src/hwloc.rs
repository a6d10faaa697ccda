//! hwloc's XML (`lstopo --of xml`), versions 1 to 3, as the files of /sys and /proc it was made from.
//!
//! It does not say: free memory, hugepages in use, drivers, IOMMU groups, SR-IOV, schedulers, queues, settings of the
//! kernel, or what runs. hwloc's bridges have no entry here: they carry devices and are none that a guest could get.

use std::collections::BTreeMap;

use nearmetal_host::MemoryTree;
use nearmetal_units::{Bytes, CpuSet, PciAddress};

use crate::CaptureError;
use crate::sysfs::{Cache, Description, Node, Pci, Pu};
use crate::xml::{self, Element};

/// The files a topology comes to.
pub(crate) fn tree(name: &str, bytes: &[u8]) -> Result<MemoryTree, CaptureError> {
    let root = xml::parse(name, bytes)?;
    let wrong = |problem: String| CaptureError::Xml { name: name.to_owned(), position: 0, problem };
    if root.name != "topology" {
        return Err(wrong(format!("expected hwloc's `topology`, found `{}`", root.name)));
    }
    let version = root.attribute("version").and_then(|text| text.split('.').next()?.parse().ok()).unwrap_or(1);
    let mut reading = Reading { version, description: Description::default(), order: Vec::new() };
    for object in root.all("object") {
        reading.object(object, &Context::default()).map_err(wrong)?;
    }
    if reading.description.pus.is_empty() {
        return Err(wrong("it has no PU".to_owned()));
    }
    reading.members();
    reading.distances(&root).map_err(wrong)?;
    reading.texts(&root);
    reading.description.files().map_err(|source| CaptureError::Tree { name: name.to_owned(), source })
}

/// What lies around an object.
#[derive(Debug, Default, Clone)]
struct Context {
    pu: Pu,
    /// hwloc 1 puts packages and PUs below their node.
    node: Option<u32>,
    /// PUs of the nearest object that has some: devices are next to them.
    local: Option<CpuSet>,
    /// The PCI function an OS device belongs to.
    function: Option<usize>,
}

struct Reading {
    version: u32,
    description: Description,
    /// Nodes in the document's order: hwloc 1 numbers distances by it.
    order: Vec<u32>,
}

impl Reading {
    fn object(&mut self, object: &Element, context: &Context) -> Result<(), String> {
        let mut context = context.clone();
        let kind = object.attribute("type").unwrap_or_default();
        let index = number(object, "os_index")?;
        if let Some(mask) = object.attribute("cpuset") {
            context.local = mask_of(mask)?.or(context.local);
        }
        match kind {
            "Machine" => self.description.memory = bytes(object, "local_memory")?,
            "Package" | "Socket" => context.pu.package = index,
            "Die" => context.pu.die = index,
            "Core" => {
                context.pu.core = index;
                context.pu.siblings = context.local.clone();
            }
            "NUMANode" | "Node" => context.node = self.node(object, index, &context)?,
            "PU" => self.pu(index.ok_or("a PU without an os_index")?, &context),
            "PCIDev" => context.function = self.function(object, &context)?,
            "OSDev" => self.os_device(object, &context),
            _ if kind.ends_with("Cache") => context.pu.caches.extend(cache(kind, object, &context)?),
            _ => {}
        }
        object.all("object").try_for_each(|child| self.object(child, &context))
    }

    fn pu(&mut self, index: u32, context: &Context) {
        let mut pu = context.pu.clone();
        pu.caches.sort();
        self.description.pus.insert(index, pu);
        if let Some(node) = context.node.and_then(|node| self.description.nodes.get_mut(&node)) {
            node.cpus.insert(index);
        }
    }

    /// A node. Memory children say their PUs themselves; the nodes of hwloc 1 are around theirs, and say it too.
    fn node(&mut self, object: &Element, index: Option<u32>, context: &Context) -> Result<Option<u32>, String> {
        // A machine without NUMA has one node, which hwloc may leave unnumbered.
        let index = index.unwrap_or(0);
        let cpus = object.attribute("cpuset").map(mask_of).transpose()?.flatten();
        let mut node = Node { cpus: cpus.unwrap_or_default(), ..Node::default() };
        node.memory = bytes(object, "local_memory")?;
        for pages in object.all("page_type") {
            let (size, count) = (bytes(pages, "size")?, bytes(pages, "count")?);
            if let (Some(size), Some(count)) = (size.filter(|size| *size > Bytes::from_kib(64)), count) {
                node.pools.push((size.kib(), count.get()));
            }
        }
        if self.description.nodes.insert(index, node).is_some() {
            return Err(format!("two nodes have the os_index {index}"));
        }
        self.order.push(index);
        Ok(if context.node.is_none() { Some(index) } else { context.node })
    }

    fn function(&mut self, object: &Element, context: &Context) -> Result<Option<usize>, String> {
        let Some(address) = object.attribute("pci_busid") else { return Ok(None) };
        let address: PciAddress = address.parse().map_err(|error| format!("pci_busid: {error}"))?;
        let kind = object.attribute("pci_type").unwrap_or_default();
        let (class, vendor, device) = pci_type(kind).ok_or_else(|| format!("pci_type `{kind:.40}` of {address}"))?;
        let (class, vendor, device) = (Some(class), Some(vendor), Some(device));
        let local = context.local.clone();
        self.description.pci.push(Pci { address: Some(address), class, vendor, device, local, ..Pci::default() });
        Ok(Some(self.description.pci.len() - 1))
    }

    fn os_device(&mut self, object: &Element, context: &Context) {
        let (Some(function), Some(name)) = (context.function, object.attribute("name")) else { return };
        let kind: u32 = object.attribute("osdev_type").and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        let info = |wanted: &str| {
            object
                .all("info")
                .find(|info| info.attribute("name") == Some(wanted))
                .and_then(|info| info.attribute("value"))
        };
        // hwloc 3 has bits (1 storage, 16 network), hwloc 1 and 2 numbers (0 block, 2 network).
        let (block, network) = if self.version >= 3 { (1, 16) } else { (0, 2) };
        let Some(function) = self.description.pci.get_mut(function) else { return };
        if kind == block {
            let size = info("Size").and_then(|kib| kib.parse().ok()).map(Bytes::from_kib);
            function.blocks.push((name.to_owned(), size));
        } else if kind == network {
            function.interfaces.push((name.to_owned(), None));
        }
    }

    /// Sets cut down to the PUs there are: complete sets of hwloc are infinite.
    fn members(&mut self) {
        let online: CpuSet = self.description.pus.keys().copied().collect();
        for node in self.description.nodes.values_mut() {
            node.cpus = node.cpus.intersection(&online);
        }
        for (index, pu) in &mut self.description.pus {
            pu.siblings = pu.siblings.take().map(|set| set.intersection(&online)).filter(|set| set.contains(*index));
            pu.caches.iter_mut().for_each(|cache| cache.cpus = cache.cpus.intersection(&online));
        }
        for pci in &mut self.description.pci {
            // The whole machine is no place.
            pci.local = pci.local.take().map(|local| local.intersection(&online)).filter(|local| *local != online);
        }
        if self.description.nodes.len() == 1 {
            self.description.pci.iter_mut().for_each(|pci| pci.node = Some(0));
        }
    }

    fn distances(&mut self, root: &Element) -> Result<(), String> {
        for element in root.all("distances2") {
            let latency = element.attribute("name").is_none_or(|name| name == "NUMALatency");
            if element.attribute("type") == Some("NUMANode") && latency {
                let list = |name: &str| -> Result<Vec<u32>, String> {
                    let words = element.all(name).flat_map(|part| part.text.split_ascii_whitespace());
                    words
                        .map(|word| word.parse().map_err(|_| format!("{name}: `{word:.20}` is not a number")))
                        .collect()
                };
                let indices = match element.attribute("indexing") {
                    // By hwloc's own numbers of objects, which the os indices follow in no order: not used for nodes.
                    Some("gp") => continue,
                    _ => list("indexes")?,
                };
                return self.set_distances(&indices, &list("u64values")?);
            }
        }
        match find_old_distances(root, self.order.len()) {
            Some(values) => self.set_distances(&self.order.clone(), &values),
            None => Ok(()),
        }
    }

    /// A matrix, row by row, over these nodes.
    fn set_distances(&mut self, indices: &[u32], values: &[u32]) -> Result<(), String> {
        let count = indices.len();
        if values.len() != count * count {
            return Err(format!("{} distances for {count} nodes", values.len()));
        }
        let mut by_index: Vec<(u32, usize)> = indices.iter().copied().zip(0..).collect();
        by_index.sort_unstable();
        if by_index.iter().map(|(index, _)| index).ne(self.description.nodes.keys()) {
            return Err("the distances are between other nodes than there are".to_owned());
        }
        for (index, row) in &by_index {
            let distances = by_index.iter().map(|(_, column)| values[row * count + column]).collect();
            if let Some(node) = self.description.nodes.get_mut(index) {
                node.distances = distances;
            }
        }
        Ok(())
    }

    fn texts(&mut self, root: &Element) {
        let mut infos = BTreeMap::new();
        collect_infos(root, 4, &mut infos);
        for (key, path) in [("HostName", "/proc/sys/kernel/hostname"), ("OSRelease", "/proc/sys/kernel/osrelease")] {
            if let Some(value) = infos.get(key) {
                self.description.texts.push((path.to_owned(), value.to_string()));
            }
        }
        if let Some(model) = infos.get("CPUModel") {
            self.description.texts.push(("/proc/cpuinfo".to_owned(), format!("model name\t: {model}")));
        }
    }
}

/// The first value of every `info`, to a depth where machine and packages have theirs.
fn collect_infos<'a>(element: &'a Element, depth: usize, infos: &mut BTreeMap<&'a str, &'a str>) {
    for info in element.all("info") {
        if let (Some(name), Some(value)) = (info.attribute("name"), info.attribute("value")) {
            infos.entry(name).or_insert(value);
        }
    }
    if depth > 0 {
        element.all("object").for_each(|child| collect_infos(child, depth - 1, infos));
    }
}

/// hwloc 1: `<distances nbobjs="4" latency_base="10.0"><latency value="1.0"/>…` inside the machine.
fn find_old_distances(element: &Element, nodes: usize) -> Option<Vec<u32>> {
    for distances in element.all("distances") {
        let count: usize = distances.attribute("nbobjs")?.parse().ok()?;
        let base: f64 = distances.attribute("latency_base")?.parse().ok()?;
        if count == nodes && nodes > 1 {
            let value = |latency: &Element| {
                let value = latency.attribute("value")?.parse::<f64>().ok()? * base;
                (value.is_finite() && (0.0..=65_535.0).contains(&value)).then_some(value.round() as u32)
            };
            return distances.all("latency").map(value).collect();
        }
    }
    element.all("object").find_map(|child| find_old_distances(child, nodes))
}

/// `L2Cache`, `L1iCache`, and hwloc 1's `Cache` with its depth. `MemCache` is no cache of PUs.
fn cache(kind: &str, object: &Element, context: &Context) -> Result<Option<Cache>, String> {
    let level = match kind.strip_prefix('L').and_then(|rest| rest.chars().next()).and_then(|digit| digit.to_digit(10)) {
        Some(level) => level,
        None if kind == "Cache" => number(object, "depth")?.ok_or("a cache without a depth")?,
        None => return Ok(None),
    };
    let kind = match object.attribute("cache_type") {
        Some("1") => "Data",
        Some("2") => "Instruction",
        _ => "Unified",
    };
    let Some(cpus) = context.local.clone() else { return Ok(None) };
    Ok(Some(Cache { level, kind, size: bytes(object, "cache_size")?.filter(|size| *size > Bytes::ZERO), cpus }))
}

fn number(object: &Element, name: &str) -> Result<Option<u32>, String> {
    match object.attribute(name) {
        None => Ok(None),
        // hwloc writes 4294967295 where the system gave no number.
        Some(text) if text == "4294967295" || text == "-1" => Ok(None),
        Some(text) => match text.parse::<u32>() {
            Ok(number) if number <= 65_535 => Ok(Some(number)),
            _ => Err(format!("{name} `{text:.20}` is not an index (65535 at most)")),
        },
    }
}

fn bytes(object: &Element, name: &str) -> Result<Option<Bytes>, String> {
    let Some(text) = object.attribute(name) else { return Ok(None) };
    text.parse().map(|count| Some(Bytes::new(count))).map_err(|_| format!("{name} `{text:.20}` is not a number"))
}

/// hwloc's mask: `0x000000ff,,0x1`, highest group first, empty groups zero; `0xf...f` before means endlessly many,
/// and is then unknown.
fn mask_of(text: &str) -> Result<Option<CpuSet>, String> {
    if text.contains("...") {
        return Ok(None);
    }
    let groups: Vec<_> = text
        .split(',')
        .map(|group| group.strip_prefix("0x").unwrap_or(group))
        .map(|group| if group.is_empty() { "0" } else { group })
        .collect();
    CpuSet::parse_mask(&groups.join(",")).map(Some).map_err(|error| error.to_string())
}

/// `0200 [8086:1521] [00ff:0000] 01 00`: class, identity, subsystem, revision and, since hwloc 3, programming interface.
fn pci_type(text: &str) -> Option<(u32, u16, u16)> {
    let mut words = text.split_ascii_whitespace();
    let class = u32::from_str_radix(words.next()?, 16).ok().filter(|class| *class <= 0xffff)?;
    let (vendor, device) = words.next()?.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    let interface = words.nth(2).and_then(|word| u32::from_str_radix(word, 16).ok()).filter(|byte| *byte <= 0xff);
    let class = (class << 8) | interface.unwrap_or(0);
    Some((class, u16::from_str_radix(vendor, 16).ok()?, u16::from_str_radix(device, 16).ok()?))
}

#[cfg(test)]
mod tests;
