//! `nearmetal-probe see`

use nearmetal_host::HostFs;
use nearmetal_probe::error::ProbeError;
use nearmetal_probe::output::Output;
use nearmetal_probe::see::see;

use crate::cli::SeeArguments;

/// Prints what the machine, or a captured tree, shows of itself.
pub(crate) fn run(arguments: SeeArguments) -> Result<(), ProbeError> {
    let files = match arguments.root {
        Some(root) => HostFs::at(root)?,
        None => HostFs::live(),
    };
    Output::new("see", &see(&files)).print()
}
