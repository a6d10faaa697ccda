//! Where a host puts what it gets: proves each piece, writes it, and lets others have it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shelf::Shelf;
use crate::frame::{MOST_RUNS, Run};
use crate::manifest::{Manifest, fingerprints};
use crate::store::Store;
use crate::store::incoming::{Found, Incoming, IncomingError, blocks_in};
use crate::store::transfers::{Progress, Stage};

/// A piece that came down proved wrong so often: not chance.
const MOST_WRONG: u32 = 8;
/// Bytes between two writes to the disk: what is left for the end is then short.
const SYNC_EVERY: u64 = 64 << 20;

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// It is in the file, or was there before.
    Kept,
    /// It did not prove right.
    Wrong,
}

/// A host's side of a transfer.
pub(crate) struct Desk {
    pub(crate) shelf: Arc<Shelf>,
    incoming: Incoming,
    /// What is lacking of pieces that are not there: all of it, or these blocks.
    lacking: Mutex<BTreeMap<usize, u64>>,
    /// Of pieces whose fingerprints did not come with the manifest.
    prints: Mutex<BTreeMap<usize, Vec<u64>>>,
    wrong: Mutex<u32>,
    pub(crate) received: AtomicU64,
    pub(crate) reused: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    pub(crate) fn new(shelf: Arc<Shelf>, incoming: Incoming) -> Self {
        Self {
            shelf,
            incoming,
            lacking: Mutex::default(),
            prints: Mutex::default(),
            wrong: Mutex::default(),
            received: AtomicU64::new(0),
            reused: AtomicU64::new(0),
        }
    }

    /// The manifest is there: successors may have it at once, and pieces as they are found.
    pub(crate) fn begin(&self, manifest: &Arc<Manifest>) {
        self.shelf.set_manifest(Arc::clone(manifest), self.incoming.file(), false);
    }

    /// Where the image goes.
    pub(crate) fn store(&self) -> Store {
        self.incoming.store()
    }

    /// Looks through the disk for what is there.
    pub(crate) fn look(&self, manifest: &Manifest) -> Result<(), IncomingError> {
        let reuse = self.incoming.reuse(manifest);
        for index in 0..manifest.count() {
            let all =
                manifest.piece(index).map_or(0, |piece| u64::from(piece.data.count_ones())) * crate::hash::BLOCK as u64;
            match self.incoming.look(manifest, &reuse, index)? {
                Found::Lacking(mask) => {
                    lock(&self.lacking).insert(index, mask);
                    let lacking = manifest.piece(index).map_or(0, |piece| u64::from((piece.data & mask).count_ones()));
                    self.reused.fetch_add(all - lacking * crate::hash::BLOCK as u64, Ordering::Relaxed);
                }
                Found::Kept | Found::Reused => {
                    self.reused.fetch_add(all, Ordering::Relaxed);
                    self.shelf.insert(index, None);
                }
            }
        }
        Ok(())
    }

    /// Tells whoever looks at this host how far it is.
    pub(crate) fn note(&self, begun: &Progress, stage: Stage, have: u64) {
        let (received, reused) = (self.received.load(Ordering::Relaxed), self.reused.load(Ordering::Relaxed));
        self.incoming.note(&Progress { stage, have, received, reused, ..begun.clone() });
    }

    /// What to ask for, in as many frames as it takes.
    pub(crate) fn wanted(&self) -> Vec<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        for (index, mask) in lock(&self.lacking).iter() {
            match runs.last_mut() {
                Some(run) if run.first + run.count == *index as u32 && run.mask == *mask => run.count += 1,
                _ => runs.push(Run { first: *index as u32, count: 1, mask: *mask }),
            }
        }
        runs.chunks(MOST_RUNS).map(<[Run]>::to_vec).collect()
    }

    /// A piece that was there must be fetched again.
    pub(crate) fn lacks(&self, index: usize) {
        lock(&self.lacking).insert(index, u64::MAX);
    }

    /// Takes in blocks of a piece.
    pub(crate) fn take(&self, index: usize, mask: u64, blocks: &[u8]) -> Result<Arrived, IncomingError> {
        let Some(manifest) = self.shelf.manifest() else { return Ok(Arrived::Wrong) };
        let Some(data) = manifest.piece(index).map(|piece| piece.data) else { return self.wrong(index) };
        if !lock(&self.lacking).contains_key(&index) {
            return Ok(Arrived::Kept);
        }
        self.received.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        let mut bytes = vec![0; manifest.piece_length(index)];
        if mask & data != data {
            // The rest is in the file, from other images.
            if self.incoming.read(index, &mut bytes).is_err() {
                return self.wrong(index);
            }
            for (begin, end) in blocks_in(!data, bytes.len()) {
                bytes[begin..end].fill(0);
            }
        }
        let mut rest = blocks;
        for (begin, end) in blocks_in(mask, bytes.len()) {
            let Some((own, after)) = rest.split_at_checked(end - begin) else { return self.wrong(index) };
            bytes[begin..end].copy_from_slice(own);
            rest = after;
        }
        if !rest.is_empty() || !manifest.proves(index, &bytes) {
            return self.wrong(index);
        }
        self.incoming.write(index, &bytes, if mask & data == data { u64::MAX } else { mask | !data }, data)?;
        if !manifest.has_fingerprints() {
            let own = fingerprints(&bytes, data);
            lock(&self.prints).insert(index, own);
        }
        lock(&self.lacking).remove(&index);
        self.shelf.insert(index, Some(Arc::new(bytes)));
        Ok(Arrived::Kept)
    }

    /// All of it is asked for next time: what came from other images may be what is wrong.
    fn wrong(&self, index: usize) -> Result<Arrived, IncomingError> {
        let mut wrong = lock(&self.wrong);
        *wrong += 1;
        if *wrong > MOST_WRONG {
            return Err(IncomingError::Upstream(*wrong));
        }
        lock(&self.lacking).insert(index, u64::MAX);
        Ok(Arrived::Wrong)
    }

    /// Whether enough was written since the last time to write it to the disk now.
    pub(crate) fn sync_is_due(&self, synced: &mut u64) -> bool {
        let received = self.received.load(Ordering::Relaxed);
        let due = received - *synced >= SYNC_EVERY;
        if due {
            *synced = received;
        }
        due
    }

    /// Writes to the disk what came so far.
    pub(crate) fn sync(&self) -> Result<(), IncomingError> {
        self.incoming.sync()
    }

    /// Gives the image its final name. All pieces are there.
    pub(crate) fn finish(&self, name: &str) -> Result<(), IncomingError> {
        let Some(manifest) = self.shelf.manifest() else { return Err(IncomingError::Wrong) };
        let mut manifest = Manifest::clone(&manifest);
        if !manifest.has_fingerprints() {
            let mut known = std::mem::take(&mut *lock(&self.prints));
            let mut all = Vec::with_capacity(manifest.count());
            for index in 0..manifest.count() {
                let own = known.remove(&index).map_or_else(|| self.prints_of(&manifest, index), Ok)?;
                all.push(own);
            }
            manifest.set_fingerprints(all);
        }
        self.incoming.finish(&manifest, name)
    }

    fn prints_of(&self, manifest: &Manifest, index: usize) -> Result<Vec<u64>, IncomingError> {
        let data = manifest.piece(index).map_or(0, |piece| piece.data);
        if data == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; manifest.piece_length(index)];
        self.incoming.read(index, &mut bytes).map_err(|_| IncomingError::Wrong)?;
        Ok(fingerprints(&bytes, data))
    }
}
