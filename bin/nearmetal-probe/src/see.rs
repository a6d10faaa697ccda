//! What a machine sees of itself. In a guest: the guest's side of the proof that it got what was planned.
//!
//! Nodes, CPUs, huge pages, PCI, block and network devices are the model of `nearmetal-host`, so that host and guest
//! are compared field by field. Added here is what matters to a measurement on either side.

use nearmetal_host::{Host, HostFs};
use nearmetal_units::{Bytes, CpuSet};
use serde::Serialize;

/// The machine as its kernel shows it.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Nodes, CPUs, pools, devices, kernel; what could not be understood is in its `unreadable`.
    pub host: Host,
    /// Where the kernel takes the time from.
    pub clock_source: ClockSource,
    /// Transparent huge pages.
    pub transparent_hugepages: TransparentHugepages,
    /// Last-level caches, one entry each. A guest's are what its hypervisor says.
    pub caches: Vec<Cache>,
    /// Drivers of whole block devices, innermost first: `virtio_blk` then `virtio-pci`, or `nvme`.
    pub block_drivers: Vec<BlockDrivers>,
}

/// /sys/devices/system/clocksource/clocksource0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ClockSource {
    /// In use: `tsc` and `kvm-clock` are read without entering the kernel; `hpet` and `acpi_pm` are exits in a guest.
    pub current: Option<String>,
    /// To be had.
    pub available: Vec<String>,
}

/// /sys/kernel/mm/transparent_hugepage; each the chosen (bracketed) word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TransparentHugepages {
    /// `always`, `madvise` or `never`.
    pub enabled: Option<String>,
    /// How hard a page fault tries: `always`, `defer`, `defer+madvise`, `madvise` or `never`.
    pub defrag: Option<String>,
    /// For shared memory: `always`, `within_size`, `advise`, `never`, …
    pub shared_memory: Option<String>,
}

/// One last-level cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// Level: 3 on most machines.
    pub level: u32,
    /// Size.
    pub bytes: Option<Bytes>,
    /// PUs that share it.
    pub cpus: CpuSet,
}

/// The drivers a block device goes through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockDrivers {
    /// Kernel name, `vda`.
    pub name: String,
    /// Innermost first.
    pub drivers: Vec<String>,
}

/// Looks at a machine, or at a captured tree. Never fails: what is not there is absent.
pub fn see(files: &HostFs) -> Seen {
    let host = Host::read(files);
    let caches = caches(files, &host.online());
    Seen {
        clock_source: clock_source(files),
        transparent_hugepages: transparent_hugepages(files),
        caches,
        block_drivers: block_drivers(files),
        host,
    }
}

