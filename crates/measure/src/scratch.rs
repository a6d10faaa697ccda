//! The scratch device: one equal region of the same drive for every arm.
//!
//! Measuring writes. It therefore never touches the guest's own disk: the user names a device whose contents may be
//! lost, it is divided into equal partitions, and one that holds anything is refused.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nearmetal_host::{GuestProcess, Host, HostFs, guests, ledger};
use nearmetal_units::Bytes;

use crate::clock;
use crate::error::MeasureError;
use crate::program::{run, run_with_input, settle_names};

/// Partition names start with this; a device divided by an earlier, interrupted run is recognised by it.
const LABEL: &str = "nearmetal-scratch";
/// Smaller regions would sit in the drive's own caches.
const SMALLEST_REGION: Bytes = Bytes::from_mib(64);

/// An empty device that may be divided.
#[derive(Debug)]
pub(crate) struct Empty {
    device: String,
    size: Bytes,
}

/// A divided scratch device; [`wipe`] takes the partition table off again.
#[derive(Debug)]
pub(crate) struct Scratch {
    device: String,
    /// Paths of the regions, `/dev/nvme0n2p1`, ….
    pub regions: Vec<String>,
    /// Size of each.
    pub region_size: Bytes,
}

fn refused(device: &str, why: String) -> MeasureError {
    MeasureError::Scratch { device: device.to_owned(), why }
}

impl Empty {
    /// The device, links followed.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Divides it into `count` equal partitions.
    ///
    /// # Errors
    /// It is too small for them, or sfdisk's own words.
    pub(crate) fn divide(self, count: usize) -> Result<Scratch, MeasureError> {
        let Self { device, size } = self;
        // Two MiB are left for the partition tables at both ends.
        let region_mib = (size.get() >> 20).saturating_sub(2) / count.max(1) as u64;
        if Bytes::from_mib(region_mib) < SMALLEST_REGION {
            let why = format!("it holds {size}, and {count} regions of at least {SMALLEST_REGION} each are needed");
            return Err(refused(&device, why));
        }
        let mut table = "label: gpt\n".to_owned();
        for index in 1..=count {
            table.push_str(&format!("size={region_mib}MiB, name={LABEL}-{index}\n"));
        }
        run_with_input(Command::new("sfdisk").args(["--quiet", "--wipe", "always", &device]), &table)?;
        settle_names()?;
        let separator = if device.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
        let regions = (1..=count).map(|index| format!("{device}{separator}{index}")).collect();
        Ok(Scratch { device, regions, region_size: Bytes::from_mib(region_mib) })
    }
}

impl Scratch {
    /// Looks at `device` (`/dev/nvme1n1`, or a link to it).
    ///
    /// # Errors
    /// A path that is no whole block device, one with holders, partitions, a mounted or swapped part, one that a running guest
    /// has or may have open, or any signature that wipefs knows.
    pub(crate) fn examine(fs: &HostFs, device: &str) -> Result<Empty, MeasureError> {
        let resolved = device_behind(fs, device).map_err(|error| refused(device, error.to_string()))?;
        let path = resolved.to_str().unwrap_or_default();
        let name = path.strip_prefix("/dev/").filter(|name| !name.is_empty() && !name.contains('/'));
        let name = name.ok_or_else(|| refused(device, "name a whole device, such as /dev/nvme1n1".into()))?;
        let size = must_be_empty(fs, &Host::read(fs), name)?
            .ok_or_else(|| refused(path, "the kernel does not give its size".into()))?;
        Ok(Empty { device: path.to_owned(), size })
    }

    /// The device, links followed.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }
}

/// The kernel's name of a block device: a stable name under /dev/disk is a link to it. A fixture has no /dev.
pub(crate) fn device_behind(fs: &HostFs, path: &str) -> std::io::Result<PathBuf> {
    if fs.is_live() { Path::new(path).canonicalize() } else { Ok(path.into()) }
}

/// How often the kernel is asked to forget partitions, and how long it is left in peace before it is asked again: udev looks
/// at what was just wiped, and a program that a killed run left on a region ends by itself within its sample.
const TRIES: u32 = 60;
const LET_GO: Duration = Duration::from_secs(1);

/// Takes nearmetal's partition table off a device: it is as empty as it was. One that has none of nearmetal's is left
/// alone.
///
/// # Errors
/// The words of lsblk, wipefs or blockdev.
pub(crate) fn wipe(device: &str) -> Result<(), MeasureError> {
    let labels = run(Command::new("lsblk").args(["--noheadings", "--raw", "--output", "PARTLABEL", device]))?;
    let labels: Vec<&str> = labels.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if labels.is_empty() || !labels.iter().all(|label| label.starts_with(LABEL)) {
        return Ok(());
    }
    run(Command::new("wipefs").args(["--quiet", "--all", "--force", device]))?;
    let mut left = TRIES;
    loop {
        settle_names()?;
        left -= 1;
        match run(Command::new("blockdev").args(["--rereadpt", device])) {
            Err(_) if left > 0 => clock::pause(LET_GO),
            done => return done.map(drop),
        }
    }
}

