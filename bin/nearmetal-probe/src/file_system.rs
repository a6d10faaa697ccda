//! A file system made for one run: made, mounted where only this run sees it, gone from sight when it ends.
#![allow(unsafe_code, reason = "unshare(2) is unsafe for what else it can leave behind")]

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nearmetal_host::{HostFs, ReadError};
use nearmetal_units::Bytes;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::Serialize;

use crate::error::ProbeError;

/// Where programs of administrators are, whatever PATH says.
const PROGRAMS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Mount points, the first that is there and hides nothing that is needed.
const POINTS: [&str; 5] = ["/mnt", "/tmp", "/media", "/srv", "/opt"];

/// Kinds that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::Xfs];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    fn maker(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
        }
    }

    /// Options that leave no work for the background: all tables written at once (mke2fs(8), `lazy_itable_init`), and no
    /// discard of the whole device, which would take the data's blocks away (`nodiscard`; mkfs.xfs(8), `-K`). Nor does any block wait
    /// for root alone (`-m 0`): not all servers are root's.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
            Self::Xfs => &["-q", "-f", "-K"],
        }
    }

    /// mkfs' arguments for a file system of this size; `None`: as large as the device.
    fn arguments(self, device: &str, size: Option<Bytes>) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (before, behind) = match (self, size) {
            (_, None) => (vec![], vec![]),
            // As mke2fs.conf has them for a large file system; a small one would have blocks of 1 KiB.
            (Self::Ext4, Some(size)) => (words(&["-b", "4096", "-i", "16384"]), vec![format!("{}k", size.kib())]),
            (Self::Xfs, Some(size)) => (vec!["-d".to_owned(), format!("size={}k", size.kib())], vec![]),
        };
        [words(self.options()), before, vec![device.to_owned()], behind].concat()
    }
}

fn program(name: &str) -> Option<String> {
    PROGRAMS.iter().map(|directory| format!("{directory}/{name}")).find(|path| Path::new(path).exists())
}

/// The kinds this machine can make and mount.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FileSystems {
    /// Both.
    pub usable: Vec<Kind>,
    /// What is missing for each of the others, one line each.
    pub missing: Vec<String>,
}

impl FileSystems {
    /// Looks for the programs and asks the kernel, loading a module if there is a program for that.
    ///
    /// # Errors
    /// `/proc/filesystems` cannot be read.
    pub fn look(fs: &HostFs) -> Result<Self, ReadError> {
        let mut found = Self { usable: Vec::new(), missing: Vec::new() };
        for kind in Kind::ALL {
            let name = kind.name();
            if program(kind.maker()).is_none() {
                found.missing.push(format!("{name}: there is no {}", kind.maker()));
                continue;
            }
            if !knows(&fs.read("/proc/filesystems")?, name) && fs.is_live() {
                if let Some(modprobe) = program("modprobe") {
                    // By the alias that the kernel itself asks for (include/linux/fs.h, MODULE_ALIAS_FS). Whether it helped is read from
                    // the kernel below.
                    let _ = Command::new(modprobe)
                        .arg(format!("fs-{name}"))
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status();
                }
            }
            match knows(&fs.read("/proc/filesystems")?, name) {
                true => found.usable.push(kind),
                false => found.missing.push(format!("{name}: this kernel has no {name}, nor a module of it")),
            }
        }
        Ok(found)
    }
}

/// `nodev\tproc` and `\text4`, one a line.
fn knows(filesystems: &str, name: &str) -> bool {
    filesystems.lines().any(|line| line.trim() == name)
}

