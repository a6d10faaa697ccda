//! `nearmetal bench loads-image`.

use std::path::PathBuf;

use anyhow::Context as _;
use nearmetal_lab::Places;
use nearmetal_lab::image::{ensure_loads, found_loads, loads};

use crate::commands::lab::Drawn;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Build the loads image if there is none, and print its path
///
/// The loads image holds the programs of real loads with their libraries: a Java runtime, a workload and an application in Java,
/// MariaDB and sysbench, nginx and Dovecot. It has 114 MB. All guests and the host read the same file. It is made of Debian 13's packages, which are downloaded once (about
/// 200 MB), as root; mmdebstrap and erofs-utils must be installed. It is kept in /var/cache/nearmetal, or in $NEARMETAL_CACHE.
///
/// `nearmetal lab up --loads` gives a lab the same image as a disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench loads-image")]
pub(super) struct Args {}

/// The loads image, where a load needs it.
///
/// # Errors
/// It was not built here.
pub(super) fn needed(is_needed: bool) -> anyhow::Result<Option<PathBuf>> {
    if !is_needed {
        return Ok(None);
    }
    let places = Places::standard();
    found_loads(&places).map(Some).with_context(|| {
        format!("there is no loads image `{}`: make it with `nearmetal bench loads-image`", loads(&places).display())
    })
}

/// Builds the image, or finds it.
pub(super) fn loads_image(_: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let image = ensure_loads(&Places::standard(), &mut Drawn::new(printer))?;
    printer.data(&image.display().to_string());
    Ok(ExitStatus::Done)
}
