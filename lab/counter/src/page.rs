//! The page that the lab's machine sees as the memory of a device.
#![allow(unsafe_code, reason = "memory that is shared with the machine")]

use std::fs::OpenOptions;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{Ordering, fence};

use nearmetal_counters::{PAGE_BYTES, WORDS};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// The words of the page.
#[derive(Debug)]
pub(crate) struct Page(*mut u64);

// SAFETY: the mapping lives as long as QEMU, and words are written one at a time.
unsafe impl Send for Page {}

impl Page {
    /// Maps a file of the right size.
    pub(crate) fn map(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        if size != PAGE_BYTES as u64 {
            return Err(std::io::Error::other(format!("it has {size} bytes, not {PAGE_BYTES}")));
        }
        // SAFETY: a mapping where the kernel likes, of a file of this size, which nobody shortens.
        let start =
            unsafe { mmap(null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) }?;
        Ok(Self(start.cast()))
    }

    /// Writes a word.
    pub(crate) fn put(&mut self, word: usize, value: u64) {
        assert!(word < WORDS, "word {word} is outside the page");
        // SAFETY: within the mapping, as just checked, and aligned.
        unsafe { self.0.add(word).write_volatile(value) }
    }

    /// What was written before is seen before what is written after.
    pub(crate) fn barrier() {
        fence(Ordering::SeqCst);
    }
}
