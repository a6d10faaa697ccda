//! Images on hosts: what the commands of `nearmetal image` share.

use std::path::Path;

use nearmetal_image::{ImageId, Store, User};
use serde::{Deserialize, Serialize};

pub(crate) use crate::fleet::answers::{Answer, Document, ask_all, status};
pub(crate) use crate::fleet::targets::{HostArgs, Target};

/// What became of an image that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removal {
    /// Its hash; `null` if it is not there.
    pub(crate) image: Option<ImageId>,
    /// Whether it was removed.
    pub(crate) removed: bool,
    /// Who uses it.
    pub(crate) users: Vec<User>,
}

/// The store in a directory.
pub(crate) fn store_of(directory: &Path) -> Store {
    Store::at(std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()))
}
