//! Anonymous memory of a chosen page size.
#![allow(unsafe_code, reason = "mmap, madvise and slices over what they return")]

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use serde::Serialize;

/// Bytes of the base page of x86.
pub const SMALL_PAGE: usize = 4096;
/// Bytes of the huge page of x86 used here.
pub const HUGE_PAGE: usize = 2 << 20;

/// What is to back a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PageKind {
    /// 4 KiB pages; transparent huge pages are refused for it (MADV_NOHUGEPAGE).
    #[serde(rename = "4k")]
    Small,
    /// 2 MiB pages of the huge page pool (MAP_HUGETLB).
    #[serde(rename = "2m")]
    Huge,
    /// Whatever transparent huge pages give when asked (MADV_HUGEPAGE).
    #[serde(rename = "thp")]
    Transparent,
}

impl PageKind {
    /// As written on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Huge => "2m",
            Self::Transparent => "thp",
        }
    }
}

/// A private anonymous mapping, unmapped when dropped. Inaccessible pages around it keep the kernel from merging it
/// with a neighbour, so that /proc/self/smaps shows it as one entry starting at its first byte.
#[derive(Debug)]
pub struct Mapping {
    reserved: NonNull<u8>,
    reserved_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory owned by this value alone; access goes through &self and &mut self.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps at least `bytes`, rounded up to whole pages of the kind, aligned to 2 MiB. No page is touched.
    ///
    /// # Errors
    /// The kernel's: `ENOMEM` when the address space or the huge page pool is too small. `EINVAL` for no bytes or
    /// more than half of the address space.
    pub fn new(bytes: usize, kind: PageKind) -> io::Result<Self> {
        let page = if kind == PageKind::Small { SMALL_PAGE } else { HUGE_PAGE };
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let bytes = bytes.checked_next_multiple_of(page).filter(|bytes| *bytes > 0).ok_or_else(invalid)?;
        let reserved_bytes =
            bytes.checked_add(2 * HUGE_PAGE).filter(|all| *all < isize::MAX as usize).ok_or_else(invalid)?;
        let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), reserved_bytes, ProtFlags::empty(), nothing)? };
        let reserved = NonNull::new(reserved.cast::<u8>()).ok_or_else(invalid)?;
        let offset = HUGE_PAGE - reserved.as_ptr().addr() % HUGE_PAGE;
        // SAFETY: `offset` is 1..=HUGE_PAGE, so `offset + bytes` stays below the reserved length.
        let start = unsafe { reserved.add(offset) };
        let mapping = Self { reserved, reserved_bytes, start, bytes };
        let mut flags = MapFlags::PRIVATE | MapFlags::FIXED;
        if kind == PageKind::Huge {
            flags |= MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        }
        // SAFETY: replaces a part of the reservation made above, which nothing else knows of.
        unsafe { mmap_anonymous(start.as_ptr().cast(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let advice = match kind {
            PageKind::Small => Some(Advice::LinuxNoHugepage),
            PageKind::Transparent => Some(Advice::LinuxHugepage),
            PageKind::Huge => None,
        };
        if let Some(advice) = advice {
            // A kernel without transparent huge pages answers EINVAL: then there are only small pages anyway, and
            // the backing that is read back says so.
            // SAFETY: advice on this value's own range; it changes no content.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, advice) };
        }
        Ok(mapping)
    }

    /// Whether the process may map that many bytes more; none of them gets memory, and all are given back.
    ///
    /// # Errors
    /// The kernel's: `ENOMEM` where the limit of the address space (`RLIMIT_AS`) leaves fewer. `EINVAL` for no bytes.
    pub fn room_for(bytes: usize) -> io::Result<()> {
        let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), nothing)? };
        // SAFETY: exactly what was mapped above; nothing points into it.
        unsafe { munmap(reserved, bytes)? };
        Ok(())
    }

    /// Gives every page its memory now, as a write would, without the signal that kills the process when there is none.
    ///
    /// # Errors
    /// The kernel's: `ENOMEM` or `EFAULT` when a node or pool is exhausted. Kernels before 5.14 lack the call
    /// (`EINVAL`); pages are then touched one by one, which is only done for small pages.
    pub fn populate(&mut self, kind: PageKind) -> io::Result<()> {
        // SAFETY: populating this value's own range changes no content.
        match unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxPopulateWrite) } {
            Err(rustix::io::Errno::INVAL) if kind != PageKind::Huge => {
                self.words_mut().iter_mut().step_by(SMALL_PAGE / 8).for_each(|word| *word = std::hint::black_box(0));
                Ok(())
            }
            other => other.map_err(io::Error::from),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: an empty mapping cannot be made.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// First byte.
    pub fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The whole mapping as 64-bit words, for writing.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: the range is mapped readable and writable, page-aligned, initialised by the kernel with zeroes, and
        // borrowed through &mut self; any bits are a valid u64.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes / 8) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation and the part replaced in it are this value's own, and no borrow outlives it.
        // A failure leaves memory mapped until the process ends, soon.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
    }
}
