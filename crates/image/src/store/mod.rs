//! A directory of images, each called by its hash.
//!
//! ```text
//! HASH              the image, read-only
//! HASH.json         its readable name, when it came
//! HASH.manifest     what proves its pieces, and its blocks' fingerprints
//! .incoming/HASH    one on its way; renamed when it is whole and on the disk, never before
//! .incoming/HASH.progress    how far it is, for whoever looks
//! ```

pub(crate) mod incoming;
pub(crate) mod layers;
pub(crate) mod qcow2;
mod reuse;
pub(crate) mod transfers;
pub(crate) mod users;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nearmetal_host::files::{self, FileError};
use serde::{Deserialize, Serialize};

use crate::hash::ImageId;
use crate::manifest::Manifest;

/// Where images are unless the user says otherwise.
pub const DIRECTORY: &str = "/var/lib/nearmetal/images";
const SCHEMA: &str = "nearmetal.image/1";
const MOST_DESCRIPTION: usize = 64 << 10;
/// The longest readable name.
pub(crate) const MOST_NAME: usize = 200;

/// A directory of images.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

/// What a description file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    schema: String,
    /// The readable name.
    pub(crate) name: String,
    /// Bytes.
    pub(crate) length: u64,
    /// When it was stored, in seconds since 1970.
    pub(crate) stored: u64,
}

impl Description {
    pub(crate) fn new(name: &str, length: u64) -> Self {
        let stored = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let stored = stored.map_or(0, |since| since.as_secs());
        Self { schema: SCHEMA.to_owned(), name: name.to_owned(), length, stored }
    }

    /// Reads one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let description: Self = serde_json::from_str(text).ok()?;
        let sound = description.schema == SCHEMA && is_name(&description.name);
        sound.then_some(description)
    }
}

/// Whether a readable name may be shown as it is.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MOST_NAME && !name.chars().any(char::is_control)
}

/// One image of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// Its hash.
    pub image: ImageId,
    /// Its readable name; `None` if its description is missing or damaged.
    pub name: Option<String>,
    /// Bytes, holes included.
    pub length: u64,
    /// Bytes on the disk.
    pub allocated: u64,
    /// When it was stored, in seconds since 1970; `None` as for the name.
    pub stored: Option<u64>,
}

/// What a look at an image's content says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Its hash, as it is called.
    pub image: ImageId,
    /// Its readable name.
    pub name: Option<String>,
    /// Whether its content has this hash.
    pub right: bool,
    /// Where it differs, in bytes from its beginning: the pieces that do not prove right. Empty if it is right, or if
    /// its manifest is missing.
    pub damaged: Vec<u64>,
    /// Why it could not be read to its end.
    pub problem: Option<String>,
}

/// Why a name means no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is none of that name.
    #[error("no image `{wanted}` in `{}`: `nearmetal image list` shows those there", directory.display())]
    None {
        /// What was asked for.
        wanted: String,
        /// Where.
        directory: PathBuf,
    },
    /// There are several.
    #[error("`{wanted}` may be any of {hashes}: write the hash, or the first digits of it")]
    Several {
        /// What was asked for.
        wanted: String,
        /// Beginnings of their hashes.
        hashes: String,
    },
    /// The store cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl Store {
    /// The store in a directory, which need not exist yet.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where an image is.
    pub fn path(&self, id: &ImageId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    fn beside(&self, id: &ImageId, what: &str) -> PathBuf {
        self.directory.join(format!("{id}.{what}"))
    }

    /// Every image, by hash. A store that does not exist has none.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn list(&self) -> Result<Vec<StoredImage>, FileError> {
        let paths = match files::list(&self.directory) {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let ids = paths.iter().filter_map(|path| path.file_name()?.to_str()?.parse::<ImageId>().ok());
        ids.map(|id| {
            let metadata = files::metadata(&self.path(&id))?;
            let description = self.description(&id);
            Ok(StoredImage {
                image: id,
                length: metadata.len(),
                allocated: metadata.blocks() * 512,
                stored: description.as_ref().map(|description| description.stored),
                name: description.map(|description| description.name),
            })
        })
        .collect()
    }

    /// Whether an image is there under its final name.
    pub fn has(&self, id: &ImageId) -> bool {
        files::metadata(&self.path(id)).is_ok()
    }

    fn description(&self, id: &ImageId) -> Option<Description> {
        Description::parse(&files::read_to_string_up_to(&self.beside(id, "json"), MOST_DESCRIPTION).ok()?)
    }

    pub(crate) fn manifest(&self, id: &ImageId) -> Option<Manifest> {
        Manifest::parse(&files::read(&self.beside(id, "manifest")).ok()?, id).ok()
    }

    /// The image that somebody means: by its hash, the hash's beginning, or its readable name.
    ///
    /// # Errors
    /// See [`FindError`].
    pub fn find(&self, wanted: &str) -> Result<StoredImage, FindError> {
        let all = self.list().map_err(|error| FindError::Unreadable(format!("{error}: {}", error.source)))?;
        self.find_among(&all, wanted)
    }

    /// As [`Store::find`], among what [`Store::list`] said.
    ///
    /// # Errors
    /// There is none of that name, or there are several.
    pub fn find_among(&self, all: &[StoredImage], wanted: &str) -> Result<StoredImage, FindError> {
        let by_hash = |image: &&StoredImage| wanted.len() >= 6 && image.image.to_string().starts_with(wanted);
        let by_name = |image: &&StoredImage| image.name.as_deref() == Some(wanted);
        let found: Vec<_> = all.iter().filter(|image| by_hash(image) || by_name(image)).collect();
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(FindError::None { wanted: wanted.to_owned(), directory: self.directory.clone() }),
            several => {
                let hashes: Vec<String> = several.iter().map(|image| image.image.short()).collect();
                Err(FindError::Several { wanted: wanted.to_owned(), hashes: hashes.join(", ") })
            }
        }
    }

    /// Reads an image and says whether its content still has its hash. `tick` hears how many bytes were read.
    pub fn verify(&self, id: &ImageId, tick: impl FnMut(u64)) -> Verified {
        let name = self.description(id).map(|description| description.name);
        let wrong = |problem: String| Verified {
            image: *id,
            name: name.clone(),
            right: false,
            damaged: Vec::new(),
            problem: Some(problem),
        };
        let found = match self.read_through(id, tick) {
            Ok(found) => found,
            Err(problem) => return wrong(problem),
        };
        let right = found.id() == *id;
        let expected = if right { None } else { self.manifest(id) };
        let damaged = expected.map(|expected| expected.differing(&found)).unwrap_or_default();
        Verified { image: *id, name, right, damaged, problem: None }
    }

    pub(crate) fn read_through(&self, id: &ImageId, tick: impl FnMut(u64)) -> Result<Manifest, String> {
        let words = |error: FileError| format!("{error}: {}", error.source);
        let file = files::open(&self.path(id)).map_err(words)?;
        let length = files::metadata(&self.path(id)).map_err(words)?.len();
        if length > crate::hash::MOST_LENGTH {
            return Err(format!("it has {length} bytes, more than an image may have"));
        }
        Manifest::of(file, length, tick).map_err(|error| format!("cannot read it to its end: {error}"))
    }

    /// Removes an image and what is beside it. The caller has asked for its users.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self, id: &ImageId) -> Result<(), FileError> {
        // What describes it goes last: an image without it is still an image.
        for path in [self.path(id), self.beside(id, "manifest"), self.beside(id, "json")] {
            files::remove(&path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
