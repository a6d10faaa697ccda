//! The gate: every read of /sys and /proc, and every write to them, goes through [`HostFs`].
//!
//! The same readers run on the machine itself, on a captured directory and on a tree in memory. A capture is input from
//! outside: a directory's links are resolved by the kernel with `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)`
//! (openat2(2), Linux 5.6), so a link that leads out of it is refused, whatever stands there; a tree in memory
//! ([`crate::MemoryTree`]) has no outside.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, RawMode, ResolveFlags};
use rustix::io::Errno;

use crate::errors::{ReadError, WriteError};
use crate::lab_counters::{LabCounters, LabCountersError};
use crate::memory_tree::{Entry, LARGEST_FILE, MemoryTree, TreeError};
use crate::record::Recorder;

/// The most one file may give. The largest file read, numa_maps of a big guest, is a few hundred KiB.
const LIMIT: usize = LARGEST_FILE;

/// Links followed by [`HostFs::resolve`] before it gives up, as the kernel does (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// Where the files are.
#[derive(Debug)]
enum Root {
    /// The machine this runs on.
    Live,
    /// Below a directory.
    Directory(OwnedFd),
    /// In memory.
    Tree(MemoryTree),
}

/// What stands behind a tree in the place of a kernel, in tests: it changes the tree's files as a kernel would.
pub trait TestKernel: fmt::Debug + Send + Sync {
    /// A file is about to be read.
    fn reads(&self, _path: &str) {}

    /// A value is written.
    ///
    /// # Errors
    /// What the kernel answers.
    fn writes(&self, path: &str, value: &str) -> std::io::Result<()>;
}

/// A tree that holds /sys and /proc: the machine's own, or a capture's.
#[derive(Debug)]
pub struct HostFs {
    root: Root,
    source: String,
    partial: bool,
    recorder: Option<Recorder>,
    kernel: Option<Box<dyn TestKernel>>,
    /// Found once: the search reads every PCI function.
    pub(crate) lab_counters: OnceLock<Option<Result<LabCounters, LabCountersError>>>,
}

impl HostFs {
    /// The machine this runs on.
    pub fn live() -> Self {
        Self::new(Root::Live, "live".to_owned())
    }

    /// The same files, with everything that is read of them written down for [`HostFs::into_record`].
    pub fn recorded(self) -> Self {
        Self { recorder: Some(Recorder::default()), ..self }
    }

    /// Files in memory. `source` says where they come from, as [`HostFs::describe`] will.
    pub fn of_tree(tree: MemoryTree, source: impl Into<String>) -> Self {
        Self::new(Root::Tree(tree), source.into())
    }

    /// As [`HostFs::of_tree`], of a source that tells a part of what a kernel tells (another tool's description): what
    /// it leaves out is unknown, and not a sign of damage.
    pub fn of_partial_tree(tree: MemoryTree, source: impl Into<String>) -> Self {
        Self { partial: true, ..Self::of_tree(tree, source) }
    }

    fn new(root: Root, source: String) -> Self {
        Self { root, source, partial: false, recorder: None, kernel: None, lab_counters: OnceLock::new() }
    }

    /// The same files with a kernel behind them, for tests.
    pub fn with_kernel(self, kernel: impl TestKernel + 'static) -> Self {
        Self { kernel: Some(Box::new(kernel)), ..self }
    }

