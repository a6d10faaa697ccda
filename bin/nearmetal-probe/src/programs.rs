//! A program of an image that has its libraries too: run in the image, where only this run sees it, and gone when it ends.
//!
//! The image is read only. What programs write goes into memory (`/tmp`, `/run`), or into a file system made on a device
//! (`/data`). The same bytes run on the host and in guests, whatever either has installed.
#![allow(unsafe_code, reason = "what a child does between fork and exec is unsafe: it may only make system calls")]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nearmetal_host::{HostFs, files};
use nearmetal_units::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use rustix::time::{ClockId, clock_gettime};

use crate::error::ProbeError;
use crate::file_system::{self, Kind, keep_mounts_apart, make, mount_data, mount_file, mount_point, refused};
use crate::gate::{self, Gate};
use crate::output::remark;

/// Kind of the image, and of a kit's.
const KIND: &str = "erofs";
const KIND_OF_KITS: &str = "ext4";
/// Where programs find the files of a kit.
const KIT: &str = "/run/kit";
/// Where programs are looked for, in the image.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Where programs find this program, which makes what servers serve: a static one needs nothing of the image.
pub const PROBE: &str = "/run/nearmetal-probe";

/// What tells a program when its run began, in hundredths of a second of /proc/uptime: making its file system is a part of it.
const BEGUN: &str = "NEARMETAL_BEGUN";

/// A device or file for `/data`; its contents are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// Which file system is made on it.
    pub kind: Kind,
    /// The block device or file.
    pub device: &'a str,
    /// Size of the file system; `None`: as large as the device.
    pub size: Option<Bytes>,
}

/// A gate at which the program waits once it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtGate<'a> {
    /// Its name.
    pub name: &'a str,
    /// How long it waits to be told to begin.
    pub patience: Duration,
}

/// Where programs find their side of the gate.
const GATE: &str = "/run/gate";

/// What names a virtio disk by its serial number: the kernel names disks in the order it finds them.
const BY_SERIAL: &str = "serial:";

/// The device that is meant: a path, or `serial:` and the serial number of a virtio disk.
///
/// # Errors
/// /sys cannot be read, or not exactly one disk has that number.
pub fn device(fs: &HostFs, named: &str) -> Result<String, ProbeError> {
    let Some(serial) = named.strip_prefix(BY_SERIAL) else { return Ok(named.to_owned()) };
    let disks = fs.list("/sys/block")?;
    let has = |disk: &&String| fs.read(&format!("/sys/block/{disk}/serial")).is_ok_and(|found| found.trim() == serial);
    let found: Vec<&String> = disks.iter().filter(has).collect();
    match found[..] {
        [only] => Ok(format!("/dev/{only}")),
        _ => Err(ProbeError::NoSuchDisk { serial: serial.to_owned(), found: found.len(), all: disks.join(", ") }),
    }
}

/// Hundredths of a second since the machine was switched on, as /proc/uptime counts them.
fn hundredths() -> String {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec * 100 + now.tv_nsec / 10_000_000).to_string()
}

/// Runs a command in an image, a block device or a file, with the kit of another image at `/run/kit` if there is one, and with a gate if
/// one is named; gives how the command ended.
///
/// All mounts are in a mount namespace, and all processes that the command starts in a process namespace of theirs
/// (pid_namespaces(7)), of which the command is the first: when it ends, or this process is killed, the kernel ends the others
/// and takes the mounts down.
///
/// # Errors
/// An image cannot be mounted, the file system cannot be made, or the command cannot be started.
pub fn run_in_image(
    image: &str,
    kit: Option<&str>,
    data: Option<Data<'_>>,
    at_gate: Option<AtGate<'_>>,
    command: &[OsString],
) -> Result<ExitStatus, ProbeError> {
    let Some((first, rest)) = command.split_first() else { return Ok(ExitStatus::default()) };
    let begun = hundredths();
    // At once: who waits for the program asks here whether it is there.
    let at_gate = at_gate.map(|at| Gate::new(at.name).map(|gate| (gate, at.patience))).transpose()?;
    // Before anything is mounted or made.
    let is_device = file_system::is_device(image)?;
    let kit = kit.map(|kit| Ok::<_, ProbeError>((kit, file_system::is_device(kit)?))).transpose()?;
    // By its path: /proc/self/exe leads to a mount of the namespace that is left below.
    let own = std::env::current_exe().map_err(|source| ProbeError::kernel("tell where this program is", source))?;
    let others = kit.iter().map(|(kit, _)| *kit).chain(data.iter().map(|data| data.device)).map(Path::new);
    let root = mount_point(&[Path::new(image), &own].into_iter().chain(others).collect::<Vec<_>>())?;
    if let Some(data) = data {
        make(data.kind, data.device, data.size)?;
    }
    keep_mounts_apart()?;
    mount_image(image, is_device, KIND, root)?;
    for (kernels, place) in [("/sys", "sys"), ("/dev", "dev")] {
        let place = format!("{root}/{place}");
        mount_bind_recursive(kernels, &place).map_err(refused(format!("mount {kernels} at {place}")))?;
    }
    for place in ["tmp", "run"] {
        let place = format!("{root}/{place}");
        mount("tmpfs", &place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)
            .map_err(refused(format!("mount memory at {place}")))?;
    }
    if let Some((kit, is_device)) = kit {
        let place = format!("{root}{KIT}");
        files::create_dir_all(Path::new(&place))?;
        mount_image(kit, is_device, KIND_OF_KITS, &place)?;
    }
    let place = format!("{root}{PROBE}");
    files::write(Path::new(&place), "")?;
    mount_bind(&own, &place).map_err(refused(format!("mount {} at {place}", own.display())))?;
    if let Some(Data { kind, device, .. }) = data {
        let place = format!("{root}/data");
        mount_data(kind, device, &place)?;
    }
    rustix::process::chroot(root).map_err(refused(format!("change the root directory to {root}")))?;
    rustix::process::chdir("/").map_err(refused("change the directory to /".to_owned()))?;
    let is_at_gate = at_gate.is_some();
    if let Some((gate, patience)) = at_gate {
        files::create_dir_all(Path::new(GATE))?;
        gate.hold(Path::new(GATE), patience, given_up)?;
    }
    // Not before: mount(8) would be the first process of the namespace, and the kernel lets no other into it once that ended.
    // What a server leaves of System V's shared memory when it is killed ends with the namespace, too.
    // SAFETY: only children are in it.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID | UnshareFlags::NEWIPC) }
        .map_err(refused("make a process namespace".to_owned()))?;
    let mut child = Command::new(first);
    child.args(rest).env_clear().env("PATH", PATH).env("LC_ALL", "C").env(BEGUN, begun);
    if is_at_gate {
        child.env(gate::ENVIRONMENT, GATE);
    }
    // SAFETY: two system calls, and no memory is allocated on the way of success.
    unsafe {
        child.pre_exec(|| {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // Of the namespace that the child is the first process of.
            mount("proc", "/proc", "proc", MountFlags::empty(), None)?;
            Ok(())
        });
    }
    let status = child.status();
    let program = first.to_string_lossy().into_owned();
    let status = status.map_err(|source| ProbeError::Start { program, source })?;
    if data.is_some() {
        // The device is written out before the run counts as over.
        unmount("/data", UnmountFlags::empty()).map_err(refused("unmount /data".to_owned()))?;
    }
    Ok(status)
}

