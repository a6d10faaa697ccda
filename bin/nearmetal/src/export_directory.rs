//! The files of an export in a directory that is ours, or becomes so.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use nearmetal_change::private_files;
use nearmetal_export::ExportFile;
use nearmetal_host::files;
use nearmetal_host::files::FileError;

/// Lists what an export wrote, so that the next one into the same directory takes away nothing else.
const LIST: &str = ".nearmetal-export";

/// Writes files; what an earlier export left in the directory goes. Gives the paths written, one a line.
///
/// # Errors
/// There is something in the directory that is not from an export, or it cannot be written; with what to do.
pub(crate) fn write(directory: &Path, written: &[ExportFile]) -> Result<String, String> {
    let old = own_files(directory)?;
    replace(directory, &old, written).map_err(|error| with_cause(&error))?;
    let mut list = String::new();
    for file in written {
        let _ = writeln!(list, "{}", directory.join(&file.path).display());
    }
    Ok(list)
}

fn with_cause(error: &FileError) -> String {
    format!("{error}: {}", error.source)
}

/// Files of an earlier export in a directory, as paths below it.
///
/// # Errors
/// There are others, or it cannot be listed.
fn own_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    walk(directory, Path::new(""), &mut found).map_err(|error| with_cause(&error))?;
    let listed = files::read_to_string(&directory.join(LIST)).unwrap_or_default();
    let listed: BTreeSet<&Path> = listed.lines().map(Path::new).chain([Path::new(LIST)]).collect();
    match found.iter().find(|path| !listed.contains(path.as_path())) {
        Some(path) => Err(format!(
            "`{}` holds `{}`, which no export wrote: name a new or empty directory",
            directory.display(),
            path.display()
        )),
        None => Ok(found),
    }
}

/// All files below a directory; a link is one of them and is not followed. None if there is no such directory.
fn walk(directory: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), FileError> {
    let here = directory.join(below);
    if !here.exists() {
        return Ok(());
    }
    for path in files::list(&here)? {
        let Some(name) = path.file_name() else { continue };
        let below = below.join(name);
        if path.is_dir() && !path.is_symlink() { walk(directory, &below, found)? } else { found.push(below) }
    }
    Ok(())
}

/// Replaces the old files. The list comes first: an export that was interrupted is still known as one.
fn replace(directory: &Path, old: &[PathBuf], written: &[ExportFile]) -> Result<(), FileError> {
    files::create_dir_all(directory)?;
    let mut list: BTreeSet<String> = written.iter().map(|file| file.path.clone()).collect();
    list.extend(old.iter().map(|path| path.display().to_string()));
    let text = |list: &BTreeSet<String>| list.iter().fold(String::new(), |text, path| text + path + "\n");
    files::write(&directory.join(LIST), text(&list))?;
    for path in old.iter().filter(|path| *path != Path::new(LIST)) {
        files::remove(&directory.join(path))?;
    }
    for file in written {
        let path = directory.join(&file.path);
        if let Some(parent) = path.parent() {
            files::create_dir_all(parent)?;
        }
        match file.private {
            true => private_files::write(&path, file.text.as_bytes())?,
            false => files::write(&path, &file.text)?,
        }
    }
    files::write(&directory.join(LIST), text(&written.iter().map(|file| file.path.clone()).collect()))
}
