//! The image of a lab: built from Debian packages by the steps in `image/`, cached under the hash of that recipe. And the
//! loads image, built likewise by those in `loads/`: the programs of real loads, as one read-only disk for all guests. And layers
//! with the packages of a batch system or of Cockpit, by those in `layers/`. And images of what users have a licence for.

mod build;
mod kit;
mod prune;
mod recipe;
mod space;

use std::path::{Path, PathBuf};

pub use build::{ensure, ensure_layer, ensure_loads, found_loads, loads};
pub use kit::{KitFiles, ensure_kit};
pub use prune::prune;
pub use recipe::{Layer, Recipe, RecipeFile, Release, With};
pub(crate) use space::check as check_space;

/// The link in an image's directory to the one whose QEMU emulates its labs.
const BASE: &str = "base";

/// A built image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    directory: PathBuf,
    hash: String,
}

impl Image {
    /// The image that `hash` would have in `cache`, built or not.
    pub fn at(cache: &Path, hash: &str) -> Self {
        Self { directory: cache.join("images").join(hash), hash: hash.to_owned() }
    }

    /// Whether it is built: the directory appears by a rename, after everything in it is complete.
    pub fn is_built(&self) -> bool {
        self.directory.is_dir()
    }

    /// Hash of the recipe it was built from.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The tree from which the root disk was made.
    pub fn rootfs(&self) -> PathBuf {
        self.directory.join("rootfs")
    }

    /// The image in whose tree the outer QEMU runs: itself, or the one that a lab of an older release has it from.
    pub fn emulator(&self) -> PathBuf {
        let base = self.directory.join(BASE);
        if base.exists() { base } else { self.directory.clone() }
    }
}
