//! Reading with a notebook: what cannot be read is written down, and the reader goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::parse::{self, Parsed};
use crate::{HostFs, ReadError, Unreadable};

/// A source of facts, and what went wrong while asking it.
pub(crate) struct Facts<'a> {
    pub(crate) fs: &'a HostFs,
    pub(crate) unreadable: Vec<Unreadable>,
    /// Paths only another user may read.
    pub(crate) denied: Vec<String>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(fs: &'a HostFs) -> Self {
        Self { fs, unreadable: Vec::new(), denied: Vec::new() }
    }

    /// Writes an error down, unless it only says that there is nothing.
    pub(crate) fn note(&mut self, error: ReadError) {
        match error {
            ReadError::Missing { .. } => {}
            ReadError::Denied { path } => self.denied.push(path),
            // What a partial source leaves out is unknown; its files were made from what it says and are not damaged.
            ReadError::Unreadable { .. } if self.fs.is_partial() => {}
            other => self.unreadable.push(other.into()),
        }
    }

    /// The value, or `None` with the error written down.
    pub(crate) fn noted<T>(&mut self, result: Result<T, ReadError>) -> Option<T> {
        result.map_err(|error| self.note(error)).ok()
    }

    /// A whole file; `None` if there is none.
    pub(crate) fn text(&mut self, path: &str) -> Option<String> {
        let result = self.fs.read(path);
        self.noted(result)
    }

    /// A one-line attribute; `None` if there is none.
    pub(crate) fn optional<T>(&mut self, path: &str, parse: impl FnOnce(&str) -> Parsed<T>) -> Option<T> {
        let result = attribute(self.fs, path, parse);
        self.noted(result)
    }

    /// A one-line attribute that every kernel has; its absence is written down too.
    pub(crate) fn required<T>(&mut self, path: &str, parse: impl FnOnce(&str) -> Parsed<T>) -> Option<T> {
        let result = attribute(self.fs, path, parse);
        if matches!(result, Err(ReadError::Missing { .. })) {
            self.absent(path);
        }
        self.noted(result)
    }

    /// Writes down that a file every kernel has is not there.
    pub(crate) fn absent(&mut self, path: &str) {
        self.note(ReadError::unreadable(path, "", "missing"));
    }

    /// Names in a directory; empty if there is none.
    pub(crate) fn list(&mut self, path: &str) -> Vec<String> {
        let result = self.fs.list(path);
        self.noted(result).unwrap_or_default()
    }

    /// The last name of a link; `None` if there is none.
    pub(crate) fn link_name(&mut self, path: &str) -> Option<String> {
        let result = self.fs.link_name(path);
        self.noted(result)
    }
}

/// Fewer items than this are read faster by one thread.
const WORTH_THREADS: usize = 512;
/// Readers wait for the kernel's locks on directories; more of them than this gain nothing.
const MOST_THREADS: usize = 8;
/// Items a thread takes at once.
const CHUNK: usize = 64;

/// Reads every item, on several threads where there are many: a machine of 4096 PUs has a hundred thousand files. Results
/// and what went wrong come in the items' order, as from one thread.
pub(crate) fn read_each<T: Sync, R: Send>(
    facts: &mut Facts<'_>,
    items: &[T],
    read: impl Fn(&mut Facts<'_>, &T) -> R + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    if items.len() < WORTH_THREADS || threads == 1 {
        return items.iter().map(|item| read(facts, item)).collect();
    }
    let fs = facts.fs;
    let next = AtomicUsize::new(0);
    let chunks: Vec<&[T]> = items.chunks(CHUNK).collect();
    // Chunks are taken as threads come free: what one PU costs differs, and the first half may be all first threads of cores.
    let work = || {
        let mut done = Vec::new();
        while let Some((number, chunk)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, chunks.get(n)?)))
        {
            let mut own = Facts::new(fs);
            let results: Vec<R> = chunk.iter().map(|item| read(&mut own, item)).collect();
            done.push((number, results, own.unreadable, own.denied));
        }
        done
    };
    let mut parts: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<_>>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().flat_map(join).collect()
    });
    parts.sort_by_key(|(number, ..)| *number);
    let mut all = Vec::with_capacity(items.len());
    for (_, results, unreadable, denied) in parts {
        all.extend(results);
        facts.unreadable.extend(unreadable);
        facts.denied.extend(denied);
    }
    all
}

/// Reads and parses a one-line attribute.
pub(crate) fn attribute<T>(fs: &HostFs, path: &str, parse: impl FnOnce(&str) -> Parsed<T>) -> Result<T, ReadError> {
    let text = fs.read(path)?;
    parsed(path, &text, |text| parse::line(text).and_then(parse))
}

/// Parses a file's text; an error carries path and text.
pub(crate) fn parsed<T>(path: &str, text: &str, parse: impl FnOnce(&str) -> Parsed<T>) -> Result<T, ReadError> {
    parse(text).map_err(|error| ReadError::unreadable(path, text, error.to_string()))
}

/// The number at the end of `name` after `prefix`: `node12` is 12 of `node`.
pub(crate) fn index_after(name: &str, prefix: &str) -> Option<u32> {
    parse::number_u32(name.strip_prefix(prefix)?).ok()
}
