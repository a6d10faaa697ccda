//! Reading back that an arm is what it says, from the kernel and the guest, before its samples count.

use std::collections::BTreeMap;
use std::time::Duration;

use nearmetal_change::verify::{Load, engine_under};
use nearmetal_host::HostFs;
use nearmetal_host::guests::{self, OpenFile};
use nearmetal_hypervisor::{Hypervisor, agent};
use serde::{Deserialize, Serialize};

use super::path::DiskPath;
use crate::error::MeasureError;

/// How long a command in the guest may take under emulation.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests that show the engine: few enough for a second, many enough to stand out.
const REQUESTS: u64 = 512;
const REQUEST_BYTES: u64 = 4096;

/// Whether an arm took effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "kebab-case")]
pub enum Effect {
    /// It did; what shows it.
    Shown {
        /// One line each.
        evidence: Vec<String>,
    },
    /// It did not, or nothing shows it: its samples would be of something else, and are not taken.
    NotShown {
        /// What was found instead.
        why: String,
    },
}

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
}

/// The script that lists them; virtio-blk has its serial in sysfs, SCSI in a page of vital product data.
const LIST: &str = r#"cd /sys/block && for d in *; do s=$(cat $d/serial 2>/dev/null); [ -n "$s" ] || s=$(tr -cd 'a-z0-9' <$d/device/vpd_pg80 2>/dev/null); echo "$d|$s|$(cat $d/queue/write_cache)|$(ls $d/mq | wc -l)|$(cat $d/queue/logical_block_size)"; done"#;

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
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let seen = Seen { name: name.to_owned(), write_cache: cache.to_owned(), queues, sector };
        let serial = serial.find("nearmetal").map(|at| serial[at..].to_owned())?;
        plain.then_some((serial, seen))
    };
    text.lines().filter_map(line).collect()
}

/// What can be told without work: how QEMU has the image open, and what device the guest sees. `Err` says what is amiss.
pub(crate) fn at_rest(path: &DiskPath, source: &str, open: &[OpenFile], seen: &Seen) -> Result<Vec<String>, String> {
    let own: Vec<&OpenFile> = open.iter().filter(|file| file.target == source).collect();
    if own.is_empty() {
        return Err(format!("QEMU does not have {source} open"));
    }
    let direct = path.cache.is_direct();
    if let Some(other) = own.iter().find(|file| file.direct != direct) {
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
    Ok(vec![
        format!("fdinfo {}: {}O_DIRECT", own[0].fd, if direct { "" } else { "no " }),
        format!(
            "in the guest /dev/{}: {}, {} queues, sectors of {} B",
            seen.name, seen.write_cache, seen.queues, seen.sector
        ),
    ])
}

/// Reads an arm back, with a short read of its disk in the guest to show the engine. Nothing else may work meanwhile.
pub(crate) fn read_back(
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    guest: &str,
    pid: u32,
    path: &DiskPath,
    source: &str,
    seen: &Seen,
) -> Effect {
    let text = |error: nearmetal_host::ReadError| error.to_string();
    let shown = guests::open_files(fs, pid).map_err(text).and_then(|open| at_rest(path, source, &open, seen));
    let shown = shown.and_then(|mut evidence| {
        let (engine, words) = engine_under(fs, pid, || load(hypervisor, guest, &seen.name))?;
        if engine != path.engine {
            return Err(format!("the engine is {}, not {}: {words}", engine.name(), path.engine.name()));
        }
        evidence.push(words);
        Ok(evidence)
    });
    match shown {
        Ok(evidence) => Effect::Shown { evidence },
        Err(why) => Effect::NotShown { why },
    }
}

fn load(hypervisor: &mut dyn Hypervisor, guest: &str, device: &str) -> Load {
    let (input, size) = (format!("if=/dev/{device}"), format!("bs={REQUEST_BYTES}"));
    let count = format!("count={REQUESTS}");
    let words = ["dd", &input, "of=/dev/null", &size, &count, "iflag=direct"];
    match agent::exec(hypervisor, guest, &words, None, PATIENCE) {
        Ok(output) if output.status.is_success() => {
            Load::Read { device: device.to_owned(), requests: REQUESTS, bytes: REQUESTS * REQUEST_BYTES }
        }
        Ok(output) => Load::None {
            why: format!(
                "a direct read of /dev/{device} in the guest failed: {}",
                String::from_utf8_lossy(&output.stderr).trim().chars().take(200).collect::<String>()
            ),
        },
        Err(error) => Load::None { why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::path::{Container, PathCache};
    use nearmetal_place::DiskEngine;

    fn open(target: &str, direct: bool) -> OpenFile {
        OpenFile { fd: 30, target: target.into(), flags: 2, direct, io_uring: None }
    }

    fn disk(write_cache: &str) -> Seen {
        Seen { name: "vdb".into(), write_cache: write_cache.into(), queues: 2, sector: 512 }
    }

    #[test]
    fn an_arm_counts_only_if_the_kernel_and_the_guest_show_it() {
        let default = DiskPath::qemu_default(Container::Block);
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
    }

    #[test]
    fn the_guests_answer_is_read_into_its_form_and_nothing_else() {
        let text = "vda|nearmetal000|write back|2|512\nsda|080nearmetal001|write through|1|4096\nloop0||write back|1|512\n\
                    vdb|nearmetal002|write back|many|512\n../x|nearmetal003|write back|1|512\nnonsense\n";
        let seen = parse(text);
        assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), ["nearmetal000", "nearmetal001"]);
        assert_eq!((seen["nearmetal001"].name.as_str(), seen["nearmetal001"].sector), ("sda", 4096));
    }
}