fn line(files: &HostFs, path: &str) -> Option<String> {
    files.read(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn clock_source(files: &HostFs) -> ClockSource {
    const BASE: &str = "/sys/devices/system/clocksource/clocksource0";
    let available = line(files, &format!("{BASE}/available_clocksource")).unwrap_or_default();
    ClockSource {
        current: line(files, &format!("{BASE}/current_clocksource")),
        available: available.split_whitespace().map(str::to_owned).collect(),
    }
}

fn transparent_hugepages(files: &HostFs) -> TransparentHugepages {
    let chosen = |file: &str| {
        let text = line(files, &format!("/sys/kernel/mm/transparent_hugepage/{file}"))?;
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(word, _)| word.to_owned())
    };
    TransparentHugepages {
        enabled: chosen("enabled"),
        defrag: chosen("defrag"),
        shared_memory: chosen("shmem_enabled"),
    }
}

/// The last-level caches of these PUs, from /sys/devices/system/cpu/cpu*/cache; each once, however many share it.
pub fn caches(files: &HostFs, asked: &CpuSet) -> Vec<Cache> {
    let mut found: Vec<Cache> = Vec::new();
    for cpu in asked.iter() {
        if found.iter().any(|cache| cache.cpus.contains(cpu)) {
            continue;
        }
        let base = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        let indices = files.list(&base).unwrap_or_default();
        let of_cpu = indices.iter().filter(|name| name.starts_with("index")).filter_map(|index| {
            let read = |file: &str| line(files, &format!("{base}/{index}/{file}"));
            let level = read("level")?.parse().ok()?;
            let cpus: CpuSet = read("shared_cpu_list")?.parse().ok()?;
            let bytes = read("size").and_then(|size| size.parse().ok());
            cpus.contains(cpu).then_some(Cache { level, bytes, cpus })
        });
        found.extend(of_cpu.max_by_key(|cache| cache.level));
    }
    found
}

fn block_drivers(files: &HostFs) -> Vec<BlockDrivers> {
    /// Devices below one another: nvme has namespace, controller, PCI function.
    const DEPTH: usize = 4;
    let names = files.list("/sys/block").unwrap_or_default();
    let of_name = |name: String| {
        let mut path = files.resolve(&format!("/sys/block/{name}")).ok()?;
        let mut drivers = Vec::new();
        for _ in 0..DEPTH {
            let Ok(device) = files.resolve(&format!("{path}/device")) else { break };
            drivers.extend(files.link_name(&format!("{device}/driver")).ok());
            // A virtio device has no `device` link to the PCI function it sits on: it is in that function's directory.
            if let Some((function, _)) = device.rsplit_once('/').filter(|(_, last)| last.starts_with("virtio")) {
                drivers.extend(files.link_name(&format!("{function}/driver")).ok());
            }
            path = device;
        }
        (!drivers.is_empty()).then_some(BlockDrivers { name, drivers })
    };
    names.into_iter().filter_map(of_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::files::{create_dir_all, write};
    use std::path::Path;

    fn link(root: &Path, target: &str, place: &str) {
        let place = root.join(place);
        create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, place).unwrap();
    }

    /// A guest with one virtio disk, one NVMe drive and two caches.
    fn guest() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let cache = "sys/devices/system/cpu/cpu0/cache/index3";
        for (path, text) in [
            ("proc/version", "Linux"),
            ("sys/devices/system/cpu/present", "0-1\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            (&format!("{cache}/level"), "3\n"),
            (&format!("{cache}/size"), "16384K\n"),
            (&format!("{cache}/shared_cpu_list"), "0-1\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock tsc acpi_pm \n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/defrag", "damaged\n"),
            ("sys/devices/pci0000:00/0000:00:05.0/virtio1/block/vda/size", "8\n"),
            ("sys/devices/pci0000:00/0000:00:06.0/nvme/nvme0/nvme0n1/size", "8\n"),
            ("sys/devices/virtual/block/loop0/size", "0\n"),
        ] {
            create_dir_all(root.join(path).parent().unwrap()).unwrap();
            write(&root.join(path), text).unwrap();
        }
        for (target, place) in [
            ("../devices/pci0000:00/0000:00:05.0/virtio1/block/vda", "sys/block/vda"),
            ("../../../virtio1", "sys/devices/pci0000:00/0000:00:05.0/virtio1/block/vda/device"),
            ("../../../../bus/virtio/drivers/virtio_blk", "sys/devices/pci0000:00/0000:00:05.0/virtio1/driver"),
            ("../../../bus/pci/drivers/virtio-pci", "sys/devices/pci0000:00/0000:00:05.0/driver"),
            ("../devices/pci0000:00/0000:00:06.0/nvme/nvme0/nvme0n1", "sys/block/nvme0n1"),
            ("../../nvme0", "sys/devices/pci0000:00/0000:00:06.0/nvme/nvme0/nvme0n1/device"),
            ("../../../0000:00:06.0", "sys/devices/pci0000:00/0000:00:06.0/nvme/nvme0/device"),
            ("../../../bus/pci/drivers/nvme", "sys/devices/pci0000:00/0000:00:06.0/driver"),
            ("../devices/virtual/block/loop0", "sys/block/loop0"),
        ] {
            link(root, target, place);
        }
        directory
    }

    #[test]
    fn a_guest_sees_drivers_clock_and_caches() {
        let root = guest();
        let files = HostFs::at(root.path()).unwrap();
        assert_eq!(
            clock_source(&files),
            ClockSource {
                current: Some("kvm-clock".to_owned()),
                available: ["kvm-clock", "tsc", "acpi_pm"].map(str::to_owned).to_vec(),
            }
        );
        assert_eq!(
            transparent_hugepages(&files),
            TransparentHugepages { enabled: Some("madvise".to_owned()), ..TransparentHugepages::default() }
        );
        let cpus: CpuSet = "0-1".parse().unwrap();
        assert_eq!(caches(&files, &cpus), [Cache { level: 3, bytes: Some(Bytes::from_mib(16)), cpus: cpus.clone() }]);
        let drivers = |name: &str, drivers: &[&str]| BlockDrivers {
            name: name.to_owned(),
            drivers: drivers.iter().map(|driver| (*driver).to_owned()).collect(),
        };
        assert_eq!(
            block_drivers(&files),
            [drivers("nvme0n1", &["nvme"]), drivers("vda", &["virtio_blk", "virtio-pci"])]
        );
    }

    #[test]
    fn an_empty_tree_is_a_machine_that_shows_nothing() {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(&root.path().join("sys")).unwrap();
        let seen = see(&HostFs::at(root.path()).unwrap());
        assert_eq!((seen.caches, seen.block_drivers), (vec![], vec![]));
        assert_eq!(seen.clock_source, ClockSource::default());
    }
}
