//! Programs that are installed together with this one.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Names the program that is sent, where it is not beside this one.
const PROBE_VARIABLE: &str = "NEARMETAL_PROBE";

/// A program that is installed together with this one.
pub(crate) fn beside_this_program(name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("cannot find this program")?;
    let path = here.parent().unwrap_or(Path::new("/")).join(name);
    if !path.exists() {
        bail!("`{}` is missing: install it in the directory of `{}`", path.display(), here.display());
    }
    Ok(path)
}

/// The program that is sent to other machines and into guests.
///
/// # Errors
/// It is neither named nor installed.
pub(crate) fn probe() -> anyhow::Result<PathBuf> {
    match std::env::var_os(PROBE_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => beside_this_program("nearmetal-probe"),
    }
}
