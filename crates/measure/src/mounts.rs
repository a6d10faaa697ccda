//! The file systems that KVM's counters are in, mounted for a measurement where nobody has mounted them.
//!
//! systemd mounts both on most hosts; a small one, or one that masks the units, has empty directories there. What is mounted
//! here is recorded first ([`Leftovers::mounts`]), so that `nearmetal rollback` unmounts it after a killed run.

use std::process::Command;

use nearmetal_host::HostFs;

use crate::engine::chain;
use crate::error::MeasureError;
use crate::leftovers::Leftovers;
use crate::program;

/// Kind and place: KVM's counters of each guest, and the kernel's tracepoints (Linux Documentation/filesystems/debugfs.rst,
/// Documentation/trace/ftrace.rst).
const NEEDED: [(&str, &str); 2] = [("debugfs", "/sys/kernel/debug"), ("tracefs", "/sys/kernel/tracing")];

/// Mounts what is missing. Nothing fails for it: the problems come back as sentences, and the figures are then left out.
pub(crate) fn mount_counters(fs: &HostFs, leftovers: &mut Leftovers) -> Vec<String> {
    // A capture has no kernel behind it that could mount anything.
    if !fs.takes_writes() {
        return Vec::new();
    }
    let mountinfo = fs.read("/proc/self/mountinfo").unwrap_or_default();
    let mut problems = Vec::new();
    for (kind, place) in missing(&mountinfo) {
        if let Err(error) = mount(kind, place, leftovers) {
            problems.push(format!("cannot mount {kind} on {place}, so its counters are left out: {}", chain(&error)));
        }
    }
    problems
}

fn mount(kind: &str, place: &str, leftovers: &mut Leftovers) -> Result<(), MeasureError> {
    leftovers.mounts.push(place.to_owned());
    leftovers.save()?;
    program::run(Command::new("mount").args(["-t", kind, kind, place])).map(drop)
}

/// Unmounts what [`mount_counters`] mounted, as far as it is still there.
///
/// # Errors
/// What `umount` says.
pub(crate) fn unmount_counters(fs: &HostFs, places: &[String]) -> Result<(), MeasureError> {
    if places.is_empty() {
        return Ok(());
    }
    let mountinfo = fs
        .read("/proc/self/mountinfo")
        .map_err(|source| MeasureError::Kernel { what: "cannot see what is mounted".to_owned(), source })?;
    let absent = missing(&mountinfo);
    // The last one first: the kernel mounts tracefs inside debugfs too, once somebody looks there.
    for place in places.iter().rev().filter(|place| !absent.iter().any(|(_, own)| own == place)) {
        // Lazily: somebody who looks at a counter at this moment keeps his file, and nothing stays mounted.
        program::run(Command::new("umount").args(["--lazy", place]))?;
    }
    Ok(())
}

/// What of [`NEEDED`] a mountinfo does not list: `36 35 0:7 / /sys/kernel/debug rw - debugfs debugfs rw` (proc(5)).
fn missing(mountinfo: &str) -> Vec<(&'static str, &'static str)> {
    let mounted = |kind: &str, place: &str| {
        mountinfo.lines().any(|line| {
            let Some((own, rest)) = line.split_once(" - ") else { return false };
            own.split(' ').nth(4) == Some(place) && rest.split(' ').next() == Some(kind)
        })
    };
    NEEDED.into_iter().filter(|(kind, place)| !mounted(kind, place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_mounted_at_its_place_is_missing() {
        let debug = "36 35 0:7 / /sys/kernel/debug rw,nosuid shared:5 - debugfs debugfs rw\n";
        let trace = "37 36 0:12 / /sys/kernel/tracing rw shared:6 - tracefs tracefs rw\n";
        let inside = "38 36 0:12 / /sys/kernel/debug/tracing rw shared:7 - tracefs tracefs rw\n";
        assert_eq!(missing(""), NEEDED);
        assert_eq!(missing(debug), [("tracefs", "/sys/kernel/tracing")]);
        assert_eq!(missing(&format!("{debug}{inside}")), [("tracefs", "/sys/kernel/tracing")]);
        assert_eq!(missing(&format!("{debug}{trace}")), []);
    }
}
