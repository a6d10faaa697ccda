//! Reading back that an arm is what it says, from the kernel and the guest, before its samples count.

use std::collections::BTreeMap;
use std::time::Duration;

use nearmetal_change::verify::{Load, engine_under};
use nearmetal_host::HostFs;
use nearmetal_host::guests::{self, OpenFile};
use nearmetal_hypervisor::{Hypervisor, agent};
use nearmetal_results::{Bus, Container, DiskPath, Proof};
use nearmetal_units::Bytes;

use super::volumes::opened_as;
use super::{given_back, served};
use crate::engine::{ask, chain};
use crate::error::MeasureError;

/// How long a command in the guest may take under emulation.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests that show the engine: few enough for a second, many enough to stand out.
const REQUESTS: u64 = 512;
const REQUEST_BYTES: u64 = 4096;

/// A disk as the guest's kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    /// `vda`.
    pub name: String,
    /// `write back` or `write through`.
    pub write_cache: String,
    /// Hardware queues of blk-mq.
    pub queues: u32,
    /// Logical block size, bytes.
    pub sector: u32,
    /// Physical block size, bytes.
    pub physical: u32,
    /// Smallest piece that can be discarded, bytes; 0: the device takes no discards.
    pub discard: u64,
    /// Its driver, and that of the controller for a SCSI disk: `virtio_blk`, `virtio_scsi`.
    pub driver: String,
}

/// The script that lists them; virtio-blk has its serial in sysfs, SCSI in a page of vital product data.
const LIST: &str = r#"cd /sys/block && for d in *; do s=$(cat $d/serial 2>/dev/null); [ -n "$s" ] || s=$(tr -cd 'a-z0-9' <$d/device/vpd_pg80 2>/dev/null); p=$(readlink -f $d/device); v=; while [ ${#p} -gt 12 ]; do v=$(basename $(readlink $p/driver || echo none)); case $v in virtio_*) break;; esac; p=$(dirname $p); done; q=$d/queue; echo "$d|$s|$(cat $q/write_cache)|$(ls $d/mq | wc -l)|$(cat $q/logical_block_size)|$(cat $q/physical_block_size)|$(cat $q/discard_granularity)|$v"; done"#;

/// The guest's disks by serial number.
pub(crate) fn seen(hypervisor: &mut dyn Hypervisor, guest: &str) -> Result<BTreeMap<String, Seen>, MeasureError> {
    let wrap = |source| MeasureError::Hypervisor { arm: guest.to_owned(), source };
    let output = agent::exec(hypervisor, guest, &["sh", "-c", LIST], None, PATIENCE).map_err(wrap)?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines that are not of this form are other disks' or no answer at all: the arm they would have been of is then missing.
fn parse(text: &str) -> BTreeMap<String, Seen> {
    let line = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        let (name, serial, cache) = (fields.next()?, fields.next()?, fields.next()?);
        let queues = fields.next()?.parse().ok()?;
        let sector = fields.next()?.parse().ok()?;
        let physical = fields.next()?.parse().ok()?;
        let discard = fields.next()?.parse().ok()?;
        let driver = fields.next()?.to_owned();
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let (name_, write_cache) = (name.to_owned(), cache.to_owned());
        let seen = Seen { name: name_, write_cache, queues, sector, physical, discard, driver };
        let serial = serial.find("nearmetal").map(|at| serial[at..].to_owned())?;
        plain.then_some((serial, seen))
    };
    text.lines().filter_map(line).collect()
}

