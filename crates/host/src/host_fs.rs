//! The gate: every read of /sys and /proc, and every write to them, goes through [`HostFs`].
//!
//! The same readers run on the machine itself and on a captured tree. A capture is input from outside: its links are
//! resolved by the kernel with `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)` (openat2(2), Linux 5.6), so a link
//! that leads out of the tree is refused, whatever stands there.

use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, RawMode, ResolveFlags};
use rustix::io::Errno;

use crate::errors::{ReadError, WriteError};

/// The most one file may give. The largest file read, numa_maps of a big guest, is a few hundred KiB.
const LIMIT: usize = 16 << 20;

/// Links followed by [`HostFs::resolve`] before it gives up, as the kernel does (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// A tree that holds /sys and /proc: the machine's own, or a capture's.
#[derive(Debug)]
pub struct HostFs {
    root: Option<OwnedFd>,
    source: String,
}

impl HostFs {
    /// The machine this runs on.
    pub fn live() -> Self {
        Self { root: None, source: "live".to_owned() }
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
        let tree = Self { root: Some(root), source };
        if tree.exists("/sys") || tree.exists("/proc") {
            Ok(tree)
        } else {
            let reason = "a capture has `sys` and `proc` in it; this directory has neither";
            Err(ReadError::unreadable(&tree.source, "", reason))
        }
    }

    /// Whether this is the machine itself.
    pub fn is_live(&self) -> bool {
        self.root.is_none()
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
        self.open(path, OFlags::PATH).is_ok()
    }

