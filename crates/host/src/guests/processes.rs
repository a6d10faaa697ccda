//! Finding QEMU processes and reading one.

use std::collections::BTreeMap;

use super::command_line::CommandLine;
use super::owner::is_trusted;
use super::{residency, threads, time_groups};
use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, malformed, number};
use crate::{GuestProcess, HostFs, ReadError, Thread, ThreadRole};

impl GuestProcess {
    /// Reads one QEMU process. What this user may not read of it is `None`, or said in `residency_error`.
    ///
    /// # Errors
    /// No such process, or not QEMU.
    pub fn read(fs: &HostFs, pid: u32) -> Result<Self, ReadError> {
        let mut facts = Facts::new(fs);
        let line = command_line(fs, pid)?
            .ok_or_else(|| ReadError::unreadable(&format!("/proc/{pid}/cmdline"), "", "not a command line of QEMU"))?;
        let mut guest = read_inside(&mut facts, pid, &line)?;
        if needs_kernel_threads(&guest) {
            let found = threads::kernel_vhost_threads(&mut facts);
            guest.threads.extend(found.into_iter().filter(|(owner, _)| *owner == pid).map(|(_, thread)| thread));
        }
        guest.time_groups = time_groups::read(&mut facts, pid, &guest.threads);
        Ok(guest)
    }
}

/// Process ids of all QEMU processes this user can see.
///
/// # Errors
/// /proc cannot be listed.
pub fn pids(fs: &HostFs) -> Result<Vec<u32>, ReadError> {
    Ok(command_lines(fs)?.into_iter().map(|(pid, _)| pid).collect())
}

/// QEMU processes of users who run this one's guests ([`is_trusted`]), with their command lines.
///
/// # Errors
/// /proc cannot be listed.
pub fn trusted(fs: &HostFs) -> Result<Vec<(u32, CommandLine)>, ReadError> {
    let mut all = command_lines(fs)?;
    all.retain(|(pid, line)| is_trusted(fs, *pid, line.name.as_deref()));
    Ok(all)
}

/// The QEMU process of the domain with this UUID, `None` if it does not run here. A process that says so and belongs to a user who
/// runs no guests of this one's ([`is_trusted`]) is not it: anybody can give a process any command line.
///
/// # Errors
/// /proc cannot be listed, or the process ended while it was read.
pub fn find(fs: &HostFs, uuid: &str) -> Result<Option<GuestProcess>, ReadError> {
    pid_of(fs, uuid)?.map(|pid| GuestProcess::read(fs, pid)).transpose()
}

/// The process id of the domain with this UUID, as [`find`] finds it. Reads command lines and owners alone.
///
/// # Errors
/// /proc cannot be listed.
pub fn pid_of(fs: &HostFs, uuid: &str) -> Result<Option<u32>, ReadError> {
    pid_where(fs, uuid, |pid, line| is_trusted(fs, pid, line.name.as_deref()))
}

/// The process of that user's which is QEMU's of the domain with this UUID. In a capture also one whose user it leaves out.
///
/// # Errors
/// /proc cannot be listed.
pub(super) fn pid_of_user(fs: &HostFs, uuid: &str, uid: u32) -> Result<Option<u32>, ReadError> {
    pid_where(fs, uuid, |pid, _| is_of(fs, pid, uid))
}

fn is_of(fs: &HostFs, pid: u32, uid: u32) -> bool {
    super::owner::uid(fs, pid).map_or(!fs.is_live(), |found| found == uid)
}

/// Whether the guest with a UUID runs, as a process of the user whose guest it is; root's is libvirt's. One look at /proc tells of all.
///
/// # Errors
/// /proc cannot be listed.
pub fn running(fs: &HostFs) -> Result<impl Fn(&str, u32) -> bool, ReadError> {
    let all = command_lines(fs)?;
    Ok(move |uuid: &str, uid: u32| {
        let is_its = |pid: u32, line: &CommandLine| match uid {
            0 => is_trusted(fs, pid, line.name.as_deref()),
            uid => is_of(fs, pid, uid),
        };
        all.iter().any(|(pid, line)| has(line, uuid) && is_its(*pid, line))
    })
}

/// The process which is QEMU's of a guest that this process has started itself: root's guests run as whoever libvirt lets them, and
/// anybody else's as himself.
///
/// # Errors
/// /proc cannot be listed.
pub fn own_pid_of(fs: &HostFs, uuid: &str) -> Result<Option<u32>, ReadError> {
    match rustix::process::geteuid().as_raw() {
        0 => pid_of(fs, uuid),
        own => pid_of_user(fs, uuid, own),
    }
}

fn pid_where(fs: &HostFs, uuid: &str, counts: impl Fn(u32, &CommandLine) -> bool) -> Result<Option<u32>, ReadError> {
    Ok(command_lines(fs)?.into_iter().find(|(pid, line)| has(line, uuid) && counts(*pid, line)).map(|(pid, _)| pid))
}

