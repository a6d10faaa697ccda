//! The pieces that a host can send on: those it keeps in memory because they just came, and its file.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::bucket::Bucket;
use crate::bits::Bits;
use crate::hash::PIECE;
use crate::manifest::Manifest;

/// Pieces kept in memory: a successor that keeps up never waits for the disk.
const RECENT: usize = 32;

/// What may change.
pub(crate) struct Contents {
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) have: Bits,
    recent: VecDeque<(usize, Arc<Vec<u8>>)>,
    file: Option<Arc<File>>,
    /// Pieces that were there and did not prove right when they were read again.
    pub(crate) spoilt: Vec<usize>,
}

/// What a host can send on.
pub(crate) struct Shelf {
    contents: Mutex<Contents>,
    changed: Condvar,
    pub(crate) bucket: Bucket,
    /// Bytes of pieces that were sent on.
    pub(crate) sent: AtomicU64,
    begun: Instant,
}

impl Shelf {
    pub(crate) fn new(bandwidth: Option<u64>) -> Self {
        let contents =
            Contents { manifest: None, have: Bits::none(0), recent: VecDeque::new(), file: None, spoilt: Vec::new() };
        let (contents, changed) = (Mutex::new(contents), Condvar::new());
        Self { contents, changed, bucket: Bucket::new(bandwidth), sent: AtomicU64::new(0), begun: Instant::now() }
    }

    /// Time since it was made: the clock of the state machines.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A thread that panicked while it held the lock left nothing half done: each change is one assignment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, for some time.
    pub(crate) fn wait(&self, contents: MutexGuard<'_, Contents>, time: Duration) {
        drop(self.changed.wait_timeout(contents, time));
    }

    /// Wakes those who wait.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// The manifest is known; all pieces are there (`whole`), or none.
    pub(crate) fn set_manifest(&self, manifest: Arc<Manifest>, file: Arc<File>, whole: bool) {
        let mut contents = self.lock();
        contents.have = if whole { Bits::all(manifest.count()) } else { Bits::none(manifest.count()) };
        contents.manifest = Some(manifest);
        contents.file = Some(file);
        self.wake();
    }

    /// A piece is in the file, and proven.
    pub(crate) fn insert(&self, index: usize, bytes: Option<Arc<Vec<u8>>>) {
        let mut contents = self.lock();
        contents.have.insert(index);
        if let Some(bytes) = bytes {
            contents.recent.push_back((index, bytes));
            if contents.recent.len() > RECENT {
                contents.recent.pop_front();
            }
        }
        self.wake();
    }

    /// How many pieces are there, and whether these are all.
    pub(crate) fn progress(&self) -> (usize, bool) {
        let contents = self.lock();
        (contents.have.len(), contents.manifest.is_some() && contents.have.is_full())
    }

    pub(crate) fn manifest(&self) -> Option<Arc<Manifest>> {
        self.lock().manifest.clone()
    }

    /// A piece; `None` if what is on the disk does not prove right, which is then told as `spoilt`.
    pub(crate) fn piece(&self, index: usize) -> Option<Arc<Vec<u8>>> {
        let contents = self.lock();
        if let Some((_, bytes)) = contents.recent.iter().find(|(at, _)| *at == index) {
            return Some(Arc::clone(bytes));
        }
        let (manifest, file) = (contents.manifest.clone()?, contents.file.clone()?);
        drop(contents);
        let mut bytes = vec![0; manifest.piece_length(index)];
        let read = file.read_exact_at(&mut bytes, index as u64 * PIECE as u64);
        if read.is_ok() && manifest.proves(index, &bytes) {
            return Some(Arc::new(bytes));
        }
        let mut contents = self.lock();
        if contents.have.contains(index) {
            contents.have.remove(index);
            contents.spoilt.push(index);
        }
        None
    }
}
