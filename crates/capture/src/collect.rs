//! A capture of this machine: what the readers read of it, without what is nobody's business.

use std::collections::BTreeSet;

use nearmetal_host::{Entry, Host, HostFs, MemoryTree, ledger};

use crate::CaptureError;
use crate::mask::{Mask, is_secret_name};

/// Reads a machine and gives what was read, as a tree to [`crate::write`]; and the model it makes.
///
/// Serial numbers, MAC and other hardware addresses, and secrets on QEMU's command lines are masked unless `unmasked`:
/// equal ones stay equal, so that what hangs together can still be seen. Of guests the names of their open files are kept.
/// Command lines of processes that are no guests are never kept.
///
/// # Errors
/// More was read than a capture may hold.
pub fn collect(fs: HostFs, unmasked: bool) -> Result<(MemoryTree, Host), CaptureError> {
    let fs = fs.recorded();
    let host = Host::read(&fs);
    // Who holds which device is read of the processes, and no part of the host.
    ledger::read(&fs, &host);
    let mut tree = fs.into_record().map_err(CaptureError::Record)?;
    forget_bystanders(&mut tree, &host.guests.iter().map(|guest| guest.pid).collect());
    if !unmasked {
        mask(&mut tree)?;
    }
    Ok((tree, host))
}

/// Takes out the command lines of processes that are no guests, and processes of which nothing else was read.
fn forget_bystanders(tree: &mut MemoryTree, guests: &BTreeSet<u32>) {
    let mut kept = BTreeSet::new();
    let mut found = BTreeSet::new();
    let mut lines = Vec::new();
    for (path, entry) in tree.entries() {
        let Some((pid, rest)) = process(&path) else { continue };
        found.insert(pid);
        if rest == "/cmdline" && !guests.contains(&pid) {
            lines.push(path);
        } else if *entry != Entry::Directory {
            kept.insert(pid);
        }
    }
    for path in lines {
        tree.remove(&path);
    }
    for pid in found.difference(&kept) {
        tree.remove(&format!("/proc/{pid}"));
    }
}

/// `/proc/12/task` is process 12, `/task`.
fn process(path: &str) -> Option<(u32, &str)> {
    let rest = path.strip_prefix("/proc/")?;
    let end = rest.find('/').unwrap_or(rest.len());
    Some((rest[..end].parse().ok()?, &rest[end..]))
}

fn mask(tree: &mut MemoryTree) -> Result<(), CaptureError> {
    let mut mask = Mask::default();
    let mut changed = Vec::new();
    for (path, entry) in tree.entries() {
        let Entry::File(bytes) = entry else { continue };
        let new = match path.rsplit('/').next() {
            Some(name) if is_secret_name(&path, name) => mask.whole(bytes),
            Some("cmdline") if process(&path).is_some() => mask.command_line(bytes),
            _ => mask.addresses(bytes),
        };
        if new != *bytes {
            changed.push((path, new));
        }
    }
    for (path, bytes) in changed {
        tree.put(&path, Entry::File(bytes)).map_err(CaptureError::Record)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        let mut tree = MemoryTree::new();
        for (path, text) in files {
            tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
        }
        tree
    }

    #[test]
    fn command_lines_of_others_are_not_kept() {
        let mut tree = tree(&[
            ("/proc/1/cmdline", "init"),
            ("/proc/7/cmdline", "mysql\0--password=x\0"),
            ("/proc/7/comm", "mysql\n"),
            ("/proc/9/cmdline", "qemu\0"),
            ("/proc/cmdline", "quiet\n"),
        ]);
        forget_bystanders(&mut tree, &BTreeSet::from([9]));
        let paths: Vec<_> = tree.entries().into_iter().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            ["/proc", "/proc/7", "/proc/7/comm", "/proc/9", "/proc/9/cmdline", "/proc/cmdline"],
            "a process of which only the command line was read is gone"
        );
    }

    #[test]
    fn serial_numbers_and_addresses_are_masked() {
        let mut tree = tree(&[
            ("/sys/class/dmi/id/board_serial", "ABC123\n"),
            ("/sys/devices/x/serial", "S3EWNX0J\n"),
            ("/sys/class/net/eth0/address", "52:54:00:12:34:56\n"),
            ("/proc/9/cmdline", "qemu\0-device\0virtio-net,mac=52:54:00:12:34:56\0"),
            ("/sys/devices/x/numa_node", "0\n"),
        ]);
        mask(&mut tree).unwrap();
        let text = |path: &str| match tree.get(path) {
            Some(Entry::File(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text("/sys/class/dmi/id/board_serial"), "masked-1\n");
        assert_eq!(text("/sys/devices/x/serial"), "masked-2\n");
        assert_eq!(text("/sys/class/net/eth0/address"), "02:00:00:00:00:01\n");
        assert_eq!(text("/proc/9/cmdline"), "qemu\0-device\0virtio-net,mac=02:00:00:00:00:01\0");
        assert_eq!(text("/sys/devices/x/numa_node"), "0\n");
    }
}
