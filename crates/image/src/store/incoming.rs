//! An image on its way: `.incoming/HASH`. What is in it proves itself, so that no record is kept of how far it came.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearmetal_host::files::{self, FileError};
use rustix::fs::FallocateFlags;

use super::reuse::{Reuse, set_bits};
use super::transfers::{self, Progress};
use super::{Description, Store};
use crate::hash::{BLOCK, ImageId, PIECE};
use crate::manifest::{Manifest, blocks_of};

/// Kept free beside the image: the manifest, and the file system's own.
const MARGIN: u64 = 8 << 20;

/// Why a host does not take an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IncomingError {
    #[error("{error}: {}", error.source)]
    File { error: FileError },
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("another push of this image is under way there (it holds `{}`)", .0.display())]
    Busy(PathBuf),
    #[error("`{}` has {free} free and the image needs {needed}: make room, or choose another --directory", path.display())]
    NoRoom { path: PathBuf, free: nearmetal_units::Bytes, needed: nearmetal_units::Bytes },
    #[error(
        "{0} pieces did not prove right, one after the other: the host before it, or this machine's memory, is at fault"
    )]
    Upstream(u32),
    #[error("a piece of the image could not be read back")]
    Wrong,
}

impl From<FileError> for IncomingError {
    fn from(error: FileError) -> Self {
        Self::File { error }
    }
}

/// An image on its way.
pub(crate) struct Incoming {
    store: Store,
    id: ImageId,
    path: PathBuf,
    file: Arc<File>,
    /// Whether something was there before: then blocks of zeros must be made so.
    old: bool,
}

/// What is there of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// All of it, from an earlier push.
    Kept,
    /// All of it, out of other images; or it is all zeros.
    Reused,
    /// All but these blocks.
    Lacking(u64),
}

impl Incoming {
    /// Opens what was begun, or begins. Checks that there is room for `data_bytes`.
    pub(crate) fn open(store: &Store, id: &ImageId, length: u64, data_bytes: u64) -> Result<Self, IncomingError> {
        let directory = store.directory().join(".incoming");
        files::create_dir_all(&directory)?;
        let path = directory.join(id.to_string());
        let io = |action| {
            let path = path.clone();
            move |source| IncomingError::Io { action, path, source }
        };
        let open =
            |write| OpenOptions::new().read(true).write(write).create(write).truncate(false).mode(0o600).open(&path);
        let mut file = open(true);
        if file.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            // What was put aside, or finished but for its name, is read-only. Who has it may change that, and nobody else: another push
            // may be about to give it its name.
            let begun = open(false).map_err(io("open"))?;
            if !is_taken(&begun, &path)? {
                return Err(IncomingError::Busy(path));
            }
            begun.set_permissions(Permissions::from_mode(0o600)).map_err(io("set the permissions of"))?;
            file = open(true);
        }
        let file = file.map_err(io("open"))?;
        if !is_taken(&file, &path)? {
            return Err(IncomingError::Busy(path));
        }
        let metadata = file.metadata().map_err(io("look at"))?;
        let space = rustix::fs::statvfs(&directory).map_err(|error| io("look at the space of")(error.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let needed = data_bytes.saturating_sub(metadata.blocks() * 512) + MARGIN;
        if free < needed {
            if metadata.len() == 0 {
                files::remove(&path)?;
            }
            let (free, needed) = (nearmetal_units::Bytes::new(free), nearmetal_units::Bytes::new(needed));
            return Err(IncomingError::NoRoom { path: store.directory().to_owned(), free, needed });
        }
        let old = metadata.len() > 0;
        file.set_len(length).map_err(io("set the length of"))?;
        Ok(Self { store: store.clone(), id: *id, path, file: Arc::new(file), old })
    }

    /// Where it goes.
    pub(crate) fn store(&self) -> Store {
        self.store.clone()
    }

    /// The file, to read from.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Whether something was there before.
    pub(crate) fn is_resumed(&self) -> bool {
        self.old
    }

    /// Other images' blocks.
    pub(crate) fn reuse(&self, manifest: &Manifest) -> Reuse {
        Reuse::of(&self.store, manifest, &self.id)
    }

    /// Looks for a piece in the file itself and in other images, and writes what it finds there.
    pub(crate) fn look(&self, manifest: &Manifest, reuse: &Reuse, index: usize) -> Result<Found, IncomingError> {
        let data = manifest.piece(index).map_or(0, |piece| piece.data);
        let mut bytes = vec![0; manifest.piece_length(index)];
        if self.old && self.read(index, &mut bytes).is_ok() && manifest.proves(index, &bytes) {
            return Ok(Found::Kept);
        }
        bytes.fill(0);
        let lacking = match manifest.fingerprints(index) {
            Some(prints) => reuse.fill(data, prints, &mut bytes),
            None => data,
        };
        if lacking == 0 && manifest.proves(index, &bytes) {
            self.write(index, &bytes, blocks_of(bytes.len()), data)?;
            return Ok(Found::Reused);
        }
        // All there by its fingerprints and yet another piece: a block was damaged on the disk, or two share one.
        if lacking == 0 || lacking == data {
            return Ok(Found::Lacking(u64::MAX));
        }
        self.write(index, &bytes, !lacking, data)?;
        Ok(Found::Lacking(lacking))
    }

    /// Reads a piece.
    pub(crate) fn read(&self, index: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, index as u64 * PIECE as u64)
    }

