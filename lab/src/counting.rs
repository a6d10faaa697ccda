//! What a lab needs to count: the plugin for its QEMU, and the page that the plugin writes.

use std::path::{Path, PathBuf};

use nearmetal_host::files;

use crate::error::LabError;
use crate::machine::{COUNTERS, PLUGIN};

/// The plugin, as the linker calls it.
const LIBRARY: &str = "libnearmetal_lab_counter.so";

/// Puts both into the state directory, which QEMU sees inside its tree. The page begins empty at every start.
pub(crate) fn prepare(state: &Path) -> Result<(), LabError> {
    let library = library();
    if !library.exists() {
        return Err(LabError::NoCounter { path: library });
    }
    files::write(&state.join(PLUGIN), files::read(&library)?)?;
    files::write(&state.join(COUNTERS), vec![0; nearmetal_counters::PAGE_BYTES])?;
    Ok(())
}

/// Beside the program that runs.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    here.parent().unwrap_or(Path::new("/")).join(LIBRARY)
}