fn has(line: &CommandLine, uuid: &str) -> bool {
    line.uuid.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(uuid))
}

/// When a process started, in clock ticks after boot (field 22 of /proc/PID/stat).
///
/// # Errors
/// No such process.
pub fn start_time(fs: &HostFs, pid: u32) -> Result<u64, ReadError> {
    let path = format!("/proc/{pid}/stat");
    parsed(&path, &fs.read(&path)?, |text| Ok(stat(text)?.start))
}

/// Whether the process that started then still runs: not gone, not a zombie, and its pid not given to another.
pub fn is_alive(fs: &HostFs, pid: u32, start: u64) -> bool {
    let stat = fs.read(&format!("/proc/{pid}/stat")).ok().and_then(|text| stat(&text).ok());
    stat.is_some_and(|stat| stat.start == start && !matches!(stat.state, 'Z' | 'X' | 'x'))
}

/// Every guest, with one pass over the kernel's vhost threads for all of them.
pub(crate) fn read_all(facts: &mut Facts<'_>) -> Vec<GuestProcess> {
    let lines = command_lines(facts.fs);
    let mut guests = Vec::new();
    for (pid, line) in facts.noted(lines).unwrap_or_default() {
        let guest = read_inside(facts, pid, &line);
        guests.extend(facts.noted(guest));
    }
    if guests.iter().any(needs_kernel_threads) {
        let mut owned: BTreeMap<u32, Vec<Thread>> = BTreeMap::new();
        for (owner, thread) in threads::kernel_vhost_threads(facts) {
            owned.entry(owner).or_default().push(thread);
        }
        for guest in &mut guests {
            guest.threads.extend(owned.remove(&guest.pid).unwrap_or_default());
        }
    }
    for guest in &mut guests {
        guest.time_groups = time_groups::read(facts, guest.pid, &guest.threads);
    }
    guests
}

fn needs_kernel_threads(guest: &GuestProcess) -> bool {
    !guest.threads.iter().any(|thread| thread.role == ThreadRole::Vhost)
}

fn command_line(fs: &HostFs, pid: u32) -> Result<Option<CommandLine>, ReadError> {
    Ok(CommandLine::parse(&fs.read_bytes(&format!("/proc/{pid}/cmdline"))?))
}

/// Every QEMU process with its command line.
pub(crate) fn command_lines(fs: &HostFs) -> Result<Vec<(u32, CommandLine)>, ReadError> {
    let mut found = Vec::new();
    for name in fs.list("/proc")? {
        let Ok(pid) = name.parse::<u32>() else { continue };
        // Processes end during the scan, and /proc may hide other users' (hidepid).
        if let Ok(Some(line)) = command_line(fs, pid) {
            found.push((pid, line));
        }
    }
    Ok(found)
}

fn read_inside(facts: &mut Facts<'_>, pid: u32, line: &CommandLine) -> Result<GuestProcess, ReadError> {
    let threads = threads::inside(facts, pid)?;
    let (residency, residency_error) = match residency::of_command_line(facts.fs, pid, line) {
        Ok(residency) => (residency, None),
        Err(error) => {
            let reason = error.to_string();
            facts.note(error);
            (Vec::new(), Some(reason))
        }
    };
    let start = start_time(facts.fs, pid);
    let vcpu_waits = threads::vcpu_waits(facts, pid, &threads);
    let swapped = threads::swapped(facts.fs, pid);
    Ok(GuestProcess {
        pid,
        start_time: facts.noted(start),
        name: line.name.clone(),
        uuid: line.uuid.clone(),
        memory: line.guest_memory(),
        threads,
        residency,
        residency_error,
        swapped: facts.noted(swapped),
        vcpu_waits,
        // With the kernel's vhost threads, which are not known yet.
        time_groups: Vec::new(),
    })
}

pub(super) struct Stat {
    state: char,
    start: u64,
}

/// Fields 3 and 22. The name in field 2 may hold spaces and parentheses, so counting starts after the last one.
pub(super) fn stat(text: &str) -> Parsed<Stat> {
    let Some((_, rest)) = text.rsplit_once(") ") else { return malformed("expected a name in parentheses") };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().and_then(|word| word.chars().next());
    match (state, fields.nth(18)) {
        (Some(state), Some(start)) => Ok(Stat { state, start: number(start)? }),
        _ => malformed("expected at least 22 fields"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_names_with_parentheses() {
        let text = "4711 (CPU 0) (x) S 1 4711 4711 0 -1 138412352 1 2 3 4 5 6 7 8 20 0 9 0 123456 2 3 4\n";
        let stat = stat(text).unwrap();
        assert_eq!((stat.state, stat.start), ('S', 123_456));
    }

    #[test]
    fn a_cut_stat_is_refused() {
        for junk in ["", "4711", "4711 (x) S 1 2 3", "1 (x) S 1 4711 4711 0 -1 1 1 2 3 4 5 6 7 8 20 0 9 0 soon"] {
            assert!(stat(junk).is_err(), "{junk}");
        }
    }
}
