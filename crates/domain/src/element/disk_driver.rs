//! `<driver>` of a disk: host cache, engine, iothread, queues.

use serde::{Deserialize, Serialize};

use super::disk;
use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

/// Host page cache of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskCache {
    /// O_DIRECT, guest flushes honoured.
    None,
    /// Host page cache, guest flushes honoured.
    Writeback,
    /// Host page cache, every write flushed.
    Writethrough,
    /// O_DIRECT, every write flushed.
    Directsync,
}

impl DiskCache {
    /// libvirt's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Writeback => "writeback",
            Self::Writethrough => "writethrough",
            Self::Directsync => "directsync",
        }
    }
}

/// How QEMU submits block I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskIo {
    /// A pool of worker threads.
    Threads,
    /// Linux AIO.
    Native,
    /// io_uring.
    IoUring,
}

impl DiskIo {
    /// libvirt's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Native => "native",
            Self::IoUring => "io_uring",
        }
    }
}

/// Options to set; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DriverOptions {
    /// Host page cache.
    pub cache: Option<DiskCache>,
    /// Submission engine.
    pub io: Option<DiskIo>,
    /// Iothread that serves the disk.
    pub iothread: Option<u32>,
    /// Iothreads 1 to this number take the disk's queues in turns (QEMU 9.0, libvirt 10.0); not together with `iothread`.
    pub iothreads: Option<u32>,
    /// Whether QEMU's main loop serves it: an iothread, or several, that are written go.
    #[serde(default)]
    pub main_loop: bool,
    /// Virtqueues.
    pub queues: Option<u32>,
}

impl DomainXml {
    /// Sets driver options of the disk with that target name; other options stay. A disk without `<driver>` gets
    /// `<driver name='qemu' type='raw' …/>`, the format libvirt takes where none is written.
    ///
    /// An iothread set here replaces a mapping of queues to several iothreads, and the other way: libvirt takes only one of the two.
    ///
    /// # Errors
    /// No such disk; iothread or queues on a disk that is not virtio; iothread 0 or no queues; one iothread and several; `native` together with
    /// a cached mode, which QEMU refuses.
    pub fn set_disk_driver(&mut self, target: &str, options: &DriverOptions) -> Result<bool, DomainError> {
        if [options.iothread, options.iothreads, options.queues].contains(&Some(0)) {
            return Err(DomainError::argument("an iothread or a number of queues", "0", "both count from 1"));
        }
        if let (Some(_), Some(count)) = (options.iothread, options.iothreads) {
            let rule = "a disk has one iothread, or several that share its queues";
            return Err(DomainError::argument("a number of iothreads", &count.to_string(), rule));
        }
        if let (true, Some(number)) = (options.main_loop, options.iothread.or(options.iothreads)) {
            let rule = "the main loop serves a disk, or iothreads do";
            return Err(DomainError::argument("an iothread", &number.to_string(), rule));
        }
        self.rewrite(|document, edits| {
            let disk = disk::find(document, target)?;
            let virtio = disk::bus(disk, target).as_deref() == Some("virtio");
            let needs_virtio = [options.iothread, options.iothreads, options.queues].iter().any(Option::is_some);
            if needs_virtio && !virtio {
                let rule = "iothread and queues need bus='virtio'";
                return Err(DomainError::argument("a disk driver option", target, rule));
            }
            let number = |value: Option<u32>| value.map(|value| value.to_string());
            let wanted = [
                ("cache", options.cache.map(|cache| cache.as_str().to_owned())),
                ("io", options.io.map(|io| io.as_str().to_owned())),
                ("iothread", number(options.iothread)),
                ("queues", number(options.queues)),
            ];
            let wanted = wanted.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
            let shared: Vec<String> = (1..=options.iothreads.unwrap_or(0)).map(|id| id.to_string()).collect();
            let mapping = shared
                .iter()
                .fold(Fragment::new("iothreads"), |list, id| list.child(Fragment::new("iothread").attribute("id", id)));
            let Some(driver) = tree::child(disk, "driver") else {
                let bare = Fragment::new("driver").attribute("name", "qemu").attribute("type", "raw");
                let fragment = wanted.fold(bare, |fragment, (name, value)| fragment.attribute(name, value));
                let fragment = if shared.is_empty() { fragment } else { fragment.child(mapping) };
                if *options != DriverOptions::default() {
                    edits.insert_first(disk, &fragment);
                }
                return check_engine(options, None, None);
            };
            check_engine(options, driver.attribute("cache"), driver.attribute("io"))?;
            for (name, value) in wanted {
                edits.set_attribute(driver, name, &value);
            }
            if options.main_loop {
                edits.remove_attribute(driver, "iothread");
            }
            if options.iothread.is_some() || options.main_loop {
                tree::children(driver, "iothreads").for_each(|mapping| edits.remove(mapping));
            }
            if !shared.is_empty() {
                edits.remove_attribute(driver, "iothread");
                let present: Vec<_> = tree::children(driver, "iothreads").collect();
                let is_so = present.len() == 1 && present.iter().all(|list| in_turns(*list, &shared));
                if !is_so {
                    present.into_iter().for_each(|list| edits.remove(list));
                    edits.insert_first(driver, &mapping);
                }
            }
            Ok(())
        })
    }
}

/// Whether a mapping says that these iothreads take the queues in turns: without `<queue>` in any of them libvirt deals so.
fn in_turns(list: roxmltree::Node<'_, '_>, ids: &[String]) -> bool {
    let each: Vec<_> = tree::children(list, "iothread").collect();
    each.iter().map(|own| own.attribute("id")).eq(ids.iter().map(|id| Some(id.as_str())))
        && each.iter().all(|own| tree::child(*own, "queue").is_none())
}

/// QEMU opens no image with `aio=native` unless the cache is direct.
fn check_engine(options: &DriverOptions, cache: Option<&str>, io: Option<&str>) -> Result<(), DomainError> {
    let cache = options.cache.map(DiskCache::as_str).or(cache).unwrap_or("writeback");
    let io = options.io.map(DiskIo::as_str).or(io);
    if io == Some("native") && !matches!(cache, "none" | "directsync") {
        return Err(DomainError::argument(
            "the cache of a disk with io='native'",
            cache,
            "QEMU needs none or directsync",
        ));
    }
    Ok(())
}
