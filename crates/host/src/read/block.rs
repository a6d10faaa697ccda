//! Block devices, the PCI function each hangs on, and their counters.
//!
//! Documentation/ABI/stable/sysfs-block; counters in Documentation/block/stat.rst.

use nearmetal_units::{Bytes, PciAddress};

use super::pci::{function_in_path, node_of};
use super::tuning;
use crate::facts::{Facts, index_after, parsed};
use crate::parse::{Parsed, bracketed, flag, malformed, number, word};
use crate::{BlockDevice, HostFs, PciDevice, ReadError};

const ROOT: &str = "/sys/class/block";

/// `size`, `start` and the counters are in these, whatever the device's block size is.
const SECTOR: u64 = 512;

/// What a disk has done since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Completed reads.
    pub reads: u64,
    /// 512-byte sectors read.
    pub sectors_read: u64,
    /// Completed writes.
    pub writes: u64,
    /// 512-byte sectors written.
    pub sectors_written: u64,
    /// Requests that are with the driver now.
    pub in_flight: u64,
}

/// Counters of a disk or partition by kernel name (`nvme0n1`).
///
/// # Errors
/// No such disk, or counters that make no sense.
pub fn disk_counters(fs: &HostFs, name: &str) -> Result<DiskCounters, ReadError> {
    let path = format!("{ROOT}/{name}/stat");
    parsed(&path, &fs.read(&path)?, counters)
}

pub(super) fn counters(text: &str) -> Parsed<DiskCounters> {
    let Some(line) = text.strip_suffix('\n') else { return malformed("cut off: the last line has no newline") };
    let fields: Vec<u64> = line.split_ascii_whitespace().map(number).collect::<Parsed<_>>()?;
    match fields[..] {
        [reads, _, sectors_read, _, writes, _, sectors_written, _, in_flight, _, _, ..] => {
            Ok(DiskCounters { reads, sectors_read, writes, sectors_written, in_flight })
        }
        _ => malformed(format!("{} counters where at least 11 were expected", fields.len())),
    }
}

pub(super) fn read(facts: &mut Facts<'_>, functions: &[PciDevice]) -> Vec<BlockDevice> {
    let names = facts.list(ROOT);
    // Paths of a multipath NVMe namespace (nvme0c1n1) are hidden: nothing can open them.
    let (hidden, visible): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| facts.optional(&format!("{ROOT}/{name}/hidden"), flag) == Some(true));
    visible.into_iter().map(|name| read_device(facts, name, functions, &hidden)).collect()
}

fn read_device(facts: &mut Facts<'_>, name: String, functions: &[PciDevice], hidden: &[String]) -> BlockDevice {
    let root = format!("{ROOT}/{name}");
    let place = facts.fs.resolve(&root);
    let place = facts.noted(place).unwrap_or_default();
    let partition_of = facts
        .fs
        .exists(&format!("{root}/partition"))
        .then(|| place.rsplit('/').nth(1).unwrap_or_default().to_owned())
        .filter(|parent| !parent.is_empty());
    // Queues belong to the whole device.
    let whole = partition_of.as_ref().map_or_else(|| root.clone(), |parent| format!("{ROOT}/{parent}"));
    // A multipath namespace hands requests on as they come; queues and scheduler are its paths'.
    let served_by = hidden.iter().find(|path| is_path_of(path, partition_of.as_deref().unwrap_or(&name))).cloned();
    let serving = served_by.as_ref().map_or_else(|| whole.clone(), |path| format!("{ROOT}/{path}"));
    let bytes =
        |facts: &mut Facts<'_>, file: &str| facts.optional(&format!("{whole}/queue/{file}"), number).map(Bytes::new);
    let requests = match partition_of {
        Some(_) => None,
        None => requests(facts, &format!("{root}/stat")),
    };
    let paths = pci_paths(facts, &place, partition_of.as_deref().unwrap_or(&name));
    let pci = first_physical(&paths, functions);
    BlockDevice {
        size: facts.optional(&format!("{root}/size"), number).map(|sectors| Bytes::new(SECTOR).times(sectors)),
        number: facts.optional(&format!("{root}/dev"), device_number),
        rotational: facts.optional(&format!("{whole}/queue/rotational"), flag),
        scheduler: facts.optional(&format!("{serving}/queue/scheduler"), bracketed),
        queues: hardware_queues(facts, &serving),
        served_by,
        logical_block: bytes(facts, "logical_block_size"),
        physical_block: bytes(facts, "physical_block_size"),
        pci,
        node: node_of(functions, pci),
        paths,
        holders: facts.list(&format!("{root}/holders")),
        parts: facts.list(&format!("{root}/slaves")),
        mapping: facts.optional(&format!("{root}/dm/uuid"), |text| Ok(mapping(text))).flatten(),
        mapped_name: facts.optional(&format!("{root}/dm/name"), word),
        queue: tuning::queue(facts, &whole),
        raid_level: facts.optional(&format!("{root}/md/level"), word),
        start: facts.optional(&format!("{root}/start"), number).map(|sectors| Bytes::new(SECTOR).times(sectors)),
        optimal_io: bytes(facts, "optimal_io_size").filter(|size| *size > Bytes::ZERO),
        requests,
        partition_of,
        name,
    }
}

