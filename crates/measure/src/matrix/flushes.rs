//! Whether a disk without a write cache keeps what it calls written.
//!
//! Such a disk (`writethrough`, `directsync`) is never told to flush by the guest, so QEMU must flush every write itself.
//! QEMU 10.0.3 and later does not always do so with worker threads and raw images: commit d402da1360c2 flushes through
//! `bdrv_co_flush`, which does nothing while `write_gen` equals `flushed_gen`, and `write_gen` rises only when the write is
//! over. What is lost exactly, by qemu-io under strace (10.0.13, 11.1.3): the first write after opening or after a completed
//! flush, and a write that lands while the fdatasync of another runs. Other writes, one after the other, are flushed. So the
//! first write to a disk that was just opened shows the fault, and a later one may not. No interface of QEMU tells; the
//! drive's counters do.

use std::time::Duration;

use nearmetal_host::{BlockDevice, Host, HostFs};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::DiskEngine;
use nearmetal_results::DiskPath;

use crate::engine::{ask, chain, settle};

/// How long one write in the guest may take under emulation.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes written: a sector of any disk.
const WRITTEN: u64 = 4096;
/// The unit of /sys/class/block/*/stat (Documentation/ABI/stable/sysfs-block).
const SECTOR: u64 = 512;

/// What the drive's counters say of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flush {
    /// It had reached the drive when the guest was told it is done.
    Seen(String),
    /// It had not.
    Missed(String),
    /// The counters cannot tell.
    Unknown(String),
}

/// Sectors written and flushes, as a drive counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    sectors: u64,
    /// `None` before Linux 5.5.
    flushes: Option<u64>,
}

impl Counters {
    /// Fields 7 and 16 of /sys/class/block/*/stat (Documentation/block/stat.rst).
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse().ok());
        Some(Self { sectors: number(6)?, flushes: number(15) })
    }
}

/// Has the guest write one block to the disk of `path` (`device` in the guest, `drive` on the host), its first write
/// there, and says whether the drive got it in time. `None` where nothing needs to be shown: the guest flushes by itself,
/// or the kernel is asked for a synchronous direct write, which no counter tells from another.
pub(super) fn tried(
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    guest: &str,
    path: &DiskPath,
    drive: Option<&str>,
    device: &str,
) -> Option<Flush> {
    if path.cache.shows_write_cache() || (path.cache.is_direct() && path.engine != DiskEngine::Threads) {
        return None;
    }
    let Some(drive) = drive else { return Some(Flush::Unknown("the drive behind it is not known".to_owned())) };
    let file = |name: &str| fs.read(&format!("/sys/class/block/{drive}/{name}"));
    // Without a volatile cache a drive is never asked to flush, and a direct write is safe once it is done.
    if path.cache.is_direct() && file("queue/write_cache").is_ok_and(|text| text.trim() == "write through") {
        return None;
    }
    let counters = || file("stat").ok().and_then(|text| Counters::parse(&text));
    if let Err(error) = settle(fs) {
        return Some(Flush::Unknown(error.to_string()));
    }
    let before = counters();
    if let Err(why) = write_once(hypervisor, guest, device) {
        return Some(Flush::Unknown(why));
    }
    Some(match (before, counters()) {
        (Some(before), Some(after)) => judge(path, drive, before, after),
        _ => Flush::Unknown(format!("/sys/class/block/{drive}/stat cannot be read")),
    })
}

fn judge(path: &DiskPath, drive: &str, before: Counters, after: Counters) -> Flush {
    if path.cache.is_direct() {
        return match (before.flushes, after.flushes) {
            (Some(before), Some(after)) if after > before => {
                Flush::Seen(format!("{drive} was flushed before a write of the guest was called done"))
            }
            (Some(_), Some(_)) => {
                Flush::Missed(format!("a write of the guest was called done and {drive} had not been flushed"))
            }
            _ => Flush::Unknown(format!("{drive} counts no flushes: that takes Linux 5.5")),
        };
    }
    let written = after.sectors.saturating_sub(before.sectors) * SECTOR;
    if written >= WRITTEN {
        Flush::Seen(format!("{drive} had {WRITTEN} B before a write of the guest was called done"))
    } else {
        Flush::Missed(format!("{WRITTEN} B of the guest were called done and {written} B had reached {drive}"))
    }
}

/// The block device under the file system of an image, by its kernel name.
pub(super) fn drive_under(host: &Host, image: &str) -> Option<String> {
    let source = host.mount_of(image)?.source.strip_prefix("/dev/")?.to_owned();
    let name = source.strip_prefix("mapper/").map_or(Some(source.as_str()), |volume| {
        // A volume's name under /dev/mapper is a link to the kernel's.
        let of = |device: &&BlockDevice| device.mapped_name.as_deref() == Some(volume);
        host.block_devices.iter().find(of).map(|device| device.name.as_str())
    })?;
    let device = host.block_device(name)?;
    Some(device.partition_of.clone().unwrap_or_else(|| device.name.clone()))
}

fn write_once(hypervisor: &mut dyn Hypervisor, guest: &str, device: &str) -> Result<(), String> {
    let words = ["dd", "if=/dev/zero", &format!("of={device}"), &format!("bs={WRITTEN}"), "count=1", "oflag=direct"];
    ask(hypervisor, guest, &words, PATIENCE).map(drop).map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use nearmetal_results::{Container, PathCache};

    use super::*;

    /// /sys/class/block/nvme0n1/stat of Linux 6.12, and of 5.4 without the last two fields.
    const STAT: &str = "     174        0    12160       38       22        3      200       11        0       52       56        0        0        0        0        7        6\n";

    #[test]
    fn the_counters_are_read_where_the_kernel_has_them() {
        assert_eq!(Counters::parse(STAT), Some(Counters { sectors: 200, flushes: Some(7) }));
        let old: Vec<&str> = STAT.split_whitespace().take(15).collect();
        assert_eq!(Counters::parse(&old.join(" ")), Some(Counters { sectors: 200, flushes: None }));
        for junk in ["", "1 2 3", "a b c d e f g h"] {
            assert_eq!(Counters::parse(junk), None, "{junk}");
        }
    }

    #[test]
    fn a_write_counts_as_kept_if_the_drive_had_it() {
        let path =
            |cache| DiskPath { cache, engine: DiskEngine::Threads, ..DiskPath::qemu_default(Container::Partition) };
        let before = Counters { sectors: 100, flushes: Some(3) };
        let (written, flushed) = (Counters { sectors: 108, ..before }, Counters { flushes: Some(4), ..before });
        let through = |after| judge(&path(PathCache::Writethrough), "sda", before, after);
        assert!(matches!(through(written), Flush::Seen(_)));
        assert_eq!(
            through(flushed),
            Flush::Missed("4096 B of the guest were called done and 0 B had reached sda".into())
        );
        let direct = |after| judge(&path(PathCache::Directsync), "sda", before, after);
        assert!(matches!(direct(flushed), Flush::Seen(_)));
        assert!(matches!(direct(written), Flush::Missed(_)), "a direct write is in the drive's own cache until then");
        assert!(matches!(direct(Counters { flushes: None, ..flushed }), Flush::Unknown(_)));
    }
}
