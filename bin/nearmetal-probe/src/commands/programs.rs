//! `nearmetal-probe programs`

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::programs::{refuse_huge_pages, run_in_image};

use super::ended;
use crate::cli::ProgramsArguments;

/// Mounts, runs; an end that is no success is an error.
pub(crate) fn run(arguments: &ProgramsArguments) -> Result<(), ProbeError> {
    if arguments.small_pages {
        refuse_huge_pages()?;
    }
    ended(&arguments.command, run_in_image(&arguments.image, arguments.data(), &arguments.command)?)
}