fn requests(facts: &mut Facts<'_>, path: &str) -> Option<u64> {
    let text = facts.text(path)?;
    let read = facts.noted(parsed(path, &text, counters))?;
    Some(read.reads.saturating_add(read.writes))
}

/// `LVM-…`, `CRYPT-LUKS2-…`, `part1-mpath-…`: the first word says what maps it. Some have no identity.
fn mapping(uuid: &str) -> Option<String> {
    uuid.split('-').next().filter(|word| !word.is_empty()).map(str::to_owned)
}

pub(super) fn device_number(text: &str) -> Parsed<String> {
    match text.split_once(':') {
        Some((major, minor)) if number(major).is_ok() && number(minor).is_ok() => Ok(text.to_owned()),
        _ => malformed("expected MAJOR:MINOR"),
    }
}

/// Whether a hidden device (nvme0c1n1) is a path of this one (nvme0n1).
fn is_path_of(path: &str, whole: &str) -> bool {
    let Some((subsystem, rest)) = path.split_once('c') else { return false };
    let Some((controller, namespace)) = rest.split_once('n') else { return false };
    number(controller).is_ok()
        && whole.strip_prefix(subsystem).and_then(|rest| rest.strip_prefix('n')) == Some(namespace)
}

/// Directories `mq/0`, `mq/1`, …; drivers without queues of the hardware have none.
fn hardware_queues(facts: &mut Facts<'_>, root: &str) -> Option<u32> {
    let queues = facts.list(&format!("{root}/mq")).iter().filter(|name| number(name).is_ok()).count();
    u32::try_from(queues).ok().filter(|queues| *queues > 0)
}

/// PCI functions that lead to a device.
///
/// A multipath NVMe namespace lies under its subsystem (/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1), not
/// under a controller. The subsystem has a link to each of its controllers, and a controller that reaches the namespace
/// has a directory named for the path: nvme0c1n1 for nvme0n1 through controller 1.
fn pci_paths(facts: &mut Facts<'_>, place: &str, whole: &str) -> Vec<PciAddress> {
    if let Some(address) = function_in_path(place) {
        return vec![address];
    }
    let Some(subsystem) = subsystem_in_path(place) else { return Vec::new() };
    let mut paths = Vec::new();
    let mut reaching = Vec::new();
    for name in facts.list(subsystem) {
        let Some(controller) = index_after(&name, "nvme") else { continue };
        let resolved = facts.fs.resolve(&format!("{subsystem}/{name}"));
        let Some(resolved) = facts.noted(resolved) else { continue };
        let Some(address) = function_in_path(&resolved) else { continue };
        paths.push(address);
        if path_name(whole, controller).is_some_and(|path| facts.fs.exists(&format!("{resolved}/{path}"))) {
            reaching.push(address);
        }
    }
    let mut paths = if reaching.is_empty() { paths } else { reaching };
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The part of a path up to its NVMe subsystem: `…/nvme-subsystem/nvme-subsys0`.
fn subsystem_in_path(place: &str) -> Option<&str> {
    let start = place.find("/nvme-subsystem/")? + "/nvme-subsystem/".len();
    let end = place[start..].find('/').map_or(place.len(), |length| start + length);
    Some(&place[..end])
}

/// `nvme0n1` through controller 3 is `nvme0c3n1`.
fn path_name(namespace: &str, controller: u32) -> Option<String> {
    let (subsystem, number) = namespace.strip_prefix("nvme")?.split_once('n')?;
    Some(format!("nvme{subsystem}c{controller}n{number}"))
}

/// The first that is not a virtual function, or else the first: the namespace belongs where the drive is.
fn first_physical(paths: &[PciAddress], functions: &[PciDevice]) -> Option<PciAddress> {
    let is_virtual = |address: &PciAddress| {
        functions.iter().any(|function| function.address == *address && function.physical_function.is_some())
    };
    paths.iter().find(|address| !is_virtual(address)).or(paths.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_complete_or_refused() {
        let line = "     100        1     2000       10       50        2      800       20        3       30       40        0 0 0 0 0 0\n";
        let read = counters(line).unwrap();
        assert_eq!(
            (read.reads, read.sectors_read, read.writes, read.sectors_written, read.in_flight),
            (100, 2000, 50, 800, 3)
        );
        for junk in ["", "1 2 3\n", "1 2 3 4 5 6 7 8 9 10 11", "1 2 3 4 5 6 7 8 9 10 x\n"] {
            assert!(counters(junk).is_err(), "{junk:?}");
        }
    }

    #[test]
    fn the_subsystem_of_a_namespace_and_of_its_partition_is_the_same() {
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        for tail in ["/nvme0n1", "/nvme0n1/nvme0n1p1", ""] {
            assert_eq!(subsystem_in_path(&format!("{subsystem}{tail}")), Some(subsystem));
        }
        assert_eq!(subsystem_in_path("/sys/devices/virtual/block/loop0"), None);
    }

    #[test]
    fn a_path_is_named_for_subsystem_controller_and_namespace() {
        assert_eq!(path_name("nvme0n1", 3).as_deref(), Some("nvme0c3n1"));
        assert_eq!(path_name("sda", 0), None);
        assert!(device_number("8:x").is_err() && device_number("259:0").is_ok());
    }
}
