//! Images of former recipes.

use std::collections::BTreeSet;

use nearmetal_host::files;

use super::build::remove_tree;
use super::{BASE, Recipe, Release};
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
    let mut used: BTreeSet<String> = Release::ALL.map(|release| Recipe::of(release).hash()).into();
    used.extend(places.images_in_use()?);
    // What emulates the labs of one stays with it.
    let base_of =
        |hash: &String| Some(images.join(hash).join(BASE).read_link().ok()?.file_name()?.to_str()?.to_owned());
    let bases: Vec<String> = used.iter().filter_map(base_of).collect();
    used.extend(bases);
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