/// Nobody is left to tell the program to begin: it ends with this process.
#[allow(clippy::exit, reason = "the process waits for a program that would never end, and there is nothing to undo")]
fn given_up(why: String) {
    remark(&why);
    // As of a machine that refused.
    std::process::exit(3);
}

/// Keeps transparent huge pages from this process and its children (PR_SET_THP_DISABLE of prctl(2)).
///
/// # Errors
/// The kernel refuses.
pub fn refuse_huge_pages() -> Result<(), ProbeError> {
    rustix::thread::disable_transparent_huge_pages(true).map_err(refused("keep transparent huge pages away".to_owned()))
}

/// A device by the kernel alone; a file through a loop device.
fn mount_image(image: &str, is_device: bool, kind: &str, place: &str) -> Result<(), ProbeError> {
    if is_device {
        let flags = MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        return mount(image, place, kind, flags, None)
            .map_err(refused(format!("mount the image {image} at {place} as {kind}")));
    }
    mount_file(image, kind, "ro,noatime,nosuid,nodev", place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_there_is_an_error_that_names_it() {
        let error = run_in_image("/nonexistent/image", None, None, None, &["true".into()]).unwrap_err();
        assert!(crate::error::chain(&error).contains("find /nonexistent/image: No such file"), "{error}");
    }

    #[test]
    fn a_kit_that_is_not_there_is_an_error_before_anything_is_mounted_or_made() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let data = Data { kind: Kind::Ext4, device: "/nonexistent/device", size: None };
        let path = image.path().to_str().unwrap();
        let error = run_in_image(path, Some("/nonexistent/kit"), Some(data), None, &["true".into()]).unwrap_err();
        assert!(crate::error::chain(&error).contains("find /nonexistent/kit: No such file"), "{error}");
    }

    #[test]
    fn a_disk_is_found_by_its_serial_number_and_only_where_it_is_the_only_one() {
        let directory = tempfile::tempdir().unwrap();
        for (disk, serial) in [("vda", "nearmetal-region"), ("vdb", "nearmetal-loads"), ("vdc", "x"), ("vdd", "x")] {
            let place = directory.path().join("sys/block").join(disk);
            nearmetal_host::files::create_dir_all(&place).unwrap();
            nearmetal_host::files::write(&place.join("serial"), format!("{serial}\n")).unwrap();
        }
        let fs = HostFs::at(directory.path()).unwrap();
        assert_eq!(device(&fs, "serial:nearmetal-loads").unwrap(), "/dev/vdb");
        assert_eq!(device(&fs, "/dev/sda").unwrap(), "/dev/sda");
        for wrong in ["x", "nearmetal"] {
            let error = device(&fs, &format!("serial:{wrong}")).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("vda, vdb"), "{error}");
        }
    }

    #[test]
    fn a_run_begins_by_the_clock_that_programs_read() {
        let uptime = HostFs::live().read("/proc/uptime").unwrap();
        // Digits, not a float: 8602.95 times 100 is a little more than 860295.
        let before: u64 = uptime.split(' ').next().unwrap().replace('.', "").parse().unwrap();
        let begun: u64 = hundredths().parse().unwrap();
        assert!((before..before + 1000).contains(&begun), "{begun} {uptime}");
    }

    #[test]
    fn nothing_to_run_is_nothing_done() {
        assert!(run_in_image("/nonexistent/image", None, None, None, &[]).unwrap().success());
    }
}
