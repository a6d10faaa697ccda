//! How far a push is, noted by a thread of its own: a drive that is busy makes nobody call this host silent.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use super::desk::Desk;
use crate::store::transfers::{Progress, Stage};

/// Whoever writes the notes of one push. Dropped, it writes what was told and ends.
pub(super) struct Notes {
    to: Sender<(Stage, u64)>,
    writer: JoinHandle<()>,
}

impl Notes {
    /// Begins; `begun` is what holds for all of them.
    pub(super) fn begin(desk: Arc<Desk>, begun: Progress) -> Self {
        let (to, notes) = mpsc::channel();
        let writer = thread::spawn(move || {
            while let Ok(note) = notes.recv() {
                // While the drive was busy, others have come: only the latest counts.
                let (stage, have) = notes.try_iter().last().unwrap_or(note);
                desk.note(&begun, stage, have);
            }
        });
        Self { to, writer }
    }

    /// Has it noted that the push does this now, and has so many pieces.
    pub(super) fn tell(&self, stage: Stage, have: u64) {
        let _ = self.to.send((stage, have));
    }

    /// Waits until the last note is written: no other comes.
    pub(super) fn end(self) {
        drop(self.to);
        let _ = self.writer.join();
    }
}
