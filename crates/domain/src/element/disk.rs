//! `<disk>`: what it is and where it lies.

use nearmetal_units::Bytes;
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use super::{hostdev, memory};
use crate::edit::is_plain;
use crate::error::{DomainError, short};
use crate::tree;

/// A disk, CD-ROM or floppy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// Target name, `vda`.
    pub target: String,
    /// `virtio`, `scsi`, `sata`, …; from the target's name where it is not written, as libvirt does.
    pub bus: Option<String>,
    /// `disk`, `cdrom`, `floppy` or `lun`.
    pub device: String,
    /// `file`, `block`, `network`, `volume`, `nvme`, `dir`, `vhostuser`, ….
    pub kind: String,
    /// Path, `pool/volume`, network name or PCI address; `None` for an empty drive.
    pub source: Option<String>,
    /// Driver options as written.
    pub driver: DriverFacts,
    /// Whether the guest may only read it.
    pub readonly: bool,
    /// Serial number the guest sees.
    pub serial: Option<String>,
    /// Place among the disks of the domain, from 0.
    pub index: usize,
    /// Whether writes go to an overlay that is thrown away when the domain stops.
    #[serde(default)]
    pub transient: bool,
    /// Limits in `<iotune>` (`total_iops_sec`, …) that are not 0, in their order.
    #[serde(default)]
    pub limits: Vec<(String, u64)>,
    /// `yes` or `no` of `<source><reconnect enabled>`: whether QEMU calls a vhost-user server again that went away.
    #[serde(default)]
    pub reconnect: Option<String>,
}

/// `<driver>` of a disk, each option as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DriverFacts {
    /// `qemu`.
    pub name: Option<String>,
    /// Image format, `raw`, `qcow2`.
    #[serde(rename = "type")]
    pub format: Option<String>,
    /// `none`, `writeback`, …; QEMU's default is writeback.
    pub cache: Option<String>,
    /// `threads`, `native`, `io_uring`; QEMU's default is threads.
    pub io: Option<String>,
    /// Iothread that serves it.
    pub iothread: Option<u32>,
    /// Iothreads its queues are spread over, by number.
    pub iothread_mapping: Vec<u32>,
    /// Whether that mapping names queues; else iothreads take them in turns.
    #[serde(default)]
    pub names_queues: bool,
    /// Virtqueues.
    pub queues: Option<u32>,
    /// `unmap` or `ignore`.
    pub discard: Option<String>,
    /// `off`, `on` or `unmap`.
    pub detect_zeroes: Option<String>,
    /// `on` or `off`: whether notifications go through the kernel.
    #[serde(default)]
    pub ioeventfd: Option<String>,
    /// `on` or `off`: whether needless notifications are left out.
    #[serde(default)]
    pub event_idx: Option<String>,
    /// Most memory QEMU may take for the tables of a qcow2 image (`<metadata_cache><max_size>`).
    #[serde(default)]
    pub metadata_cache: Option<Bytes>,
    /// Entries of each virtqueue, where it is written.
    #[serde(default)]
    pub queue_size: Option<u32>,
}

impl DiskFacts {
    /// Whether the guest drives it by virtio-blk: only then do iothread and queues apply.
    pub fn is_virtio_blk(&self) -> bool {
        self.bus.as_deref() == Some("virtio") && matches!(self.device.as_str(), "disk" | "lun")
    }
}

pub(crate) fn read(document: &Document<'_>) -> Result<Vec<DiskFacts>, DomainError> {
    nodes(document).into_iter().enumerate().map(|(index, node)| read_one(index, node)).collect()
}

/// All disks in their order.
pub(crate) fn nodes<'a, 'i>(document: &'a Document<'i>) -> Vec<Node<'a, 'i>> {
    tree::find_all(document, &["devices", "disk"])
}

/// The disk with that target name.
pub(crate) fn find<'a, 'i>(document: &'a Document<'i>, target: &str) -> Result<Node<'a, 'i>, DomainError> {
    let disks = nodes(document);
    disks.iter().copied().find(|disk| target_of(*disk).as_deref() == Some(target)).ok_or_else(|| {
        let known: Vec<String> = disks.iter().filter_map(|disk| target_of(*disk)).collect();
        let known = if known.is_empty() { "no disks".to_owned() } else { known.join(", ") };
        DomainError::NoSuchDisk { target: short(target), known }
    })
}

fn target_of(disk: Node<'_, '_>) -> Option<String> {
    tree::child(disk, "target").and_then(|target| tree::attribute(target, "dev"))
}