    /// Names in a directory, sorted, numbers inside names by value (`cpu2` before `cpu10`).
    ///
    /// # Errors
    /// As [`HostFs::read`].
    pub fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let failed = |errno| ReadError::from_errno(path, errno);
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_by_cached_key(|name| natural_key(name));
        Ok(names)
    }

    /// What a link says, as written (`../../../devices/pci0000:00/0000:00:05.0`).
    ///
    /// # Errors
    /// As [`HostFs::read`]; [`ReadError::Missing`] also where the path is not a link.
    pub fn link_target(&self, path: &str) -> Result<String, ReadError> {
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

    /// Writes a kernel setting, in one call, as the kernel wants it. The old value is the caller's to keep.
    ///
    /// # Errors
    /// Always on a capture; outside /sys and /proc; or what the kernel answered.
    pub fn write(&self, path: &str, value: &str) -> Result<(), WriteError> {
        if !self.is_live() {
            return Err(WriteError::Capture { path: path.to_owned(), source_name: self.source.clone() });
        }
        let kernel = path.starts_with("/sys/") || path.starts_with("/proc/");
        if !kernel || path.split('/').any(|part| part == "..") {
            return Err(WriteError::Outside { path: path.to_owned() });
        }
        let refused =
            |source: std::io::Error| WriteError::Refused { path: path.to_owned(), value: value.to_owned(), source };
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
        if !path.starts_with('/') {
            return Err(ReadError::unreadable(path, "", "paths inside a host begin with /"));
        }
        let mut flags = flags | OFlags::CLOEXEC;
        // A FIFO inside a capture must not hang the reader. openat2 refuses the flag beside O_PATH.
        if !self.is_live() && !flags.contains(OFlags::PATH) {
            flags |= OFlags::NONBLOCK;
        }
        let opened = match &self.root {
            None => rustix::fs::openat(CWD, path, flags, Mode::empty()),
            Some(root) => beneath(root.as_fd(), path, flags),
        };
        opened.map_err(|errno| match errno {
            Errno::XDEV => ReadError::unreadable(path, "", "a symbolic link on its way leads out of the capture"),
            Errno::LOOP => ReadError::unreadable(path, "", "its links go in a circle"),
            Errno::NOENT if self.is_dangling_link(path) => {
                ReadError::unreadable(path, "", "a symbolic link to something that is not in the capture")
            }
            other => ReadError::from_errno(path, other),
        })
    }

    /// Whether a path that leads to nothing ends in a link. One call: captures lack most optional files.
    fn is_dangling_link(&self, path: &str) -> bool {
        let Some(root) = &self.root else { return false };
        beneath(root.as_fd(), path.trim_end_matches('/'), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC).is_ok()
    }

    fn read_up_to(&self, path: &str, limit: usize, whole: bool) -> Result<Vec<u8>, ReadError> {
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
            return Err(ReadError::unreadable(path, "", "larger than 16 MiB"));
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
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
#[allow(clippy::disallowed_methods, reason = "tests build the trees that HostFs reads")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("sys/devices/pci0000:00/0000:00:05.0")).unwrap();
        fs::create_dir_all(tree.path().join("sys/class/block")).unwrap();
        fs::create_dir_all(tree.path().join("proc")).unwrap();
        tree
    }

    #[test]
    fn a_relative_link_inside_the_tree_works() {
        let tree = tree();
        fs::write(tree.path().join("sys/devices/pci0000:00/0000:00:05.0/vendor"), "0x8086\n\0\0\0").unwrap();
        symlink("../../devices/pci0000:00/0000:00:05.0", tree.path().join("sys/class/block/sda")).unwrap();
        let fs = HostFs::at(tree.path()).unwrap();
        assert_eq!(fs.read("/sys/class/block/sda/vendor").unwrap(), "0x8086\n");
        assert_eq!(fs.resolve("/sys/class/block/sda").unwrap(), "/sys/devices/pci0000:00/0000:00:05.0");
        assert_eq!(fs.link_name("/sys/class/block/sda").unwrap(), "0000:00:05.0");
        assert!(matches!(fs.link_target("/sys/class/block"), Err(ReadError::Missing { .. })));
        assert_eq!(fs.list("/sys").unwrap(), ["class", "devices"]);
    }

    #[test]
    fn links_out_of_the_tree_are_refused() {
        let tree = tree();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret\n").unwrap();
        let secret = outside.path().join("secret");
        symlink(&secret, tree.path().join("sys/absolute")).unwrap();
        symlink(format!("../../../../../../../..{}", secret.display()), tree.path().join("sys/relative")).unwrap();
        symlink(outside.path(), tree.path().join("sys/directory")).unwrap();
        symlink("circle", tree.path().join("sys/circle")).unwrap();
        symlink("nowhere", tree.path().join("sys/dangling")).unwrap();
        let fs = HostFs::at(tree.path()).unwrap();
        for name in ["absolute", "relative", "directory/secret", "circle", "dangling"] {
            let error = fs.read(&format!("/sys/{name}")).unwrap_err();
            assert!(matches!(error, ReadError::Unreadable { .. }), "{name}: {error}");
        }
        for name in ["absolute", "relative", "circle"] {
            assert!(fs.resolve(&format!("/sys/{name}")).is_err(), "{name}");
        }
        assert!(fs.read(&format!("/sys/../..{}", secret.display())).is_err());
        assert!(matches!(fs.read("/sys/nothing"), Err(ReadError::Missing { .. })));
        assert!(fs.read("sys/relative-path").is_err());
    }

    #[test]
    fn odd_files_are_reported_not_waited_for() {
        let tree = tree();
        let fifo = tree.path().join("sys/fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::write(tree.path().join("sys/binary"), [0xff, 0xfe, b'\n']).unwrap();
        let fs = HostFs::at(tree.path()).unwrap();
        for path in ["/sys/fifo", "/sys/class", "/sys/binary"] {
            assert!(matches!(fs.read(path), Err(ReadError::Unreadable { .. })), "{path}");
        }
    }

    #[test]
    fn a_capture_refuses_writes_loudly() {
        let tree = tree();
        fs::write(tree.path().join("sys/nr_hugepages"), "0\n").unwrap();
        let fs = HostFs::at(tree.path()).unwrap();
        let error = fs.write("/sys/nr_hugepages", "8").unwrap_err().to_string();
        assert!(error.contains("nr_hugepages") && error.contains("capture"), "{error}");
        assert_eq!(fs.read("/sys/nr_hugepages").unwrap(), "0\n");
    }

    #[test]
    fn live_writes_stay_in_the_kernels_trees() {
        for path in ["/etc/passwd", "/sys/../etc/passwd", "etc"] {
            assert!(matches!(HostFs::live().write(path, "x"), Err(WriteError::Outside { .. })), "{path}");
        }
    }

    #[test]
    fn a_directory_that_is_no_capture_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        assert!(HostFs::at(empty.path()).unwrap_err().to_string().contains("neither"));
        assert!(matches!(HostFs::at(empty.path().join("none")), Err(ReadError::Missing { .. })));
    }

    #[test]
    fn names_sort_by_the_numbers_in_them() {
        let mut names = ["cpu10", "cpu2", "cpu", "cpu1", "0000:00:10.0", "0000:00:02.0"];
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, ["0000:00:02.0", "0000:00:10.0", "cpu", "cpu1", "cpu2", "cpu10"]);
    }
}
