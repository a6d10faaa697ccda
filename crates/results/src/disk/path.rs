//! One arm of the disk matrix: a way from a guest's requests to a drive, as data.

use nearmetal_place::DiskEngine;
use serde::{Deserialize, Serialize};

/// What holds the guest's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Container {
    /// A partition of a drive. Results of before 0.2 call it `block`.
    #[serde(alias = "block")]
    Partition,
    /// The whole drive: a part of it that QEMU itself cuts out by offset and size, so that arms do not overwrite each other.
    Device,
    /// A logical volume (LVM), linear, on one partition.
    Lvm,
    /// A file of raw blocks, allocated beforehand (`fallocate`).
    RawFile,
    /// qcow2, its tables written beforehand, its clusters not (`preallocation=metadata`).
    Qcow2Metadata,
    /// qcow2, clusters allocated beforehand (`preallocation=falloc`).
    Qcow2Falloc,
    /// qcow2, clusters written beforehand (`preallocation=full`).
    Qcow2Full,
    /// A qcow2 overlay over a raw file that holds the data.
    Qcow2Backing,
    /// qcow2 with an internal snapshot taken of its full contents.
    Qcow2Snapshot,
}

impl Container {
    /// All of them, those on a drive's own blocks first. The partition leads, since each has a file descriptor of its own
    /// in QEMU that tells caches apart; parts of the whole drive have one path in common.
    pub const ALL: [Self; 9] = [
        Self::Partition,
        Self::Device,
        Self::Lvm,
        Self::RawFile,
        Self::Qcow2Metadata,
        Self::Qcow2Falloc,
        Self::Qcow2Full,
        Self::Qcow2Backing,
        Self::Qcow2Snapshot,
    ];

    /// The word in ids and options.
    pub fn id(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Device => "device",
            Self::Lvm => "lvm",
            Self::RawFile => "raw-file",
            Self::Qcow2Metadata => "qcow2-metadata",
            Self::Qcow2Falloc => "qcow2-falloc",
            Self::Qcow2Full => "qcow2-full",
            Self::Qcow2Backing => "qcow2-backing",
            Self::Qcow2Snapshot => "qcow2-snapshot",
        }
    }

    /// libvirt's word for the format.
    pub fn format(self) -> &'static str {
        match self {
            Self::Partition | Self::Device | Self::Lvm | Self::RawFile => "raw",
            _ => "qcow2",
        }
    }

    /// Whether it lies on a file system.
    pub fn is_file(self) -> bool {
        !matches!(self, Self::Partition | Self::Device | Self::Lvm)
    }
}

/// A scheduler of the host's block layer (Documentation/block/index.rst), by the kernel's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// None: requests go to the drive as they come.
    None,
    /// mq-deadline.
    MqDeadline,
    /// kyber.
    Kyber,
    /// bfq.
    Bfq,
}

impl Scheduler {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::MqDeadline, Self::Kyber, Self::Bfq];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MqDeadline => "mq-deadline",
            Self::Kyber => "kyber",
            Self::Bfq => "bfq",
        }
    }

    /// The one of that name; `None` for one that nearmetal does not know.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheduler| scheduler.name() == name)
    }
}

/// Host page cache, in libvirt's words; unlike a plan's, `unsafe` is among them, to be measured and never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathCache {
    /// O_DIRECT, guest flushes honoured.
    None,
    /// O_DIRECT, every write flushed.
    Directsync,
    /// Page cache, guest flushes honoured: QEMU's default.
    Writeback,
    /// Page cache, every write flushed.
    Writethrough,
    /// Page cache, guest flushes ignored: a host that stops loses what the guest was told is safe.
    Unsafe,
}

impl PathCache {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Directsync, Self::Writeback, Self::Writethrough, Self::Unsafe];

    /// libvirt's word.
    pub fn id(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Directsync => "directsync",
            Self::Writeback => "writeback",
            Self::Writethrough => "writethrough",
            Self::Unsafe => "unsafe",
        }
    }

    /// Whether QEMU opens the image past the host's page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::None | Self::Directsync)
    }

    /// Whether the guest is shown a write cache it has to flush.
    pub fn shows_write_cache(self) -> bool {
        !matches!(self, Self::Directsync | Self::Writethrough)
    }

    /// Whether what the guest flushed survives the loss of power.
    pub fn is_durable(self) -> bool {
        self != Self::Unsafe
    }
}

/// The device the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// virtio-blk.
    VirtioBlk,
    /// A disk on a virtio-scsi controller of its own.
    VirtioScsi,
}

impl Bus {
    /// The word in ids and options.
    pub fn id(self) -> &'static str {
        match self {
            Self::VirtioBlk => "virtio-blk",
            Self::VirtioScsi => "virtio-scsi",
        }
    }
}

/// One arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPath {
    /// What holds the blocks.
    pub container: Container,
    /// Host page cache.
    pub cache: PathCache,
    /// Submission engine.
    pub engine: DiskEngine,
    /// Iothreads that serve it: 0 is QEMU's main loop, more than one share the queues (`<iothreads>`).
    pub iothreads: u32,
    /// Virtqueues; `None`: QEMU's default, one a vCPU.
    pub queues: Option<u32>,
    /// Device.
    pub bus: Bus,
    /// `discard='unmap'`: what the guest discards is given back to the storage.
    #[serde(default)]
    pub discard: bool,
    /// `detect_zeroes='unmap'` (with discard) or `'on'`: QEMU looks through every write for zeroes.
    #[serde(default)]
    pub detect_zeroes: bool,
    /// Logical and physical block size shown to the guest, bytes; `None`: QEMU's default, 512.
    #[serde(default)]
    pub block_size: Option<u32>,
    /// The host's scheduler for the drive while this arm runs; `None`: as it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
}

