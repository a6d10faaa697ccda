//! `nearmetal bench loads-image`.

use std::path::PathBuf;

use anyhow::Context as _;
use nearmetal_lab::Places;
use nearmetal_lab::image::{With, ensure_loads, found_loads, loads};

use super::workload::Chosen;
use crate::commands::lab::Drawn;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Build the loads image if there is none, and print its path
///
/// The loads image holds the programs of real loads with their libraries: a Java runtime, a workload and an application in Java,
/// MariaDB and sysbench, nginx and wrk, and Dovecot. It has 133 MB. All guests and the host read the same file. It is made of Debian 13's packages, which are downloaded once (about
/// 200 MB), as root; mmdebstrap and erofs-utils must be installed. It is kept in /var/cache/nearmetal, or in $NEARMETAL_CACHE.
///
/// `nearmetal lab up --loads` gives a lab the same image as a disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench loads-image
  nearmetal bench loads-image --with postgresql")]
pub(super) struct Args {
    /// Build the image that has this beside: PostgreSQL and pgbench, which the load pgbench runs. It is a file of its own, and the other
    /// loads run from it, too
    #[arg(long, value_name = "postgresql")]
    with: Option<With>,
}

/// The loads image, where a load needs it.
///
/// # Errors
/// It was not built here.
pub(super) fn needed(is_needed: bool) -> anyhow::Result<Option<PathBuf>> {
    if is_needed { found(None).map(Some) } else { Ok(None) }
}

/// The loads image that has what this load needs, if it needs one.
///
/// # Errors
/// It was not built here.
pub(super) fn needed_by(load: &Chosen) -> anyhow::Result<Option<PathBuf>> {
    let with = load.needs_postgresql().then_some(With::Postgresql);
    if load.needs_loads_image() { found(with).map(Some) } else { Ok(None) }
}

fn found(with: Option<With>) -> anyhow::Result<PathBuf> {
    let places = Places::standard();
    let option = with.map_or_else(String::new, |with| format!(" --with {}", with.word()));
    found_loads(&places, with).with_context(|| {
        let path = loads(&places, with);
        format!("there is no loads image `{}`: make it with `nearmetal bench loads-image{option}`", path.display())
    })
}

/// Builds the image, or finds it.
pub(super) fn loads_image(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let image = ensure_loads(&Places::standard(), args.with, &mut Drawn::new(printer))?;
    printer.data(&image.display().to_string());
    Ok(ExitStatus::Done)
}
