//! `nearmetal lab pull`.

use std::path::PathBuf;

use nearmetal_lab::Places;

use super::open;
use crate::exit_status::ExitStatus;

/// Copy a file or directory out of a lab
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the lab
    name: String,
    /// File or directory in the lab
    remote: String,
    /// Destination here
    local: PathBuf,
}

/// Copies out of a lab.
pub fn pull(args: Args, places: &Places) -> anyhow::Result<ExitStatus> {
    open(places, &args.name)?.pull(&args.remote, &args.local)?;
    Ok(ExitStatus::Done)
}
