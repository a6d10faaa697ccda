//! Writing down what the readers read: a capture holds exactly that, and so gives the same model.
//!
//! A list of paths kept by hand would miss the next reader's files. What is read through a link is written down at its
//! true place, with the link beside it.

use std::sync::Mutex;

use crate::memory_tree::{Entry, MemoryTree, TreeError};
use crate::{HostFs, ReadError};

/// What a record says of a file that was listed and not read.
const NOT_READ: &str = "not read when the capture was made";

/// The record of one reading.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tree: MemoryTree,
    /// The first thing that did not fit.
    full: Option<TreeError>,
}

impl Recorder {
    /// What was read, as a tree.
    ///
    /// # Errors
    /// It did not fit the limits of a tree.
    pub(crate) fn finish(self) -> Result<MemoryTree, TreeError> {
        // A reader that panicked while it held the lock has left a tree that is whole.
        let state = self.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.full.map_or(Ok(state.tree), Err)
    }

    /// A file was read, or could not be.
    pub(crate) fn read(&self, fs: &HostFs, path: &str, result: &Result<Vec<u8>, ReadError>) {
        let entry = match result {
            Ok(bytes) => Entry::File(bytes.clone()),
            Err(ReadError::Missing { .. }) => return self.way(fs, path, |_, _| {}),
            Err(ReadError::Denied { .. }) => Entry::Denied,
            Err(ReadError::Unreadable { reason, .. }) => Entry::Failed(reason.clone()),
        };
        self.way(fs, path, |state, place| match (state.tree.get(place), &entry) {
            // The head of a file does not replace the whole.
            (Some(Entry::File(old)), Entry::File(new)) if new.len() < old.len() => {}
            _ => state.put(place, entry),
        });
    }

    /// A directory was listed, or could not be.
    pub(crate) fn listed(&self, fs: &HostFs, path: &str, result: &Result<Vec<String>, ReadError>) {
        match result {
            Err(ReadError::Denied { .. }) => self.way(fs, path, |state, place| state.put(place, Entry::Denied)),
            Err(_) => self.way(fs, path, |_, _| {}),
            Ok(names) => self.way(fs, path, |state, place| {
                state.put(place, Entry::Directory);
                for name in names {
                    let path = format!("{place}/{name}");
                    state.step(fs, &path);
                    // To leave out a file that nobody read would say that the machine has none.
                    if state.tree.get(&path).is_none() {
                        state.put(&path, Entry::Failed(NOT_READ.to_owned()));
                    }
                }
            }),
        }
    }

    /// A link was read, or something was looked at and is there.
    pub(crate) fn seen(&self, fs: &HostFs, path: &str, exists: bool) {
        self.way(fs, path, |state, place| {
            if exists && state.tree.get(place).is_none() {
                state.put(place, Entry::File(Vec::new()));
            }
        });
    }

    /// Writes down every directory and link on the way to `path`, and calls `then` with its true place.
    fn way(&self, fs: &HostFs, path: &str, then: impl FnOnce(&mut State, &str)) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut place = String::new();
        let mut ahead: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        // As many steps as 40 links of an ordinary length need; a circle ends here too.
        for _ in 0..1000 {
            let Some(part) = ahead.pop() else { return then(&mut state, &place) };
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    place.truncate(place.rfind('/').unwrap_or(0));
                    continue;
                }
                name => {
                    let next = format!("{place}/{name}");
                    match state.step(fs, &next) {
                        Some(target) if target.starts_with('/') => return,
                        Some(target) => ahead.extend(target.split('/').rev().map(str::to_owned)),
                        None => place = next,
                    }
                }
            }
        }
    }
}

impl State {
    fn put(&mut self, path: &str, entry: Entry) {
        if let Err(error) = self.tree.put(path, entry) {
            // A file where a directory was a moment ago: the process or device went. Only fullness is told.
            if matches!(error, TreeError::Limit { .. }) {
                self.full.get_or_insert(error);
            }
        }
    }

    /// Writes down what is at `path` if it is a directory or a link; the link's target.
    fn step(&mut self, fs: &HostFs, path: &str) -> Option<String> {
        match self.tree.get(path) {
            Some(Entry::Link(target)) => return Some(target.clone()),
            Some(_) => return None,
            None => {}
        }
        let entry = fs.kind(path)?;
        self.put(path, entry.clone());
        match entry {
            Entry::Link(target) => Some(target),
            _ => None,
        }
    }
}
