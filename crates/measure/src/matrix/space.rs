//! Scratch space: who gets what of it.

use std::path::Path;

use nearmetal_host::HostFs;
use nearmetal_units::Bytes;

use super::arms::{Ground, LeftOut, arms};
use super::containers::{Files, fill};
use super::path::{Container, DiskPath};
use super::run::MatrixRequest;
use crate::error::MeasureError;
use crate::leftovers::Leftovers;
use crate::scratch::Scratch;

/// Scratch space, divided among the arms.
pub(super) struct Space {
    pub(super) paths: Vec<DiskPath>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) sources: Vec<String>,
    /// What bare metal works on.
    pub(super) bare: String,
    /// The device behind most of it.
    pub(super) device: String,
    pub(super) span: Bytes,
}

impl Space {
    pub(super) fn prepare(
        request: &MatrixRequest,
        fs: &HostFs,
        leftovers: &mut Leftovers,
        slot: &mut Option<Scratch>,
        ground: &mut Ground,
    ) -> Result<Self, MeasureError> {
        let span = request.job.span.unwrap_or(Bytes::from_mib(256));
        let (mut paths, mut left_out) = arms(ground);
        let directory = request.scratch.iter().find(|path| Path::new(path).is_dir());
        let mut files = None;
        if let Some(directory) = directory {
            let count = paths.iter().filter(|path| path.container.is_file()).count() + 1;
            leftovers.directories.push(Files::inside(Path::new(directory)));
            // One that was there before is not this run's to remove.
            if !Files::inside(Path::new(directory)).exists() {
                leftovers.save()?;
            } else {
                leftovers.directories.clear();
            }
            let made = Files::begin(Path::new(directory), count, span)?;
            ground.files_direct = Some(made.direct());
            (paths, left_out) = arms(ground);
            files = Some(made);
        }
        let device = request.scratch.iter().find(|path| !Path::new(path).is_dir());
        let mut regions = Vec::new().into_iter();
        let mut behind = directory.cloned().unwrap_or_default();
        if let Some(device) = device {
            let count = paths.iter().filter(|path| !path.container.is_file()).count() + 1;
            let scratch = slot.insert(Scratch::prepare(fs, device, count)?);
            if scratch.region_size < span {
                return Err(MeasureError::Scratch {
                    device: device.clone(),
                    why: format!(
                        "{count} regions of {} each are smaller than --span {span}: give a smaller one, or leave arms out",
                        scratch.region_size
                    ),
                });
            }
            for region in &scratch.regions {
                fill(region, span)?;
            }
            behind = scratch.device().to_owned();
            regions = scratch.regions.clone().into_iter();
        }
        let mut source = |path: &DiskPath| -> Result<String, MeasureError> {
            let missing = || MeasureError::Unfit(format!("there is no scratch space for {}", path.title()));
            match (&mut files, path.container.is_file()) {
                (Some(files), true) => files.make(path.container),
                (_, false) => regions.next().ok_or_else(missing),
                (None, true) => Err(missing()),
            }
        };
        let sources = paths.iter().map(&mut source).collect::<Result<Vec<_>, _>>()?;
        let first = paths.first().map_or(Container::Block, |path| path.container);
        let bare = if first.is_file() { Container::RawFile } else { Container::Block };
        let bare = source(&DiskPath::qemu_default(bare))?;
        Ok(Self { paths, left_out, sources, bare, device: behind, span })
    }
}