    /// A captured or fixture tree: a directory that has `sys` and `proc` in it.
    ///
    /// # Errors
    /// The directory cannot be opened, or has neither `sys` nor `proc`.
    pub fn at(directory: impl AsRef<Path>) -> Result<Self, ReadError> {
        let source = directory.as_ref().display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory.as_ref(), flags, Mode::empty())
            .map_err(|errno| ReadError::from_errno(&source, errno))?;
        let tree = Self::new(Root::Directory(root), source);
        if tree.exists("/sys") || tree.exists("/proc") {
            Ok(tree)
        } else {
            let reason = "a capture has `sys` and `proc` in it; this directory has neither";
            Err(ReadError::unreadable(&tree.source, "", reason))
        }
    }

    /// Whether this is the machine itself.
    pub fn is_live(&self) -> bool {
        matches!(self.root, Root::Live)
    }

    /// Whether a kernel takes what is written: this machine's, or that of a test.
    pub fn takes_writes(&self) -> bool {
        self.is_live() || self.kernel.is_some()
    }

    /// Whether the source tells only a part: absence then means unknown.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// What was read since [`HostFs::recorded`]; empty if nothing was to be written down.
    ///
    /// # Errors
    /// More was read than a tree may hold.
    pub fn into_record(self) -> Result<MemoryTree, TreeError> {
        self.recorder.map_or(Ok(MemoryTree::new()), Recorder::finish)
    }

    /// `live`, or the path of the capture as it was given.
    pub fn describe(&self) -> &str {
        &self.source
    }

    /// A file as text, without the NUL padding some captures carry at the end.
    ///
    /// # Errors
    /// [`ReadError::Missing`], [`ReadError::Denied`], or [`ReadError::Unreadable`]: not UTF-8, over 16 MiB, a link
    /// out of the capture, or the driver behind the file failed.
    pub fn read(&self, path: &str) -> Result<String, ReadError> {
        into_text(path, self.read_up_to(path, LIMIT, true)?)
    }

    /// A file as bytes, such as /proc/PID/cmdline, whose arguments end in NUL and need not be UTF-8.
    ///
    /// # Errors
    /// As [`HostFs::read`], text apart.
    pub fn read_bytes(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        self.read_up_to(path, LIMIT, true)
    }

    /// The first `limit` bytes of a text file, for /proc/cpuinfo: it has a block per PU and the first one is enough.
    ///
    /// # Errors
    /// As [`HostFs::read`], size apart.
    pub fn read_head(&self, path: &str, limit: usize) -> Result<String, ReadError> {
        let bytes = self.read_up_to(path, limit, false)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether something is there; a link that leads nowhere is not.
    pub fn exists(&self, path: &str) -> bool {
        let exists = match &self.root {
            Root::Tree(tree) => path.starts_with('/') && tree.resolve(path, true).is_ok(),
            _ => self.open(path, OFlags::PATH).is_ok(),
        };
        if let Some(recorder) = &self.recorder {
            // A file is recorded with what is in it: an empty one would be a wrong answer to who reads it later.
            match exists && self.open(path, OFlags::RDONLY | OFlags::DIRECTORY).is_err() {
                true => drop(self.read_up_to(path, LIMIT, true)),
                false => recorder.seen(self, path, exists),
            }
        }
        exists
    }

    /// Device and inode of a file or directory of this machine: whether two paths lead to the same one, also from containers. `None`
    /// where it is not there, and in a capture.
    pub fn identity(&self, path: &str) -> Option<(u64, u64)> {
        if !self.is_live() {
            return None;
        }
        let stat = rustix::fs::fstat(self.open(path, OFlags::PATH).ok()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Names in a directory, sorted, numbers inside names by value (`cpu2` before `cpu10`).
    ///
    /// # Errors
    /// As [`HostFs::read`].
    pub fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let result = self.names(path);
        if let Some(recorder) = &self.recorder {
            recorder.listed(self, path, &result);
        }
        let mut names = result?;
        names.sort_by_cached_key(|name| natural_key(name));
        Ok(names)
    }

    fn names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let failed = |errno| ReadError::from_errno(path, errno);
        if let Root::Tree(tree) = &self.root {
            checked(path)?;
            return tree.names(path).map_err(|errno| self.refused(path, errno));
        }
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// What a link says, as written (`../../../devices/pci0000:00/0000:00:05.0`).
    ///
    /// # Errors
    /// As [`HostFs::read`]; [`ReadError::Missing`] also where the path is not a link.
    pub fn link_target(&self, path: &str) -> Result<String, ReadError> {
        let result = self.link_text(path);
        if let Some(recorder) = &self.recorder {
            recorder.seen(self, path, false);
        }
        result
    }

    /// [`HostFs::link_target`], not recorded.
    pub(crate) fn link_text(&self, path: &str) -> Result<String, ReadError> {
        if let Root::Tree(tree) = &self.root {
            checked(path)?;
            return match tree.resolve(path, false).map_err(|errno| self.refused(path, errno))? {
                Entry::Link(target) => Ok(target.clone()),
                Entry::Denied => Err(ReadError::Denied { path: path.to_owned() }),
                _ => Err(ReadError::Missing { path: path.to_owned() }),
            };
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let failed = |errno| match errno {
            Errno::INVAL => ReadError::Missing { path: path.to_owned() },
            other => ReadError::from_errno(path, other),
        };
        let parent = self.open(if parent.is_empty() { "/" } else { parent }, OFlags::PATH | OFlags::DIRECTORY)?;
        let target = rustix::fs::readlinkat(&parent, name, Vec::new()).map_err(failed)?;
        Ok(target.to_string_lossy().into_owned())
    }

    /// The last name of what a link says: `nvme` for `../../../bus/pci/drivers/nvme`.
    ///
    /// # Errors
    /// As [`HostFs::link_target`].
    pub fn link_name(&self, path: &str) -> Result<String, ReadError> {
        let target = self.link_target(path)?;
        Ok(target.rsplit('/').next().unwrap_or(&target).to_owned())
    }

    /// Follows the links at the end of a path: `/sys/class/block/sda` gives `/sys/devices/pci0000:00/…/block/sda`.
    /// Links in the middle of the path are left: sysfs points its class links straight into /sys/devices.
    ///
    /// # Errors
    /// As [`HostFs::read`]; [`ReadError::Unreadable`] for a link out of the capture or in a circle.
    pub fn resolve(&self, path: &str) -> Result<String, ReadError> {
        let mut current = path.to_owned();
        for _ in 0..MOST_LINKS {
            match self.link_target(&current) {
                Ok(target) => current = join(&current, &target)?,
                Err(ReadError::Missing { .. }) if self.exists(&current) => return Ok(current),
                Err(error) => return Err(error),
            }
        }
        Err(ReadError::unreadable(path, &current, "its links go in a circle"))
    }

    /// What is at a path itself, links not followed; `None` for what is neither directory nor link. Not recorded.
    pub(crate) fn kind(&self, path: &str) -> Option<Entry> {
        match self.link_text(path) {
            Ok(target) => return Some(Entry::Link(target)),
            Err(ReadError::Denied { .. }) => return Some(Entry::Denied),
            Err(_) => {}
        }
        let directory = match &self.root {
            Root::Tree(tree) => matches!(tree.resolve(path, false), Ok(Entry::Directory)),
            _ => self.open(path, OFlags::PATH | OFlags::DIRECTORY).is_ok(),
        };
        directory.then_some(Entry::Directory)
    }

    /// Writes a kernel setting, in one call, as the kernel wants it. The old value is the caller's to keep.
    ///
    /// # Errors
    /// Always on a capture; outside /sys and /proc; or what the kernel answered.
    pub fn write(&self, path: &str, value: &str) -> Result<(), WriteError> {
        if !self.takes_writes() {
            return Err(WriteError::Capture { path: path.to_owned(), source_name: self.source.clone() });
        }
        let kernel = path.starts_with("/sys/") || path.starts_with("/proc/");
        if !kernel || path.split('/').any(|part| part == "..") {
            return Err(WriteError::Outside { path: path.to_owned() });
        }
        let refused =
            |source: std::io::Error| WriteError::Refused { path: path.to_owned(), value: value.to_owned(), source };
        if let Some(kernel) = &self.kernel {
            return kernel.writes(path, value).map_err(refused);
        }
        let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| refused(errno.into()))?;
        match rustix::io::write(&file, value.as_bytes()) {
            Ok(written) if written == value.len() => Ok(()),
            Ok(written) => {
                Err(refused(std::io::Error::other(format!("the kernel took {written} of {} bytes", value.len()))))
            }
            Err(errno) => Err(refused(errno.into())),
        }
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, ReadError> {
        checked(path)?;
        let mut flags = flags | OFlags::CLOEXEC;
        // A FIFO inside a capture must not hang the reader. openat2 refuses the flag beside O_PATH.
        if !self.is_live() && !flags.contains(OFlags::PATH) {
            flags |= OFlags::NONBLOCK;
        }
        let opened = match &self.root {
            Root::Directory(root) => beneath(root.as_fd(), path, flags),
            Root::Live => rustix::fs::openat(CWD, path, flags, Mode::empty()),
            // Its readers never come here.
            Root::Tree(_) => Err(Errno::NOSYS),
        };
        opened.map_err(|errno| self.refused(path, errno))
    }

    fn refused(&self, path: &str, errno: Errno) -> ReadError {
        match errno {
            Errno::XDEV => ReadError::unreadable(path, "", "a symbolic link on its way leads out of the capture"),
            Errno::LOOP => ReadError::unreadable(path, "", "its links go in a circle"),
            Errno::NOENT if self.is_dangling_link(path) => {
                ReadError::unreadable(path, "", "a symbolic link to something that is not in the capture")
            }
            other => ReadError::from_errno(path, other),
        }
    }

    /// Whether a path that leads to nothing ends in a link. One call: captures lack most optional files.
    fn is_dangling_link(&self, path: &str) -> bool {
        let root = match &self.root {
            Root::Live => return false,
            Root::Directory(root) => root,
            Root::Tree(tree) => return matches!(tree.resolve(path.trim_end_matches('/'), false), Ok(Entry::Link(_))),
        };
        beneath(root.as_fd(), path.trim_end_matches('/'), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC).is_ok()
    }

    fn read_up_to(&self, path: &str, limit: usize, whole: bool) -> Result<Vec<u8>, ReadError> {
        if let Some(kernel) = &self.kernel {
            kernel.reads(path);
        }
        let result = match &self.root {
            Root::Tree(tree) => self.read_tree(tree, path, limit, whole),
            _ => self.read_file(path, limit, whole),
        };
        if let Some(recorder) = &self.recorder {
            recorder.read(self, path, &result);
        }
        result
    }

    fn read_tree(&self, tree: &MemoryTree, path: &str, limit: usize, whole: bool) -> Result<Vec<u8>, ReadError> {
        checked(path)?;
        match tree.resolve(path, true).map_err(|errno| self.refused(path, errno))? {
            Entry::File(bytes) if whole && bytes.len() >= LIMIT => Err(too_large(path)),
            Entry::File(bytes) => Ok(bytes[..bytes.len().min(limit)].to_vec()),
            Entry::Denied => Err(ReadError::Denied { path: path.to_owned() }),
            Entry::Failed(reason) => Err(ReadError::unreadable(path, "", reason.as_str())),
            Entry::Directory | Entry::Link(_) => Err(ReadError::unreadable(path, "", "not a regular file")),
        }
    }

    fn read_file(&self, path: &str, limit: usize, whole: bool) -> Result<Vec<u8>, ReadError> {
        let failed = |errno| ReadError::from_errno(path, errno);
        let file = self.open(path, OFlags::RDONLY)?;
        if !self.is_live() {
            let stat = rustix::fs::fstat(&file).map_err(failed)?;
            if FileType::from_raw_mode(stat.st_mode as RawMode) != FileType::RegularFile {
                return Err(ReadError::unreadable(path, "", "not a regular file"));
            }
        }
        // Most attributes are a few bytes; one page is what sysfs hands out at once.
        let mut bytes = vec![0; limit.min(4096)];
        let mut filled = 0;
        loop {
            if filled == bytes.len() {
                if filled >= limit {
                    break;
                }
                bytes.resize((filled * 4).min(limit), 0);
            }
            match rustix::io::read(&file, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => {
                    filled += count;
                    // An attribute of sysfs comes whole; files of /proc may come in pieces. Most reads are attributes.
                    if filled < bytes.len() && path.starts_with("/sys/") {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        if whole && filled == limit {
            return Err(too_large(path));
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

fn checked(path: &str) -> Result<(), ReadError> {
    match path.starts_with('/') {
        true => Ok(()),
        false => Err(ReadError::unreadable(path, "", "paths inside a host begin with /")),
    }
}

fn too_large(path: &str) -> ReadError {
    ReadError::unreadable(path, "", "larger than 16 MiB")
}

/// Opens below `root`; an absolute path means the root of the tree.
fn beneath(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let relative = path.trim_start_matches('/');
    let relative = if relative.is_empty() { "." } else { relative };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    loop {
        // EAGAIN: a rename elsewhere raced with `..` in a link; openat2(2) says to try again.
        match rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

fn into_text(path: &str, mut bytes: Vec<u8>) -> Result<String, ReadError> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    String::from_utf8(bytes).map_err(|error| {
        let raw = String::from_utf8_lossy(error.as_bytes()).into_owned();
        ReadError::unreadable(path, &raw, "not UTF-8 text")
    })
}

/// The path a link at `path` with text `target` leads to, by its words alone.
fn join(path: &str, target: &str) -> Result<String, ReadError> {
    if target.starts_with('/') {
        return Err(ReadError::unreadable(path, target, "an absolute symbolic link leads out of the tree"));
    }
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => {
                return Err(ReadError::unreadable(path, target, "a symbolic link leads out of the tree"));
            }
            ".." => {}
            name => parts.push(name),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}

/// Orders names so that digits count as numbers.
fn natural_key(name: &str) -> Vec<(String, Option<u64>, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits_at = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits_at);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (digits, after) = tail.split_at(end);
        key.push((word.to_owned(), digits.parse().ok(), digits.to_owned()));
        rest = after;
    }
    key
}

#[cfg(test)]
mod tests;
