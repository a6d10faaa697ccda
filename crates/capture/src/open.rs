//! From a path or from bytes to a host, whatever the format.

use std::io::Read;
use std::path::Path;

use nearmetal_host::{HostFs, files};

use crate::compression;
use crate::{CaptureError, archive, hwloc};

/// Bytes a capture may have before it is unpacked.
const MOST_PACKED: u64 = 256 << 20;

/// A host from a directory, an archive (tar, plain or compressed with gzip, bzip2, xz or zstd) or hwloc XML; by what is
/// in it, not by its name.
///
/// # Errors
/// Nothing there, none of these, damaged, or larger than any capture is.
pub fn open(path: &Path) -> Result<HostFs, CaptureError> {
    if path.is_dir() {
        return directory(path);
    }
    let name = path.display().to_string();
    let mut data = Vec::new();
    let read = files::open(path)?.take(MOST_PACKED + 1).read_to_end(&mut data);
    read.map_err(|error| CaptureError::Archive { name: name.clone(), problem: error.to_string() })?;
    if data.len() as u64 > MOST_PACKED {
        return Err(CaptureError::TooLarge { name, limit: MOST_PACKED >> 20 });
    }
    from_bytes(&name, &data)
}

/// A directory with `sys` and `proc`, or with one folder that has them, as unpacked archives do.
fn directory(path: &Path) -> Result<HostFs, CaptureError> {
    let error = match HostFs::at(path) {
        Ok(fs) => return Ok(fs),
        Err(error) => error,
    };
    let inner: Vec<_> = files::list(path)?.into_iter().filter(|inner| inner.is_dir() && !inner.is_symlink()).collect();
    match &inner[..] {
        [inner] => HostFs::at(inner).map_err(|_| error.into()),
        _ => Err(error.into()),
    }
}

/// As [`open`], for bytes that are here already. `name` says where they come from.
///
/// # Errors
/// As [`open`].
pub fn from_bytes(name: &str, data: &[u8]) -> Result<HostFs, CaptureError> {
    let damaged = |problem: String| CaptureError::Archive { name: name.to_owned(), problem };
    let mut reader = compression::reader(data).map_err(|error| damaged(error.to_string()))?;
    let mut head = Vec::new();
    reader.by_ref().take(512).read_to_end(&mut head).map_err(|error| damaged(error.to_string()))?;
    let mut whole = (&head[..]).chain(reader);
    let text = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&head);
    if text.trim_ascii_start().starts_with(b"<") {
        let mut bytes = Vec::new();
        let most = crate::xml::MOST_BYTES as u64;
        whole.take(most + 1).read_to_end(&mut bytes).map_err(|error| damaged(error.to_string()))?;
        let tree = hwloc::tree(name, &bytes)?;
        return Ok(HostFs::of_partial_tree(tree, name));
    }
    if head.len() < 512 {
        return Err(CaptureError::Format { name: name.to_owned() });
    }
    archive::unpack(name, &mut whole).map(|tree| HostFs::of_tree(tree, name))
}