/// Makes a file system on `device`, a block device or a file, whose contents are lost, and runs a command in it; gives how the command
/// ended.
///
/// The mount is in a mount namespace of this process (mount_namespaces(7)): no other process sees it, and the kernel
/// takes it down when the last process in it is gone, also if that is killed.
///
/// # Errors
/// A program is missing or fails, or the kernel refuses the namespace or the mount.
pub fn run_in(kind: Kind, device: &str, command: &[OsString]) -> Result<ExitStatus, ProbeError> {
    let point = mount_point(&[Path::new(device)])?;
    make(kind, device, None)?;
    keep_mounts_apart()?;
    mount_data(kind, device, point)?;
    let Some((first, rest)) = command.split_first() else { return Ok(ExitStatus::default()) };
    let name = first.to_string_lossy().into_owned();
    let status = Command::new(first).args(rest).current_dir(point).status();
    let status = status.map_err(|source| ProbeError::Start { program: name, source })?;
    // The device is written out before the run counts as over; the namespace would do it after this process ends.
    rustix::mount::unmount(point, rustix::mount::UnmountFlags::empty()).map_err(refused(format!("unmount {point}")))?;
    Ok(status)
}

/// A refusal of the kernel's, as an error.
pub(crate) fn refused(action: String) -> impl FnOnce(rustix::io::Errno) -> ProbeError {
    move |error| ProbeError::Kernel { action, source: error.into() }
}

/// Mounts a file system that is measured, on a block device or in a file.
///
/// A file that can be opened past the page cache is read and written past it, or it is an error (such as on a drive with sectors of 4 KiB,
/// where loop(4) refuses): the disks of guests are opened so, and the host would cache for bare metal alone.
pub(crate) fn mount_data(kind: Kind, device: &str, place: &str) -> Result<(), ProbeError> {
    if is_device(device)? {
        return mount(device, place, kind.name(), MountFlags::NOATIME, None)
            .map_err(refused(format!("mount {device} at {place} as {}", kind.name())));
    }
    mount_file(device, kind.name(), "noatime", place)?;
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    match rustix::fs::open(device, flags, Mode::empty()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INVAL) => return Ok(()),
        Err(why) => return Err(refused(format!("open {device} past the page cache"))(why)),
    }
    for name in loops_of(device)? {
        output("losetup", &["--direct-io=on", &name])?;
    }
    Ok(())
}

/// The loop devices over a file.
fn loops_of(file: &str) -> Result<Vec<String>, ProbeError> {
    let names = output("losetup", &["--noheadings", "--output", "NAME", "--associated", file])?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// Mounts a file through a loop device, which mount(8) sets up so that it goes with the mount.
pub(crate) fn mount_file(file: &str, kind: &str, options: &str, place: &str) -> Result<(), ProbeError> {
    output("mount", &["-t", kind, "-o", &format!("{options},loop"), file, place]).map(|_| ())
}

/// What a program prints, in its own words if it fails.
fn output(name: &str, arguments: &[&str]) -> Result<String, ProbeError> {
    let path = program(name).unwrap_or_else(|| name.to_owned());
    let made = Command::new(path).args(arguments).output();
    let made = made.map_err(|source| ProbeError::Start { program: name.to_owned(), source })?;
    if made.status.success() {
        return Ok(String::from_utf8_lossy(&made.stdout).into_owned());
    }
    let why: String = String::from_utf8_lossy(&made.stderr).trim().chars().take(300).collect();
    Err(ProbeError::Program { program: format!("{name} {}", arguments.join(" ")), why })
}

/// Whether it is a block device.
pub(crate) fn is_device(path: &str) -> Result<bool, ProbeError> {
    let found = rustix::fs::stat(path).map_err(refused(format!("find {path}")))?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice)
}

/// Makes a file system of this size on `device`, whose contents are lost; `None`: as large as the device.
pub(crate) fn make(kind: Kind, device: &str, size: Option<Bytes>) -> Result<(), ProbeError> {
    let maker = program(kind.maker()).ok_or_else(|| ProbeError::Start {
        program: kind.maker().to_owned(),
        source: io::Error::new(io::ErrorKind::NotFound, "it is not installed"),
    })?;
    until_free(device)?;
    let made = Command::new(&maker).args(kind.arguments(device, size)).output();
    let made = made.map_err(|source| ProbeError::Start { program: maker.clone(), source })?;
    if !made.status.success() {
        let why: String = String::from_utf8_lossy(&made.stderr).trim().chars().take(300).collect();
        return Err(ProbeError::Program { program: format!("{maker} {device}"), why });
    }
    Ok(())
}