impl DiskPath {
    /// What QEMU does where nothing is written: writeback, worker threads, its main loop.
    pub fn qemu_default(container: Container) -> Self {
        Self {
            container,
            cache: PathCache::Writeback,
            engine: DiskEngine::Threads,
            iothreads: 0,
            queues: None,
            bus: Bus::VirtioBlk,
            discard: false,
            detect_zeroes: false,
            block_size: None,
            scheduler: None,
        }
    }

    /// Whether this is QEMU's default for its container.
    pub fn is_qemu_default(&self) -> bool {
        *self == Self::qemu_default(self.container)
    }

    /// Its values as words, each the word that leaves arms with it out.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> =
            [self.container.id(), self.cache.id(), self.engine.name(), self.bus.id()].map(str::to_owned).to_vec();
        words.push(match self.iothreads {
            0 => "main-loop".to_owned(),
            1 => "iothread".to_owned(),
            several => format!("{several}-iothreads"),
        });
        words.extend(self.queues.map(|queues| format!("q{queues}")));
        words.extend(self.discard.then(|| "discard".to_owned()));
        words.extend(self.detect_zeroes.then(|| "detect-zeroes".to_owned()));
        words.extend(self.block_size.map(|size| format!("sectors-{size}")));
        words.extend(self.scheduler.map(|scheduler| format!("scheduler-{}", scheduler.name())));
        words
    }

    /// The id in tables and files, stable over versions: its words.
    pub fn id(&self) -> String {
        self.words().join(".")
    }

    /// What a person calls it.
    pub fn title(&self) -> String {
        let mut title = format!("{} {}/{}", self.container.id(), self.cache.id(), self.engine.name());
        match self.iothreads {
            0 => title.push_str(" main loop"),
            1 => title.push_str(" iothread"),
            several => title.push_str(&format!(" {several} iothreads")),
        }
        if self.bus == Bus::VirtioScsi {
            title.push_str(" virtio-scsi");
        }
        if let Some(queues) = self.queues {
            title.push_str(&format!(" {queues} queue{}", if queues == 1 { "" } else { "s" }));
        }
        for (set, word) in [(self.discard, " discard"), (self.detect_zeroes, " detect-zeroes")] {
            title.push_str(if set { word } else { "" });
        }
        if let Some(size) = self.block_size {
            title.push_str(&format!(" sectors of {size} B"));
        }
        if let Some(scheduler) = self.scheduler {
            title.push_str(&format!(" scheduler {}", scheduler.name()));
        }
        if self.is_qemu_default() {
            title.push_str(" (QEMU's default)");
        }
        title
    }

    /// The attributes of `<driver>` beside name and type, in libvirt's order. QEMU's default writes none: that is what
    /// makes it the default.
    pub fn driver_attributes(&self) -> Vec<(&'static str, String)> {
        if self.is_qemu_default() {
            return Vec::new();
        }
        let mut attributes = vec![("cache", self.cache.id().to_owned()), ("io", self.engine.name().to_owned())];
        if self.bus == Bus::VirtioBlk {
            attributes.extend((self.iothreads == 1).then(|| ("iothread", "1".to_owned())));
            attributes.extend(self.queues.map(|queues| ("queues", queues.to_string())));
        }
        attributes.extend(self.discard.then(|| ("discard", "unmap".to_owned())));
        let detect = if self.discard { "unmap" } else { "on" };
        attributes.extend(self.detect_zeroes.then(|| ("detect_zeroes", detect.to_owned())));
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_default_writes_nothing_and_every_other_path_says_what_it_is() {
        let default = DiskPath::qemu_default(Container::Partition);
        assert!(default.driver_attributes().is_empty());
        assert_eq!(default.id(), "partition.writeback.threads.virtio-blk.main-loop");
        let other = DiskPath { iothreads: 1, queues: Some(2), discard: true, detect_zeroes: true, ..default };
        let text: Vec<_> = other.driver_attributes().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected =
            ["cache=writeback", "io=threads", "iothread=1", "queues=2", "discard=unmap", "detect_zeroes=unmap"];
        assert_eq!(text, expected);
        assert_eq!(other.id(), "partition.writeback.threads.virtio-blk.iothread.q2.discard.detect-zeroes");
    }

    #[test]
    fn only_unsafe_loses_what_was_flushed() {
        let losing: Vec<_> = PathCache::ALL.into_iter().filter(|cache| !cache.is_durable()).collect();
        assert_eq!(losing, [PathCache::Unsafe]);
    }

    #[test]
    fn a_path_survives_json() {
        let path = DiskPath {
            block_size: Some(4096),
            scheduler: Some(Scheduler::MqDeadline),
            ..DiskPath::qemu_default(Container::Qcow2Full)
        };
        let text = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<DiskPath>(&text).unwrap(), path);
        assert_eq!(serde_json::from_str::<Container>("\"block\"").unwrap(), Container::Partition);
        assert!(Scheduler::ALL.iter().all(|one| Scheduler::named(one.name()) == Some(*one)));
    }
}