    /// Writes the blocks `which` of a piece; those not in `data` are zero and become holes.
    pub(crate) fn write(&self, index: usize, bytes: &[u8], which: u64, data: u64) -> Result<(), IncomingError> {
        let base = index as u64 * PIECE as u64;
        let io = |source| IncomingError::Io { action: "write", path: self.path.clone(), source };
        for (begin, end) in runs(which & data & blocks_of(bytes.len())) {
            let (begin, end) = (begin * BLOCK, (end * BLOCK).min(bytes.len()));
            self.file.write_all_at(&bytes[begin..end], base + begin as u64).map_err(io)?;
        }
        if self.old {
            for (begin, end) in runs(which & !data & blocks_of(bytes.len())) {
                let (begin, length) = (base + (begin * BLOCK) as u64, ((end - begin) * BLOCK) as u64);
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if rustix::fs::fallocate(&*self.file, flags, begin, length).is_err() {
                    // A file system without holes.
                    let end = (begin + length).min(base + bytes.len() as u64);
                    self.file.write_all_at(&vec![0; (end - begin) as usize], begin).map_err(io)?;
                }
            }
        }
        Ok(())
    }

    /// Tells whoever looks how far it is.
    pub(crate) fn note(&self, progress: &Progress) {
        transfers::note(&self.path, progress);
    }

    /// Writes to the disk what was written so far.
    pub(crate) fn sync(&self) -> Result<(), IncomingError> {
        let io = |source| IncomingError::Io { action: "write to the disk", path: self.path.clone(), source };
        self.file.sync_data().map_err(io)
    }

    /// Gives a whole image its final name; the caller has proven every piece.
    pub(crate) fn finish(&self, manifest: &Manifest, name: &str) -> Result<(), IncomingError> {
        let io = |action| {
            let path = self.path.clone();
            move |source| IncomingError::Io { action, path, source }
        };
        self.file.set_permissions(Permissions::from_mode(0o444)).map_err(io("set the permissions of"))?;
        self.file.sync_all().map_err(io("write to the disk"))?;
        files::write_atomic(&self.store.beside(&self.id, "manifest"), manifest.encode(true))?;
        let description = Description::new(name, manifest.length());
        let text = serde_json::to_string_pretty(&description).unwrap_or_default();
        let described = self.store.beside(&self.id, "json");
        files::write_atomic(&described, text)?;
        // Whatever the umask: users find an image by its name.
        files::open(&described)?
            .set_permissions(Permissions::from_mode(0o644))
            .map_err(io("set the permissions of"))?;
        // First: after the rename nobody would find it to remove it.
        transfers::forget(&self.path);
        files::rename(&self.path, &self.store.path(&self.id))?;
        let directory = files::open(self.store.directory())?;
        directory.sync_all().map_err(io("write the directory of"))
    }
}

/// Takes an image on its way for this process; false if another has it, or gave it its final name since it was opened.
fn is_taken(file: &File, path: &Path) -> Result<bool, FileError> {
    let inode = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_there = || match (files::metadata(path), file.metadata()) {
        (Ok(there), Ok(own)) => inode(&there) == inode(&own),
        _ => false,
    };
    Ok(files::try_lock(file, path)? && is_there())
}

/// Puts a damaged image aside, to take from it what still proves right.
pub(crate) fn put_aside(store: &Store, id: &ImageId) -> Result<(), FileError> {
    let directory = store.directory().join(".incoming");
    files::create_dir_all(&directory)?;
    files::rename(&store.path(id), &directory.join(id.to_string()))
}

/// Neighbouring set bits, as begin and end.
fn runs(mask: u64) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for bit in set_bits(mask) {
        let bit = bit as usize;
        match runs.last_mut() {
            Some((_, end)) if *end == bit => *end += 1,
            _ => runs.push((bit, bit + 1)),
        }
    }
    runs
}

/// Where the blocks of a mask are in a piece of so many bytes, as begin and end.
pub(crate) fn blocks_in(mask: u64, length: usize) -> Vec<(usize, usize)> {
    let places = runs(mask & blocks_of(length)).into_iter();
    places.map(|(begin, end)| (begin * BLOCK, (end * BLOCK).min(length))).collect()
}
