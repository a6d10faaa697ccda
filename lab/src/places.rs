//! Where things are kept.
//!
//! The cache (images, disks): `NEARMETAL_CACHE`, else `/var/cache/nearmetal`. The run directory (sockets, keys, who
//! runs): `/run/nearmetal/lab`. Labs need root, so there is no per-user place.

use std::path::{Path, PathBuf};

use nearmetal_host::files;

use crate::error::LabError;
use crate::identity::LabName;
use crate::record::{DiskRecord, Record};

/// The two directories of all labs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    cache: PathBuf,
    run: PathBuf,
}

impl Places {
    /// The usual places; the environment variable `NEARMETAL_CACHE` moves the cache.
    pub fn standard() -> Self {
        let cache = std::env::var_os("NEARMETAL_CACHE").filter(|path| !path.is_empty());
        Self {
            cache: cache.map_or_else(|| PathBuf::from("/var/cache/nearmetal"), PathBuf::from),
            run: PathBuf::from("/run/nearmetal/lab"),
        }
    }

    /// Other places, for tests. Paths of sockets in `run` must stay below 108 bytes.
    pub fn new(cache: impl Into<PathBuf>, run: impl Into<PathBuf>) -> Self {
        Self { cache: cache.into(), run: run.into() }
    }

    /// Images and disks.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Directory of all running labs.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// Sockets, keys, logs of one running lab.
    pub(crate) fn state(&self, name: &LabName) -> PathBuf {
        self.run.join(name.as_str())
    }

    /// Disks of one lab.
    pub(crate) fn disks(&self, name: &LabName) -> PathBuf {
        self.cache.join("labs").join(name.as_str())
    }

    /// Disks on their way out: beside the others, in the same file system.
    pub(crate) fn trash(&self) -> PathBuf {
        self.cache.join("trash")
    }

    /// Sockets of cables between labs.
    pub(crate) fn cables(&self) -> PathBuf {
        self.run.join(".cables")
    }

    /// Names that have a state or disks, sorted.
    pub(crate) fn names(&self) -> Result<Vec<LabName>, LabError> {
        let mut names = Vec::new();
        for directory in [self.run.clone(), self.cache.join("labs")] {
            if !directory.is_dir() {
                continue;
            }
            let found = files::list(&directory)?;
            names.extend(found.iter().filter_map(|path| path.file_name()?.to_str()?.parse::<LabName>().ok()));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Hashes of the images that labs, running or kept, stand on.
    pub(crate) fn images_in_use(&self) -> Result<Vec<String>, LabError> {
        let mut hashes = Vec::new();
        for name in self.names()? {
            hashes.extend(Record::read(&self.state(&name)).map(|record| record.image));
            hashes.extend(DiskRecord::read(&self.disks(&name)).map(|record| record.image));
        }
        Ok(hashes)
    }
}