/// What can be told without work: how QEMU has the image open, and what device the guest sees. `Err` says what is amiss.
pub(crate) fn at_rest(
    path: &DiskPath,
    source: &str,
    open: &[OpenFile],
    seen: &Seen,
) -> Result<(String, String), String> {
    let target = opened_as(source);
    let own: Vec<&OpenFile> = open.iter().filter(|file| file.target == target).collect();
    if own.is_empty() {
        return Err(format!("QEMU does not have {source} open"));
    }
    let direct = path.cache.is_direct();
    // Parts of one device have its one path: with several descriptors any of them may be this arm's.
    let shared = path.container == Container::Device && own.iter().any(|file| file.direct == direct);
    if let Some(other) = own.iter().find(|file| file.direct != direct && !shared) {
        let (found, needed) = if direct { ("through", "past") } else { ("past", "through") };
        return Err(format!(
            "descriptor {} has {source} open {found} the page cache, and cache={} goes {needed} it",
            other.fd,
            path.cache.id()
        ));
    }
    let expected = if path.cache.shows_write_cache() { "write back" } else { "write through" };
    if seen.write_cache != expected {
        return Err(format!("the guest sees a `{}` cache, not `{expected}`", seen.write_cache));
    }
    if let Some(queues) = path.queues.filter(|queues| *queues != seen.queues) {
        return Err(format!("the guest sees {} queues, not {queues}", seen.queues));
    }
    if let Some(size) = path.block_size.filter(|size| *size != seen.sector) {
        return Err(format!("the guest sees sectors of {} B, not {size} B", seen.sector));
    }
    if let Some(size) = path.block_size.filter(|size| *size != seen.physical) {
        return Err(format!("the guest sees physical blocks of {} B, not {size} B", seen.physical));
    }
    let driver = match path.bus {
        Bus::VirtioBlk => "virtio_blk",
        Bus::VirtioScsi => "virtio_scsi",
    };
    if seen.driver != driver {
        return Err(format!("the guest drives it by `{}`, not `{driver}`", seen.driver));
    }
    if path.discard && seen.discard == 0 {
        return Err("the guest sees a device that takes no discards".to_owned());
    }
    let own: Vec<&OpenFile> = own.into_iter().filter(|file| file.direct == direct).collect();
    let flags = if direct { "O_DIRECT" } else { "no O_DIRECT" };
    let open = match own.as_slice() {
        [one] => format!("fdinfo {}: {flags}", one.fd),
        several => format!("{} descriptors with {flags}, one of them its", several.len()),
    };
    let queues = format!("{} queue{}", seen.queues, if seen.queues == 1 { "" } else { "s" });
    let guest = format!(
        "{} /dev/{}, {}, {queues}, sectors {}/{} B, discards of {} B",
        seen.driver, seen.name, seen.write_cache, seen.sector, seen.physical, seen.discard
    );
    Ok((open, guest))
}

/// Reads an arm back, with short reads of its disk in the guest to show engine and thread, and a discard where it is one
/// of discards. Nothing else may work meanwhile. `span`: how much of the disk is the arm's to write.
#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
pub(crate) fn read_back(
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    guest: &str,
    pid: u32,
    path: &DiskPath,
    source: &str,
    seen: &Seen,
    span: Bytes,
) -> Proof {
    let mut proof = Proof::default();
    let mut look = || {
        let open = guests::open_files(fs, pid).map_err(|error| error.to_string())?;
        let (open, in_guest) = at_rest(path, source, &open, seen)?;
        (proof.open, proof.guest) = (Some(open), Some(in_guest));
        let before = served::times(fs, pid)?;
        let (engine, words) = engine_under(fs, pid, || load(hypervisor, guest, &seen.name, None))?;
        if engine != path.engine {
            return Err(format!("the engine is {}, not {}: {words}", engine.name(), path.engine.name()));
        }
        proof.engine = Some(format!("{}: {words}", engine.name()));
        let mut iothreads = served::moved(&before, &served::times(fs, pid)?, REQUESTS);
        // Queues are shared among iothreads, and each vCPU has its own queue.
        for vcpu in 0..if path.iothreads > 1 { seen.queues } else { 0 } {
            let before = served::times(fs, pid)?;
            if let Load::None { why } = load(hypervisor, guest, &seen.name, Some(vcpu)) {
                return Err(why);
            }
            iothreads.extend(served::moved(&before, &served::times(fs, pid)?, REQUESTS));
        }
        iothreads.sort_unstable();
        iothreads.dedup();
        let expected: Vec<u32> = (1..=path.iothreads).collect();
        if iothreads != expected {
            let (found, wanted) = (served::words(&iothreads), served::words(&expected));
            return Err(format!("its requests were served by {found}, not {wanted}"));
        }
        proof.thread = Some(served::words(&iothreads));
        if path.discard || path.detect_zeroes {
            proof.given_back = Some(given_back::watch(fs, hypervisor, guest, path, source, &seen.name, span)?);
        }
        Ok(())
    };
    let result = look();
    proof.amiss = result.err();
    proof
}

