//! Advisory locks, released by the kernel however the holder ends.

use std::fs::File;
use std::path::Path;

use nearmetal_host::files;

use crate::error::LabError;

/// A held lock.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until nobody else holds the lock file at `path`, which is created if missing and never removed.
    pub(crate) fn wait(path: &Path) -> Result<Self, LabError> {
        if let Some(parent) = path.parent() {
            files::create_dir_all(parent)?;
        }
        let file = files::append(path)?;
        files::lock(&file, path)?;
        Ok(Self { _file: file })
    }
}