fn read_one(index: usize, disk: Node<'_, '_>) -> Result<DiskFacts, DomainError> {
    let missing = || DomainError::Missing { position: tree::position(disk), what: "disk/target/@dev".to_owned() };
    let target = target_of(disk).ok_or_else(missing)?;
    let kind = tree::attribute(disk, "type").unwrap_or_else(|| "file".to_owned());
    Ok(DiskFacts {
        bus: bus(disk, &target),
        device: tree::attribute(disk, "device").unwrap_or_else(|| "disk".to_owned()),
        source: source(disk, &kind)?,
        driver: driver(disk)?,
        readonly: tree::child(disk, "readonly").is_some(),
        serial: tree::child_text(disk, "serial"),
        transient: tree::child(disk, "transient").is_some(),
        limits: limits(disk)?,
        reconnect: tree::child(disk, "source")
            .and_then(|source| tree::child(source, "reconnect"))
            .and_then(|reconnect| tree::attribute(reconnect, "enabled")),
        target,
        kind,
        index,
    })
}

/// The bus as written, or as libvirt concludes from the target's name.
pub(crate) fn bus(disk: Node<'_, '_>, target: &str) -> Option<String> {
    let written = tree::child(disk, "target").and_then(|target| tree::attribute(target, "bus"));
    let concluded = || {
        let table = [("vd", "virtio"), ("sd", "scsi"), ("hd", "ide"), ("fd", "fdc"), ("xvd", "xen")];
        table.into_iter().find(|(prefix, _)| target.starts_with(prefix)).map(|(_, bus)| bus.to_owned())
    };
    written.or_else(concluded)
}

fn source(disk: Node<'_, '_>, kind: &str) -> Result<Option<String>, DomainError> {
    let Some(source) = tree::child(disk, "source") else { return Ok(None) };
    let of = |name: &str| tree::attribute(source, name);
    Ok(match kind {
        "file" => of("file"),
        "block" => of("dev"),
        "dir" => of("dir"),
        "network" => of("name"),
        "volume" => of("pool").zip(of("volume")).map(|(pool, volume)| format!("{pool}/{volume}")),
        "nvme" => hostdev::source_address(disk)?.map(|address| address.to_string()),
        _ => ["path", "file", "dev"].into_iter().find_map(of),
    })
}

fn limits(disk: Node<'_, '_>) -> Result<Vec<(String, u64)>, DomainError> {
    let Some(iotune) = tree::child(disk, "iotune") else { return Ok(Vec::new()) };
    let mut limits = Vec::new();
    for node in iotune.children().filter(|node| is_plain(*node)) {
        let name = node.tag_name().name();
        // `group_name` is a name, and what newer libvirt adds need not be a number either.
        if ["_sec", "_max", "_length"].iter().any(|part| name.contains(part)) {
            let value = tree::whole_number::<u64>(node, &format!("<{name}>"), &tree::text(node))?;
            if value > 0 {
                limits.push((name.to_owned(), value));
            }
        }
    }
    Ok(limits)
}

/// `max_size` counts bytes where it names no unit, unlike memory (virDomainDiskDefDriverParseXML).
fn metadata_cache(driver: Node<'_, '_>) -> Result<Option<Bytes>, DomainError> {
    let Some(size) = tree::child(driver, "metadata_cache").and_then(|cache| tree::child(cache, "max_size")) else {
        return Ok(None);
    };
    let text = tree::text(size);
    match size.attribute("unit") {
        Some(_) => memory::scaled(size, "<max_size>", &text).map(Some),
        None => tree::whole_number(size, "<max_size>", &text).map(|bytes| Some(Bytes::new(bytes))),
    }
}

fn driver(disk: Node<'_, '_>) -> Result<DriverFacts, DomainError> {
    let Some(driver) = tree::child(disk, "driver") else { return Ok(DriverFacts::default()) };
    let of = |name: &str| tree::attribute(driver, name);
    let (mut mapping, mut names_queues) = (Vec::new(), false);
    for list in tree::children(driver, "iothreads") {
        for iothread in tree::children(list, "iothread") {
            mapping.extend(tree::number::<u32>(iothread, "id")?);
            names_queues |= tree::child(iothread, "queue").is_some();
        }
    }
    Ok(DriverFacts {
        name: of("name"),
        format: of("type"),
        cache: of("cache"),
        io: of("io"),
        iothread: tree::number(driver, "iothread")?,
        iothread_mapping: mapping,
        names_queues,
        queues: tree::number(driver, "queues")?,
        discard: of("discard"),
        detect_zeroes: of("detect_zeroes"),
        ioeventfd: of("ioeventfd"),
        event_idx: of("event_idx"),
        metadata_cache: metadata_cache(driver)?,
        queue_size: tree::number(driver, "queue_size")?,
    })
}
