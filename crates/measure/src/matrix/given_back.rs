//! Whether what a guest discards, or writes as zeroes, reaches the storage: seen on the host, since a guest is shown the
//! same limits whether QEMU hands its discards on or drops them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nearmetal_host::{HostFs, files};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_results::DiskPath;
use nearmetal_units::Bytes;

use super::volumes::opened_as;
use crate::engine::{ask, chain};

/// How much is discarded: whole clusters and extents of everything an arm lies on.
const PIECE: Bytes = Bytes::from_mib(1);
/// How long a command in the guest may take under emulation.
const PATIENCE: Duration = Duration::from_secs(60);

/// Discards the last piece of the span in the guest, or writes it as zeroes for an arm that looks for them, and watches
/// the storage; then the piece is written full again. `Err` says what was not seen.
pub(super) fn watch(
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    guest: &str,
    path: &DiskPath,
    source: &str,
    device: &str,
    span: Bytes,
) -> Result<String, String> {
    let device = format!("/dev/{device}");
    let offset = span.less(PIECE);
    let (at, length) = (offset.get().to_string(), PIECE.get().to_string());
    let gauge = Gauge::of(fs, path, source);
    let before = gauge.read(fs)?;
    let mut written = Vec::new();
    if path.detect_zeroes {
        run(hypervisor, guest, &write_words(&device, offset, "/dev/zero"))?;
        written.push(("zeroes", gauge.read(fs)?));
        run(hypervisor, guest, &write_words(&device, offset, "/dev/urandom"))?;
    }
    if path.discard {
        let words = ["blkdiscard", "-o", &at, "-l", &length, &device].map(str::to_owned);
        let again = gauge.read(fs)?;
        run(hypervisor, guest, &words)?;
        let after = gauge.read(fs)?;
        // Once written again the piece is held as before, so both begin from the same.
        written.push(("discarded", before.wrapping_add(after.wrapping_sub(again))));
        run(hypervisor, guest, &write_words(&device, offset, "/dev/urandom"))?;
    }
    let seen =
        written.into_iter().map(|(what, after)| gauge.judge(what, before, after)).collect::<Result<Vec<_>, _>>()?;
    Ok(seen.join("; "))
}

/// What shows on the host that storage was given back.
enum Gauge {
    /// Blocks a file holds (stat(2), `st_blocks`).
    File(String),
    /// Bytes discarded so far (`stat` of a block device, field 14; Documentation/block/stat.rst).
    Block(String),
}

impl Gauge {
    fn of(fs: &HostFs, path: &DiskPath, source: &str) -> Self {
        match path.container.is_file() {
            true => Self::File(source.to_owned()),
            false => Self::Block(counting(fs, opened_as(source).trim_start_matches("/dev/"))),
        }
    }

    fn read(&self, fs: &HostFs) -> Result<u64, String> {
        match self {
            Self::File(file) => {
                let found = files::metadata(Path::new(file)).map_err(|error| error.to_string())?;
                Ok(found.blocks().saturating_mul(512))
            }
            Self::Block(name) => {
                let path = format!("/sys/class/block/{name}/stat");
                let text = fs.read(&path).map_err(|error| error.to_string())?;
                discarded(&text).ok_or_else(|| format!("`{path}` counts no discards: this kernel is older than 4.19"))
            }
        }
    }

    fn judge(&self, what: &str, before: u64, after: u64) -> Result<String, String> {
        let (moved, where_) = match self {
            Self::File(_) => (before.saturating_sub(after), "the file holds less"),
            Self::Block(_) => (after.saturating_sub(before), "the drive was told to discard"),
        };
        match self {
            // The kernel counts a drive's zeroing among its writes, whether or not it unmaps.
            Self::Block(_) if what == "zeroes" => Ok("zeroes: a drive's own zeroing is not counted apart".to_owned()),
            _ if moved >= PIECE.get() / 2 => Ok(format!("{what} {PIECE}: {where_}, {}", Bytes::new(moved))),
            _ => Err(format!(
                "{what} {PIECE} in the guest, and on the host {} moved: nothing was given back",
                Bytes::new(moved)
            )),
        }
    }
}

/// The device whose counters move: of a partition the drive it is on. An NVMe drive that may have several paths counts what
/// is done to its partitions as done to itself alone (drivers/nvme/host/multipath.c, nvme_mpath_start_request).
fn counting(fs: &HostFs, name: &str) -> String {
    let drives = fs.list("/sys/block").unwrap_or_default();
    let own = drives.into_iter().find(|drive| fs.exists(&format!("/sys/block/{drive}/{name}/partition")));
    own.unwrap_or_else(|| name.to_owned())
}

fn write_words(device: &str, offset: Bytes, from: &str) -> Vec<String> {
    let seek = offset.get() / 65_536;
    [
        "dd",
        &format!("if={from}"),
        &format!("of={device}"),
        "bs=65536",
        "count=16",
        &format!("seek={seek}"),
        "conv=fsync",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn run(hypervisor: &mut dyn Hypervisor, guest: &str, words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ask(hypervisor, guest, &words, PATIENCE).map(drop).map_err(|error| chain(&error))
}

/// Bytes discarded since boot.
fn discarded(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(13)?.parse::<u64>().ok()?.checked_mul(512)
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};
    use nearmetal_results::Container;

    use super::*;

    #[test]
    fn discards_are_the_fourteenth_field() {
        let stat = "  100 0 800 5 10 0 80 1 0 6 6 3 0 2048 1 0 0\n";
        assert_eq!(discarded(stat), Some(1 << 20));
        assert_eq!(discarded("1 2 3 4 5 6 7 8 9 10 11"), None, "kernels before 4.19");
    }

    #[test]
    fn a_partition_is_counted_by_its_drive() {
        let mut tree = MemoryTree::new();
        for path in ["/sys/block/nvme0n1/nvme0n1p3/partition", "/sys/block/sda/stat"] {
            tree.put(path, Entry::File(b"3\n".to_vec())).unwrap();
        }
        let fs = HostFs::of_tree(tree, "a drive");
        assert_eq!((counting(&fs, "nvme0n1p3").as_str(), counting(&fs, "sda").as_str()), ("nvme0n1", "sda"));
    }

    #[test]
    fn what_did_not_move_was_not_given_back() {
        let mib = PIECE.get();
        let path = |container| DiskPath { discard: true, ..DiskPath::qemu_default(container) };
        let fs = HostFs::of_tree(MemoryTree::new(), "nothing");
        let file = Gauge::of(&fs, &path(Container::RawFile), "/s/a.raw");
        let block = Gauge::of(&fs, &path(Container::Partition), "/dev/no-such-device");
        assert!(file.judge("discarded", 8 * mib, 7 * mib).is_ok() && block.judge("discarded", 0, mib).is_ok());
        assert!(file.judge("discarded", 8 * mib, 8 * mib).is_err_and(|why| why.contains("nothing was given back")));
        assert!(file.judge("discarded", 7 * mib, 8 * mib).is_err(), "it grew");
        assert!(block.judge("discarded", mib, mib).is_err());
        assert!(block.judge("zeroes", mib, mib).is_ok_and(|words| words.contains("not counted")));
    }
}
