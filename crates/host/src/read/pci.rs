//! PCI functions: class, node, driver, IOMMU group, SR-IOV.
//!
//! Documentation/ABI/testing/sysfs-bus-pci.

use nearmetal_units::{CpuSet, PciAddress};

use super::pci_details;
use crate::facts::{Facts, attribute, parsed};
use crate::parse::{Malformed, Parsed, cpu_list, cpu_mask, flag, hex, index_or_none, malformed, number_u32, word};
use crate::{NumaNode, PciDevice, SriovState};

const ROOT: &str = "/sys/bus/pci/devices";

pub(super) fn read(facts: &mut Facts<'_>, nodes: &[NumaNode]) -> Vec<PciDevice> {
    let mut devices = Vec::new();
    let consoles = consoles(facts);
    for name in facts.list(ROOT) {
        let address = parsed(&format!("{ROOT}/{name}"), &name, |name| Ok(name.parse::<PciAddress>()?));
        if let Some(address) = facts.noted(address) {
            devices.push(read_function(facts, address, &format!("{ROOT}/{name}"), nodes, consoles.as_deref()));
        }
    }
    devices.sort_by_key(|device| device.address);
    devices
}

/// The PCI function a path of /sys/devices lies under: the last of its parts that is a full address.
pub(super) fn function_in_path(path: &str) -> Option<PciAddress> {
    path.rsplit('/')
        .find(|part| part.matches(':').count() == 2 && part.contains('.'))
        .and_then(|part| part.parse().ok())
}

/// Node of a function among those read.
pub(super) fn node_of(devices: &[PciDevice], address: Option<PciAddress>) -> Option<u32> {
    let address = address?;
    let position = devices.binary_search_by_key(&address, |device| device.address).ok()?;
    devices[position].node
}

fn read_function(
    facts: &mut Facts<'_>,
    address: PciAddress,
    root: &str,
    nodes: &[NumaNode],
    consoles: Option<&[PciAddress]>,
) -> PciDevice {
    let path = |name: &str| format!("{root}/{name}");
    let physical_function = link_address(facts, &path("physfn"));
    let class = facts.required(&path("class"), class);
    let is_bridge = class.is_some_and(|class| class >> 8 == 0x0604);
    let driver = facts.link_name(&path("driver"));
    let iommu_group = iommu_group(facts, &path("iommu_group"));
    let mut device = PciDevice {
        address,
        class,
        vendor: facts.required(&path("vendor"), identity),
        device: facts.required(&path("device"), identity),
        node: node(facts, root, nodes),
        driver,
        iommu_group,
        sriov: sriov(facts, root),
        physical_function,
        parent: parent(facts, root, address),
        link: pci_details::link(facts, root),
        resets: pci_details::resets(facts, root),
        bars: pci_details::bars(facts, root),
        access_control: if is_bridge { pci_details::access_control(facts, root) } else { None },
        dma_domain: None,
        console: None,
    };
    if let Some(group) = device.iommu_group.filter(|_| device.kind().is_some() || device.sriov.is_some()) {
        device.dma_domain = facts.optional(&format!("/sys/kernel/iommu_groups/{group}/type"), word);
    }
    device.console = console(facts, &device, root, consoles);
    device
}

/// Base class and subclass of serial ports.
const SERIAL: u32 = 0x0700;

/// Serial ports that are consoles, by function: /proc/consoles, `ttyS0  -W- (EC p a)  4:64`.
fn consoles(facts: &mut Facts<'_>) -> Option<Vec<PciAddress>> {
    let text = facts.text("/proc/consoles")?;
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_ascii_whitespace().next()).collect();
    let paths = names.iter().filter(|name| name.starts_with("tty")).filter_map(|name| {
        let path = facts.fs.resolve(&format!("/sys/class/tty/{name}"));
        facts.noted(path)
    });
    Some(paths.filter_map(|path| function_in_path(&path)).collect())
}

fn console(facts: &mut Facts<'_>, device: &PciDevice, root: &str, consoles: Option<&[PciAddress]>) -> Option<bool> {
    match device.class? >> 8 {
        0x0300..=0x03ff => facts.optional(&format!("{root}/boot_vga"), flag),
        SERIAL => consoles.map(|all| all.contains(&device.address)),
        _ => None,
    }
}

/// 24 bits: base class, subclass, programming interface.
pub(super) fn class(text: &str) -> Parsed<u32> {
    match u32::try_from(hex(text)?) {
        Ok(class) if class <= 0xff_ffff => Ok(class),
        _ => malformed("expected a class of 24 bits"),
    }
}