/// Refuses a whole block device (`nvme1n1`) that holds data or is in use; gives its size, if the kernel does.
///
/// # Errors
/// No such device, a partition, one with holders, a mounted or swapped part, one that a running guest has or may have open, or
/// any signature that wipefs knows but those of an earlier, interrupted run.
pub(crate) fn must_be_empty(fs: &HostFs, host: &Host, name: &str) -> Result<Option<Bytes>, MeasureError> {
    let device = &format!("/dev/{name}");
    let refuse = |why: String| MeasureError::Scratch { device: device.clone(), why };
    let found = host.block_device(name).ok_or_else(|| {
        let known: Vec<_> = host.block_devices.iter().map(|device| format!("/dev/{}", device.name)).collect();
        refuse(format!("there is no such block device; there are: {}", known.join(", ")))
    })?;
    if let Some(whole) = &found.partition_of {
        return Err(refuse(format!("it is a partition of /dev/{whole}; name the whole device")));
    }
    if !found.holders.is_empty() {
        return Err(refuse(format!("{} is built on it", found.holders.join(", "))));
    }
    if let Some(why) = guest_with(fs, host, name) {
        return Err(refuse(why));
    }
    let signatures = run(Command::new("wipefs").args(["--noheadings", "--output", "TYPE", device]))?;
    let own = run(Command::new("lsblk").args(["--noheadings", "--raw", "--output", "PARTLABEL", device]))?;
    let labels: Vec<&str> = own.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let ours = !labels.is_empty() && labels.iter().all(|label| label.starts_with(LABEL));
    if !signatures.trim().is_empty() && !ours {
        let kinds = signatures.split_whitespace().collect::<Vec<_>>().join(", ");
        return Err(refuse(format!("it holds data ({kinds}); if that may be lost: wipefs --all {device}")));
    }
    let mounts = run(Command::new("lsblk").args(["--noheadings", "--raw", "--output", "MOUNTPOINTS", device]))?;
    if !mounts.trim().is_empty() {
        return Err(refuse(format!("it is mounted at {}", mounts.split_whitespace().collect::<Vec<_>>().join(", "))));
    }
    Ok(found.size)
}

/// Which running guest has a device or a partition of it open, or may have, and what to do: QEMU opens block devices without O_EXCL, so
/// the kernel knows no holder, and a disk that a guest has whole may be without any signature.
fn guest_with(fs: &HostFs, host: &Host, name: &str) -> Option<String> {
    let is_part = |disk: &str| host.block_device(disk).and_then(|disk| disk.partition_of.as_deref()) == Some(name);
    let ledger = ledger::read(fs, host);
    let mut disks = ledger.devices.into_iter().filter(|disk| disk.name == name || is_part(&disk.name));
    if let Some(owner) = disks.find_map(|disk| disk.owner) {
        return Some(format!(
            "the guest `{}` has it open; detach it from that guest or shut the guest down, or name another device",
            owner.name
        ));
    }
    // One that ended meanwhile has nothing open.
    let hides =
        |guest: &&GuestProcess| guests::open_files(fs, guest.pid).is_err() && guests::start_time(fs, guest.pid).is_ok();
    let hidden = host.guests.iter().find(hides)?;
    Some(format!(
        "the guest `{}` may have it open, its open files cannot be read; shut that guest down, or measure as root",
        hidden.name.clone().unwrap_or_else(|| format!("process {}", hidden.pid))
    ))
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{BlockDevice, Entry, MemoryTree};

    use super::*;

    #[test]
    fn a_device_that_a_running_guest_has_open_is_refused_with_the_guests_name() {
        let whole = |name: &str| BlockDevice { name: name.to_owned(), ..BlockDevice::default() };
        let part = BlockDevice { partition_of: Some("nvme1n1".to_owned()), ..whole("nvme1n1p2") };
        let host = Host {
            block_devices: vec![whole("nvme1n1"), part, whole("nvme2n1")],
            guests: vec![GuestProcess { pid: 4711, name: Some("db".to_owned()), ..GuestProcess::default() }],
            ..Host::default()
        };
        for open in ["/dev/nvme1n1", "/dev/nvme1n1p2"] {
            let mut tree = MemoryTree::new();
            tree.put("/proc/4711/fd/12", Entry::Link(open.to_owned())).unwrap();
            tree.put("/proc/4711/fdinfo/12", Entry::File(b"pos:\t0\nflags:\t02140002\n".to_vec())).unwrap();
            let fs = HostFs::of_tree(tree, "guests");
            let error = must_be_empty(&fs, &host, "nvme1n1").unwrap_err().to_string();
            assert!(error.contains("the guest `db` has it open"), "{error}");
            assert_eq!(guest_with(&fs, &host, "nvme2n1"), None);
        }
        // Without its descriptors, each device may be one. One that ended meanwhile has none.
        let mut tree = MemoryTree::new();
        assert_eq!(guest_with(&HostFs::of_tree(tree.clone(), "guests"), &host, "nvme2n1"), None);
        let stat = format!("4711 (qemu) S {}4711 0\n", "0 ".repeat(18));
        tree.put("/proc/4711/stat", Entry::File(stat.into_bytes())).unwrap();
        let error = must_be_empty(&HostFs::of_tree(tree, "guests"), &host, "nvme2n1").unwrap_err().to_string();
        assert!(error.contains("the guest `db` may have it open"), "{error}");
    }
}