fn load(hypervisor: &mut dyn Hypervisor, guest: &str, device: &str, vcpu: Option<u32>) -> Load {
    let (input, size) = (format!("if=/dev/{device}"), format!("bs={REQUEST_BYTES}"));
    let count = format!("count={REQUESTS}");
    let mask = vcpu.map(|vcpu| format!("{:x}", 1_u128 << vcpu.min(127)));
    let mut words = mask.as_deref().map_or(Vec::new(), |mask| vec!["taskset", mask]);
    words.extend(["dd", &input, "of=/dev/null", &size, &count, "iflag=direct"]);
    match ask(hypervisor, guest, &words, PATIENCE) {
        Ok(_) => Load::Read { device: device.to_owned(), requests: REQUESTS, bytes: REQUESTS * REQUEST_BYTES },
        Err(error) => Load::None { why: chain(&error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_place::DiskEngine;
    use nearmetal_results::PathCache;

    fn open(target: &str, direct: bool) -> OpenFile {
        OpenFile { fd: 30, target: target.into(), flags: 2, direct, io_uring: None }
    }

    fn disk(write_cache: &str) -> Seen {
        Seen {
            name: "vdb".into(),
            write_cache: write_cache.into(),
            queues: 2,
            sector: 512,
            physical: 512,
            discard: 512,
            driver: "virtio_blk".into(),
        }
    }

    #[test]
    fn an_arm_counts_only_if_the_kernel_and_the_guest_show_it() {
        let default = DiskPath::qemu_default(Container::Partition);
        let with = |cache| DiskPath { cache, engine: DiskEngine::Threads, ..default };
        let (back, through) = (disk("write back"), disk("write through"));
        let table = [
            (PathCache::None, true, &back, None),
            (PathCache::None, false, &back, Some("through the page cache")),
            (PathCache::Writeback, false, &back, None),
            (PathCache::Writeback, true, &back, Some("past the page cache")),
            (PathCache::Directsync, true, &through, None),
            (PathCache::Directsync, true, &back, Some("not `write through`")),
            (PathCache::Writethrough, false, &through, None),
            (PathCache::Unsafe, false, &through, Some("not `write back`")),
        ];
        for (cache, direct, seen, amiss) in table {
            let found = at_rest(&with(cache), "/dev/x1", &[open("/dev/x2", !direct), open("/dev/x1", direct)], seen);
            match amiss {
                None => assert!(found.is_ok(), "{cache:?}: {found:?}"),
                Some(words) => assert!(found.as_ref().is_err_and(|why| why.contains(words)), "{cache:?}: {found:?}"),
            }
        }
        assert!(at_rest(&default, "/dev/x1", &[], &back).is_err_and(|why| why.contains("open")));
        let queues = DiskPath { queues: Some(1), ..with(PathCache::Writeback) };
        assert!(
            at_rest(&queues, "/dev/x1", &[open("/dev/x1", false)], &back).is_err_and(|why| why.contains("2 queues"))
        );
        let sectors = DiskPath { block_size: Some(4096), ..with(PathCache::Writeback) };
        assert!(at_rest(&sectors, "/dev/x1", &[open("/dev/x1", false)], &back).is_err_and(|why| why.contains("512 B")));
        let scsi = DiskPath { bus: Bus::VirtioScsi, ..with(PathCache::Writeback) };
        assert!(
            at_rest(&scsi, "/dev/x1", &[open("/dev/x1", false)], &back).is_err_and(|why| why.contains("`virtio_blk`"))
        );
        // Parts of one device: another part's descriptor is no contradiction, but one of the right kind must be there.
        let part = DiskPath { container: Container::Device, ..with(PathCache::None) };
        assert!(at_rest(&part, "/dev/x", &[open("/dev/x", false), open("/dev/x", true)], &back).is_ok());
        assert!(at_rest(&part, "/dev/x", &[open("/dev/x", false)], &back).is_err());
    }

    #[test]
    fn the_guests_answer_is_read_into_its_form_and_nothing_else() {
        let text = "vda|nearmetal000|write back|2|512|512|512|virtio_blk\n\
                    sda|080nearmetal001|write through|1|4096|4096|4096|virtio_scsi\n\
                    loop0||write back|1|512|512|0|\nvdb|nearmetal002|write back|many|512|512|512|virtio_blk\n\
                    ../x|nearmetal003|write back|1|512|512|512|virtio_blk\nnonsense\n";
        let seen = parse(text);
        assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), ["nearmetal000", "nearmetal001"]);
        assert_eq!((seen["nearmetal001"].name.as_str(), seen["nearmetal001"].sector), ("sda", 4096));
    }
}
