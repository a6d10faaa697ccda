//! Scratch space: who gets what of it.

use std::path::Path;

use nearmetal_host::{Host, HostFs};
use nearmetal_results::{Container, DiskPath, LeftOut};
use nearmetal_units::Bytes;

use super::arms::{Ground, arms};
use super::containers::{Files, fill};
use super::disks::Part;
use super::run::MatrixRequest;
use super::volumes;
use crate::engine::Session;
use crate::error::MeasureError;
use crate::scratch::Scratch;

/// Scratch space, divided among the arms.
pub(super) struct Space {
    pub(super) paths: Vec<DiskPath>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) sources: Vec<Source>,
    /// What bare metal works on.
    pub(super) bare: String,
    /// The device behind most of it.
    pub(super) device: String,
    pub(super) span: Bytes,
}

/// The last offset libvirt's schema takes for a part of a device: an `unsignedInt` of 32 bit (domaincommon.rng,
/// `diskSourceSlice`, in libvirt 11.3).
const FARTHEST: u64 = u32::MAX as u64;

/// Where an arm's blocks are.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Device or file.
    pub(super) path: String,
    /// The part of the device that is its own.
    pub(super) part: Option<Part>,
}

impl Space {
    pub(super) fn prepare(
        request: &MatrixRequest,
        session: &mut Session<'_>,
        ground: &mut Ground,
    ) -> Result<Self, MeasureError> {
        let span = request.job.span.unwrap_or(Bytes::from_mib(256));
        let (mut paths, mut left_out) = arms(ground);
        let directory = request.scratch.iter().find(|path| Path::new(path).is_dir());
        let mut files = None;
        if let Some(directory) = directory {
            let count = paths.iter().filter(|path| path.container.is_file()).count() + 1;
            session.leftovers.directories.push(Files::inside(Path::new(directory)));
            // One that was there before is not this run's to remove.
            if !Files::inside(Path::new(directory)).exists() {
                session.leftovers.save()?;
            } else {
                session.leftovers.directories.clear();
            }
            let made = Files::begin(Path::new(directory), count, span)?;
            ground.files_direct = Some(made.direct());
            (paths, left_out) = arms(ground);
            files = Some(made);
        }
        let device = request.scratch.iter().find(|path| !Path::new(path).is_dir());
        let mut blocks = None;
        let mut behind = directory.cloned().unwrap_or_default();
        if let Some(device) = device {
            let count = |container| paths.iter().filter(|path| path.container == container).count();
            let (parts, volumes) = (count(Container::Device), count(Container::Lvm));
            let regions = count(Container::Partition) + 1 + parts + volumes;
            let scratch = session.divide(device, regions)?;
            let room = if volumes > 0 { scratch.region_size.less(volumes::LOST) } else { scratch.region_size };
            if room < span {
                return Err(MeasureError::Scratch {
                    device: device.clone(),
                    why: format!(
                        "{regions} regions with room for {room} each are smaller than --span {span}: give a smaller one, or leave arms out"
                    ),
                });
            }
            behind = scratch.device().to_owned();
            blocks = Some(Blocks::divide(session, &scratch, parts, volumes, span)?);
        }
        let mut source = |path: &DiskPath| -> Result<Source, MeasureError> {
            let missing = || MeasureError::Unfit(format!("there is no scratch space for {}", path.title()));
            if path.container.is_file() {
                let path = files.as_mut().ok_or_else(missing)?.make(path.container)?;
                return Ok(Source { path, part: None });
            }
            blocks.as_mut().and_then(|blocks| blocks.take(path.container)).ok_or_else(missing)
        };
        let sources = paths.iter().map(&mut source).collect::<Result<Vec<_>, _>>()?;
        let first = paths.first().map_or(Container::Partition, |path| path.container);
        let bare = if first.is_file() { Container::RawFile } else { Container::Partition };
        let bare = source(&DiskPath::qemu_default(bare))?.path;
        Ok(Self { paths, left_out, sources, bare, device: behind, span })
    }
}

/// The scratch device's regions, by what they are used as.
struct Blocks {
    partitions: Vec<Source>,
    parts: Vec<Source>,
    volumes: Vec<Source>,
}

impl Blocks {
    /// Makes parts and volumes of the first regions, and fills all.
    fn divide(
        session: &mut Session<'_>,
        scratch: &Scratch,
        parts: usize,
        volumes: usize,
        span: Bytes,
    ) -> Result<Self, MeasureError> {
        let (of_parts, rest) = scratch.regions.split_at(parts);
        let (of_volumes, partitions) = rest.split_at(volumes);
        let plain = |path: &String| Source { path: path.clone(), part: None };
        for region in partitions {
            fill(region, Bytes::ZERO, span)?;
        }
        let parts = match of_parts.first() {
            Some(first) => parts_of(session.fs, scratch.device(), first, of_parts.len(), span)?,
            None => Vec::new(),
        };
        let mut made = Vec::new();
        if !of_volumes.is_empty() {
            let group = volumes::new_name(session.fs)?;
            session.leftovers.volume_groups.push(group.clone());
            session.leftovers.save()?;
            made = volumes::make(&group, of_volumes)?;
            for volume in &made {
                fill(volume, Bytes::ZERO, span)?;
            }
        }
        Ok(Self {
            partitions: partitions.iter().map(plain).collect(),
            parts,
            volumes: made.iter().map(plain).collect(),
        })
    }

    fn take(&mut self, container: Container) -> Option<Source> {
        match container {
            Container::Partition => self.partitions.pop(),
            Container::Device => self.parts.pop(),
            Container::Lvm => self.volumes.pop(),
            _ => None,
        }
    }
}

/// Parts of the whole device, one behind the other from where its first region begins, filled.
fn parts_of(fs: &HostFs, device: &str, first: &str, count: usize, span: Bytes) -> Result<Vec<Source>, MeasureError> {
    let host = Host::read(fs);
    let refuse = |why: String| MeasureError::Scratch { device: device.to_owned(), why };
    let start = first.strip_prefix("/dev/").and_then(|name| host.block_device(name)?.start);
    let start = start.ok_or_else(|| refuse(format!("the kernel does not say where {first} begins")))?;
    let mut parts = Vec::new();
    for number in 0..count as u64 {
        let part = Part { offset: start.plus(span.times(number)), size: span };
        if part.offset.get() > FARTHEST {
            return Err(refuse(format!(
                "libvirt's schema lets a part of a device begin below 4 GiB, and {count} parts of {span} reach beyond: give a smaller --span, or --without device"
            )));
        }
        fill(device, part.offset, span)?;
        parts.push(Source { path: device.to_owned(), part: Some(part) });
    }
    Ok(parts)
}
