//! Images of former recipes.

use std::collections::BTreeSet;

use nearmetal_host::files;

use super::Recipe;
use super::build::remove_tree;
use crate::error::LabError;
use crate::lock::Lock;
use crate::places::Places;

/// Removes images that neither this program nor any lab, running or kept, uses. Gives the hashes removed.
///
/// # Errors
/// A directory cannot be listed or removed.
pub fn prune(places: &Places) -> Result<Vec<String>, LabError> {
    let images = places.cache().join("images");
    if !images.is_dir() {
        return Ok(Vec::new());
    }
    let _lock = Lock::wait(&places.cache().join("images.lock"))?;
    let mut used = BTreeSet::from([Recipe::embedded().hash()]);
    used.extend(places.images_in_use()?);
    let mut removed = Vec::new();
    for path in files::list(&images)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !used.contains(name.trim_end_matches(".building")) {
            remove_tree(&path)?;
            removed.push(name.to_owned());
        }
    }
    Ok(removed)
}