pub(super) fn identity(text: &str) -> Parsed<u16> {
    u16::try_from(hex(text)?).map_err(|_| Malformed("expected an identity of 16 bits".to_owned()))
}

/// numa_node; where the kernel has no such file (some POWER kernels), the node that has all of the function's local
/// PUs. -1 is an answer: the firmware gave none, and the local PUs then are all there are.
fn node(facts: &mut Facts<'_>, root: &str, nodes: &[NumaNode]) -> Option<u32> {
    match attribute(facts.fs, &format!("{root}/numa_node"), index_or_none) {
        Ok(node) => node,
        Err(error) if error.is_missing() => {
            let mask = facts.optional(&format!("{root}/local_cpus"), cpu_mask);
            let local = mask.or_else(|| facts.optional(&format!("{root}/local_cpulist"), cpu_list))?;
            node_of_cpus(&local, nodes)
        }
        Err(error) => {
            facts.note(error);
            None
        }
    }
}

/// The node whose PUs these are: all of them, and of no other node.
fn node_of_cpus(cpus: &CpuSet, nodes: &[NumaNode]) -> Option<u32> {
    let mut touched = nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus));
    match (touched.next(), touched.next()) {
        (Some(node), None) if node.cpus.is_subset(cpus) => Some(node.index),
        _ => None,
    }
}

/// The function above it in the tree of devices. Trees put together by hand may have no links: no parent, then.
fn parent(facts: &mut Facts<'_>, root: &str, address: PciAddress) -> Option<PciAddress> {
    let target = facts.fs.link_target(root).ok()?;
    let (above, _) = target.rsplit_once('/')?;
    let name = above.rsplit('/').next()?;
    name.parse().ok().filter(|parent: &PciAddress| name.contains('.') && *parent != address)
}

fn iommu_group(facts: &mut Facts<'_>, path: &str) -> Option<u32> {
    let name = facts.link_name(path)?;
    let group = parsed(path, &name, number_u32);
    facts.noted(group)
}

fn link_address(facts: &mut Facts<'_>, path: &str) -> Option<PciAddress> {
    let name = facts.link_name(path)?;
    let address = parsed(path, &name, |name| Ok(name.parse::<PciAddress>()?));
    facts.noted(address)
}

fn sriov(facts: &mut Facts<'_>, root: &str) -> Option<SriovState> {
    let total_vfs = facts.optional(&format!("{root}/sriov_totalvfs"), number_u32)?;
    let vfs = facts.required(&format!("{root}/sriov_numvfs"), number_u32)?;
    let mut functions = Vec::new();
    // A damaged count must not turn into 2^32 look-ups: PCI allows 65536 functions a domain.
    for index in 0..vfs.min(65_536) {
        match link_address(facts, &format!("{root}/virtfn{index}")) {
            Some(address) => functions.push(address),
            None => break,
        }
    }
    Some(SriovState { total_vfs, vfs, functions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    #[test]
    fn the_function_is_the_last_address_of_a_path() {
        for (path, expected) in [
            ("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1", Some("0000:01:00.0")),
            ("/sys/devices/pci0000:00/0000:00:1f.2/host4/target4:0:0/4:0:0:0/block/sda", Some("0000:00:1f.2")),
            ("/sys/devices/pci0000:00/0000:00:05.0/virtio3/block/vda", Some("0000:00:05.0")),
            ("/sys/devices/virtual/block/loop0", None),
            ("/sys/devices/pci0000:00", None),
        ] {
            assert_eq!(function_in_path(path).map(|address| address.to_string()).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn local_cpus_name_a_node_only_if_they_are_its_own() {
        let nodes = Synthetic::new().packages(2).build().nodes;
        assert_eq!(node_of_cpus(&"2-3".parse().unwrap(), &nodes), Some(1));
        assert_eq!(node_of_cpus(&"0-3".parse().unwrap(), &nodes), None);
        assert_eq!(node_of_cpus(&"2".parse().unwrap(), &nodes), None);
        assert_eq!(node_of_cpus(&CpuSet::new(), &nodes), None);
    }

    #[test]
    fn identities_fit_their_width() {
        assert_eq!(class("0x010802"), Ok(0x01_0802));
        assert!(class("0x1010802").is_err() && identity("0x18086").is_err() && identity("8086").is_err());
    }
}
