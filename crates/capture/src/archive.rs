//! A tar of /sys and /proc, as a tree in memory.
//!
//! An archive comes from somebody's mail: its paths are relative and go down only, its links stay links, its devices
//! are not made, its sizes are limited, and nothing of it is written to a disk.

use std::io::{self, Read};

use nearmetal_host::{Entry, LARGEST_FILE, MemoryTree, TreeError};
use tar::{Archive, EntryType};

use crate::CaptureError;
use crate::compression::{MOST_UNPACKED, TooMuch};
use crate::write::{DENIED, UNREAD_FILE};

/// Unpacks a tar and finds the folder in it that has `sys` and `proc`, at the top or in one folder of any name.
pub(crate) fn unpack(name: &str, reader: impl Read) -> Result<MemoryTree, CaptureError> {
    let mut tree = MemoryTree::new();
    let mut archive = Archive::new(reader);
    let entries = archive.entries().map_err(|error| damaged(name, "", error))?;
    let mut last = String::new();
    for entry in entries {
        let mut entry = entry.map_err(|error| damaged(name, &last, error))?;
        let path = inside(name, &entry.path_bytes())?;
        let found = read_entry(&mut entry, &tree).map_err(|error| damaged(name, &path, error))?;
        if let Some(found) = found {
            tree.put(&path, found).map_err(|source| CaptureError::Tree { name: name.to_owned(), source })?;
        }
        last = path;
    }
    let top = top(&tree).ok_or_else(|| CaptureError::Format { name: name.to_owned() })?;
    let mut tree = tree.below(&top).ok_or_else(|| CaptureError::Format { name: name.to_owned() })?;
    mark_unread(&mut tree);
    Ok(tree)
}

/// One entry; `None` for what says nothing about a host.
fn read_entry<R: Read>(entry: &mut tar::Entry<'_, R>, tree: &MemoryTree) -> io::Result<Option<Entry>> {
    let kind = entry.header().entry_type();
    Ok(match kind {
        EntryType::Directory => Some(Entry::Directory),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Some(contents(entry)?),
        EntryType::Symlink => {
            let target = entry.link_name_bytes().unwrap_or_default();
            Some(Entry::Link(String::from_utf8_lossy(&target).into_owned()))
        }
        // The same file under another name, which must have come before. Anything else is left out.
        EntryType::Link => {
            let target = entry.link_name_bytes().unwrap_or_default();
            std::str::from_utf8(&target).ok().and_then(|target| tree.get(target)).cloned()
        }
        EntryType::Block | EntryType::Char | EntryType::Fifo => Some(Entry::Failed("not a regular file".to_owned())),
        _ => None,
    })
}

fn contents<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Entry> {
    if entry.size() >= LARGEST_FILE as u64 {
        return Ok(Entry::Failed("larger than 16 MiB".to_owned()));
    }
    let mut bytes = Vec::new();
    entry.take(LARGEST_FILE as u64).read_to_end(&mut bytes)?;
    Ok(Entry::File(bytes))
}

/// The path of an entry: relative, downwards, UTF-8.
fn inside(name: &str, bytes: &[u8]) -> Result<String, CaptureError> {
    let refuse = |path: &str, reason| {
        let path = path.chars().take(200).collect();
        Err(CaptureError::Tree { name: name.to_owned(), source: TreeError::Path { path, reason } })
    };
    match std::str::from_utf8(bytes) {
        Err(_) => refuse(&String::from_utf8_lossy(bytes), "not UTF-8"),
        Ok(path) if path.starts_with('/') => refuse(path, "it is absolute"),
        Ok(path) => Ok(path.to_owned()),
    }
}

/// Where `sys` or `proc` is: at the top, or one folder below.
fn top(tree: &MemoryTree) -> Option<String> {
    let holds = |prefix: &str| {
        ["sys", "proc"].iter().any(|name| tree.get(&format!("{prefix}/{name}")) == Some(&Entry::Directory))
    };
    if holds("") {
        return Some(String::new());
    }
    let mut folders = tree.entries().into_iter().map(|(path, _)| path).filter(|path| path.matches('/').count() == 1);
    folders.find(|folder| holds(folder))
}

/// Puts back what the captured machine did not let its reader read, from the list in nearmetal's own captures.
fn mark_unread(tree: &mut MemoryTree) {
    let Some(Entry::File(list)) = tree.get(UNREAD_FILE) else { return };
    let list = String::from_utf8_lossy(list).into_owned();
    for line in list.lines() {
        let Some((path, reason)) = line.split_once('\t') else { continue };
        let entry = if reason == DENIED { Entry::Denied } else { Entry::Failed(reason.to_owned()) };
        // A line that does not fit the tree says nothing about it.
        let _ = tree.put(path, entry);
    }
}

fn damaged(name: &str, after: &str, error: io::Error) -> CaptureError {
    if error.get_ref().is_some_and(|inner| inner.is::<TooMuch>()) || error.to_string().contains(&TooMuch.to_string()) {
        return CaptureError::TooLarge { name: name.to_owned(), limit: MOST_UNPACKED >> 20 };
    }
    let place = if after.is_empty() { "at its beginning".to_owned() } else { format!("at or after `{after}`") };
    CaptureError::Archive { name: name.to_owned(), problem: format!("{place}: {error}") }
}

#[cfg(test)]
mod tests;
