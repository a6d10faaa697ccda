//! Files for their owner alone: plans and journals hold domain definitions, and those may hold passwords.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nearmetal_host::files::FileError;

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

/// Writes beside the target, syncs, renames: after a crash the old or the new text is there.
///
/// # Errors
/// The directory is not there or may not be written, or the disk is full.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let work = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(beside, path)?;
        sync_parent(path)
    };
    work().map_err(failed("write", path))
}

/// Opens for appending; creates the file, and then makes its name durable.
pub(crate) fn append(path: &Path) -> Result<File, FileError> {
    let work = || -> io::Result<File> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        sync_parent(path)?;
        Ok(file)
    };
    work().map_err(failed("open", path))
}

/// Creates a directory that others cannot enter; its parents as usual.
pub(crate) fn create_directory(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        nearmetal_host::files::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.and_then(|()| sync_parent(path)),
    }
    .map_err(failed("create directory", path))
}

/// A new name is durable only when its directory is (fsync(2)).
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    OpenOptions::new().read(true).open(parent)?.sync_all()
}
