//! Blocks of a new image that other images of the store have already, wherever in them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use nearmetal_host::files;

use super::Store;
use crate::hash::{BLOCK, ImageId};
use crate::manifest::Manifest;

/// Where blocks are that the new image needs.
pub(crate) struct Reuse {
    images: Vec<File>,
    /// Image and number of the block in it.
    places: HashMap<u64, (u32, u32)>,
}

impl Reuse {
    /// Looks in the manifests of all other images. Memory goes with the new image, not with the store.
    pub(crate) fn of(store: &Store, new: &Manifest, id: &ImageId) -> Self {
        let mut reuse = Self { images: Vec::new(), places: HashMap::new() };
        if !new.has_fingerprints() {
            return reuse;
        }
        let others = store.list().unwrap_or_default().into_iter().filter(|other| other.image != *id);
        let wanted = (0..new.count()).flat_map(|index| new.fingerprints(index).unwrap_or_default());
        let wanted: std::collections::HashSet<u64> = wanted.copied().collect();
        for other in others {
            let Some(manifest) = store.manifest(&other.image) else { continue };
            let Ok(file) = files::open(&store.path(&other.image)) else { continue };
            let number = reuse.images.len() as u32;
            reuse.images.push(file);
            for index in 0..manifest.count() {
                let (Some(piece), Some(prints)) = (manifest.piece(index), manifest.fingerprints(index)) else {
                    continue;
                };
                for (block, print) in set_bits(piece.data).zip(prints) {
                    if wanted.contains(print) {
                        let place = (index * crate::hash::BLOCKS) as u32 + block;
                        reuse.places.entry(*print).or_insert((number, place));
                    }
                }
            }
        }
        reuse
    }

    /// Fills in the blocks of a piece that are known; those of `data` that are not come back.
    pub(crate) fn fill(&self, data: u64, prints: &[u64], piece: &mut [u8]) -> u64 {
        let mut lacking = data;
        for (block, print) in set_bits(data).zip(prints) {
            let begin = block as usize * BLOCK;
            let end = (begin + BLOCK).min(piece.len());
            let Some((image, place)) = self.places.get(print) else { continue };
            let Some(file) = self.images.get(*image as usize) else { continue };
            if file.read_exact_at(&mut piece[begin..end], u64::from(*place) * BLOCK as u64).is_ok() {
                lacking &= !(1 << block);
            }
        }
        lacking
    }
}

/// The numbers of the bits that are set.
pub(crate) fn set_bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |at| mask >> at & 1 == 1)
}
