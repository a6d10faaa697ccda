//! `nearmetal-probe programs`

use nearmetal_host::HostFs;
use nearmetal_probe::error::ProbeError;
use nearmetal_probe::programs::{Data, device, refuse_huge_pages, run_in_image};

use super::ended;
use crate::cli::programs::ProgramsArguments;

/// Mounts, runs; an end that is no success is an error.
pub(crate) fn run(arguments: &ProgramsArguments) -> Result<(), ProbeError> {
    let fs = HostFs::live();
    let image = device(&fs, &arguments.image)?;
    let kit = arguments.kit.as_deref().map(|kit| device(&fs, kit)).transpose()?;
    let data = arguments.data().map(|data| Ok::<_, ProbeError>((device(&fs, data.device)?, data))).transpose()?;
    let data = data.as_ref().map(|(device, data)| Data { device, ..*data });
    if arguments.small_pages {
        refuse_huge_pages()?;
    }
    ended(&arguments.command, run_in_image(&image, kit.as_deref(), data, arguments.at_gate(), &arguments.command)?)
}
