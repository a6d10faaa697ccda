//! `nearmetal lab push`.

use std::path::PathBuf;

use nearmetal_lab::Places;

use super::open;
use crate::exit_status::ExitStatus;

/// Copy a file or directory into a lab
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the lab
    name: String,
    /// File or directory here
    local: PathBuf,
    /// Destination in the lab
    remote: String,
}

/// Copies into a lab.
pub fn push(args: Args, places: &Places) -> anyhow::Result<ExitStatus> {
    open(places, &args.name)?.push(&args.local, &args.remote)?;
    Ok(ExitStatus::Done)
}
