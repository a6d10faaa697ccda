//! The disk that a guest writes to: an overlay over its base image, in a file that never has a name.
//!
//! `O_TMPFILE` (open(2)) makes it, and the kernel frees it when the last process that has it open is gone: nearmetal,
//! libvirt's helper, QEMU. So nothing is left of it, whoever is killed. `qemu-img` writes the overlay's first blocks through
//! /proc/PID/fd, and is told the length (`-u`): it opens no image that comes from outside.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use nearmetal_host::files;
use nearmetal_image::Layer;
use nearmetal_units::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{RunError, needs};

/// Where deltas take their room unless the user says otherwise.
pub const DIRECTORY: &str = "/var/lib/nearmetal/deltas";
/// What it is called in messages.
pub const WHAT: &str = "the disk that the guest writes to";
/// What a user's delta leaves free in its file system, which is nearmetal's journal's, too.
const RESERVE: Bytes = Bytes::from_mib(1024);

/// A path that leads to an open file of this process, for other processes of the same user.
pub fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// Makes the delta of a base image.
///
/// # Errors
/// The directory's file system knows no files without names, it is full, or `qemu-img` is missing or refuses.
pub fn make(directory: &Path, base: &Layer) -> Result<File, RunError> {
    let file = unnamed(directory, WHAT)?;
    let failed = |reason: String| RunError::Disk { what: WHAT, directory: directory.to_owned(), reason };
    let output = Command::new("qemu-img")
        .args(["create", "-q", "-u", "-f", "qcow2", "-F", base.format.word(), "-b"])
        .arg(&base.path)
        .arg(path_of(&file))
        .arg(base.disk.to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed("`qemu-img` is missing: apt install qemu-utils".to_owned()),
            _ => failed(format!("`qemu-img`: {error}")),
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("`qemu-img create` ended with {}: {}", output.status, said.trim())));
    }
    Ok(file)
}

/// Refuses the delta of a user's run that could fill its file system: it may grow to all of its disk. Other runs' deltas grow too, and
/// count by what they have by now. Of its own runs root decides.
///
/// # Errors
/// Too little is free, or the file system does not say how much.
pub fn leaves_room(directory: &Path, delta: &File, base: &Layer) -> Result<(), RunError> {
    let failed = |reason: String| RunError::Disk { what: WHAT, directory: directory.to_owned(), reason };
    let space = rustix::fs::fstatvfs(delta).map_err(|errno| failed(errno.to_string()))?;
    let free = Bytes::new(space.f_bavail.saturating_mul(space.f_frsize));
    lacking(Bytes::new(base.disk), free).map_or(Ok(()), |why| Err(failed(why)))
}

/// Why a disk has too little room, if it has.
fn lacking(disk: Bytes, free: Bytes) -> Option<String> {
    let wanted = disk.plus(RESERVE);
    (free < wanted).then(|| {
        format!(
            "it may grow to {disk} and has to leave {RESERVE} to others, which makes {wanted}, and {free} are free: take a smaller image, \
             wait until other runs have ended, or have root make room"
        )
    })
}

/// A file without a name, to read and write. `what`: what it will be, for messages.
pub(crate) fn unnamed(directory: &Path, what: &'static str) -> Result<File, RunError> {
    files::create_dir_all(directory)?;
    let failed = |reason: String| RunError::Disk { what, directory: directory.to_owned(), reason };
    // O_EXCL: linkat(2) cannot give it a name later either.
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            let file = File::from(file);
            needs::direct(what, directory, &file).map(|()| file)
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Err(failed(
            "its file system makes no files without names (O_TMPFILE; NFS is one): name another directory with \
             --delta-directory"
                .to_owned(),
        )),
        Err(errno) => Err(failed(errno.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_delta_has_no_name_and_is_reached_through_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = unnamed(directory.path(), WHAT).unwrap();
        assert!(files::list(directory.path()).unwrap().is_empty());
        file.write_all(b"written here").unwrap();
        let other = rustix::fs::open(path_of(&file).as_str(), OFlags::RDWR, Mode::empty()).unwrap();
        let mut text = String::new();
        File::from(other).read_to_string(&mut text).unwrap();
        assert_eq!(text, "written here");
        let (from, to) = (path_of(&file), directory.path().join("named"));
        let linked =
            rustix::fs::linkat(rustix::fs::CWD, from, rustix::fs::CWD, to, rustix::fs::AtFlags::SYMLINK_FOLLOW);
        assert!(linked.is_err(), "a delta with a name outlives its run");
    }

    #[test]
    fn a_users_disk_that_could_fill_the_file_system_is_refused_with_the_numbers() {
        let gib = |count: u64| Bytes::from_mib(count << 10);
        assert_eq!(lacking(gib(10), gib(11)), None);
        let why = lacking(gib(10), gib(11).less(Bytes::new(1))).unwrap();
        assert!(why.contains("grow to 10 GiB") && why.contains("leave 1 GiB") && why.contains("makes 11 GiB"), "{why}");
        assert!(lacking(Bytes::new(u64::MAX), Bytes::new(u64::MAX - 1)).is_some());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let below_a_file = directory.path().join("file/below");
        files::write(&directory.path().join("file"), "x").unwrap();
        let error = unnamed(&below_a_file, WHAT).unwrap_err();
        assert!(matches!(&error, RunError::File(error) if error.path == below_a_file), "{error}");
    }
}