/// How long a device may still be in use by what was ended a moment ago: the kernel writes out a file system after its last process is
/// gone.
const TO_BE_FREE: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until nobody has a block device for himself, neither a mount nor a program that makes a file system (O_EXCL of open(2)), or a
/// file through a loop device. What it is that keeps a block device, who makes the file system says; of a file, the loop device.
fn until_free(device: &str) -> Result<(), ProbeError> {
    let began = Instant::now();
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    if is_device(device)? {
        let is_busy = || rustix::fs::open(device, flags, Mode::empty()).err() == Some(rustix::io::Errno::BUSY);
        while is_busy() && began.elapsed() < TO_BE_FREE {
            std::thread::sleep(PAUSE);
        }
        return Ok(());
    }
    loop {
        let loops = loops_of(device)?;
        if loops.is_empty() {
            return Ok(());
        }
        if began.elapsed() >= TO_BE_FREE {
            let source = io::Error::other(format!("it is still in use by {}", loops.join(", ")));
            return Err(ProbeError::Kernel { action: format!("make a file system in {device}"), source });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Where something can be mounted without hiding what is needed afterwards.
pub(crate) fn mount_point(needed: &[&Path]) -> Result<&'static str, ProbeError> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // A link that would be hidden counts as well as what it leads to.
    let named = needed.iter().filter_map(|path| std::path::absolute(path).ok());
    let needed: Vec<PathBuf> = named.chain(needed.iter().map(|path| whole(path))).collect();
    let hides =
        |point: &str| needed.iter().any(|path| path.starts_with(point) || path.starts_with(whole(Path::new(point))));
    POINTS.into_iter().find(|point| Path::new(point).is_dir() && !hides(point)).ok_or_else(|| ProbeError::Kernel {
        action: "find a directory to mount at".to_owned(),
        source: io::Error::new(
            io::ErrorKind::NotFound,
            format!("each of {} is missing or holds what is used", POINTS.join(", ")),
        ),
    })
}

/// Leaves the other processes' mount namespace.
pub(crate) fn keep_mounts_apart() -> Result<(), ProbeError> {
    // SAFETY: no descriptor table or memory is taken from another thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(refused("make a mount namespace".to_owned()))?;
    let apart = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", apart).map_err(refused("keep mounts from other processes".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_by_whole_words() {
        let text = "nodev\tsysfs\n\text4\n\txfs_old\nnodev\tfuse\n";
        assert!(knows(text, "ext4"));
        assert!(!knows(text, "xfs") && !knows(text, "ext"));
        assert!(!knows(text, "sysfs"), "it has no device");
    }

    #[test]
    fn a_file_system_is_as_large_as_was_asked_for() {
        let size = Some(Bytes::from_mib(130));
        let ext4 = Kind::Ext4.arguments("/dev/vda", size);
        assert_eq!(ext4[ext4.len() - 6..], ["-b", "4096", "-i", "16384", "/dev/vda", "133120k"]);
        let xfs = Kind::Xfs.arguments("/dev/vda", size);
        assert_eq!(xfs[xfs.len() - 3..], ["-d", "size=133120k", "/dev/vda"]);
        for kind in Kind::ALL {
            let whole = kind.arguments("/dev/vda", None);
            assert_eq!(whole[..], [kind.options(), &["/dev/vda"]].concat());
        }
    }

    #[test]
    fn what_is_needed_is_not_hidden_by_a_mount() {
        assert_eq!(
            mount_point(&[Path::new("/dev/null")]).unwrap(),
            POINTS.into_iter().find(|at| Path::new(at).is_dir()).unwrap()
        );
        let all = POINTS.map(|point| Path::new(point).join("file"));
        let error = mount_point(&all.each_ref().map(PathBuf::as_path)).unwrap_err();
        assert!(crate::error::chain(&error).contains("/mnt, /tmp"), "{error}");
        assert_ne!(mount_point(&[&all[0], &all[1]]).ok(), Some("/mnt"));
    }

    #[test]
    fn what_cannot_be_made_is_an_error_before_anything_is_mounted() {
        let result = run_in(Kind::Ext4, "/nonexistent/device", &["true".into()]);
        assert!(result.is_err());
    }
}
