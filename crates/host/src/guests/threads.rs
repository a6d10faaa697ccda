//! Threads of a guest, what each does, and where it may run.

use nearmetal_units::{Bytes, CpuSet};

use super::scheduling;
use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, malformed, number};
use crate::{HostFs, ReadError, Thread, ThreadRole};

/// The longest name a thread can have (TASK_COMM_LEN - 1): a longer one was cut by the kernel.
const LONGEST_NAME: usize = 15;

/// Threads of a QEMU process by thread id, and the kernel threads of its vhost devices.
///
/// vhost workers are threads inside QEMU since Linux 6.4, and kernel threads with the same name before.
///
/// # Errors
/// No such process. A thread whose affinity cannot be read has `None` there.
pub fn threads(fs: &HostFs, pid: u32) -> Result<Vec<Thread>, ReadError> {
    let mut facts = Facts::new(fs);
    let mut threads = inside(&mut facts, pid)?;
    if !threads.iter().any(|thread| thread.role == ThreadRole::Vhost) {
        threads.extend(kernel_vhost_threads(&mut facts).into_iter().filter(|(owner, _)| *owner == pid).map(|(_, t)| t));
    }
    Ok(threads)
}

/// PUs a thread may run on: Cpus_allowed_list of /proc/PID/task/TID/status.
///
/// # Errors
/// No such thread, or a status that cannot be understood.
pub fn thread_affinity(fs: &HostFs, pid: u32, thread: u32) -> Result<CpuSet, ReadError> {
    affinity_in(fs, &format!("/proc/{pid}/task/{thread}/status"))
}

/// Threads of the process itself.
pub(crate) fn inside(facts: &mut Facts<'_>, pid: u32) -> Result<Vec<Thread>, ReadError> {
    let directory = format!("/proc/{pid}/task");
    let mut threads = Vec::new();
    for name in facts.fs.list(&directory)? {
        let Ok(id) = name.parse::<u32>() else { continue };
        // A thread that ended between the listing and here has no name any more.
        let Some(name) = facts.text(&format!("{directory}/{id}/comm")) else { continue };
        let name = name.trim_end_matches('\n').to_owned();
        let affinity = affinity_in(facts.fs, &format!("{directory}/{id}/status"));
        let scheduling = scheduling::read(facts.fs, &format!("{directory}/{id}/stat"));
        let role = role(&name, id == pid);
        let (affinity, scheduling) = (facts.noted(affinity), facts.noted(scheduling));
        threads.push(Thread { id, role, name, affinity, scheduling });
    }
    Ok(threads)
}

/// Kernel threads named `vhost-PID`, each with the pid of its owner.
pub(super) fn kernel_vhost_threads(facts: &mut Facts<'_>) -> Vec<(u32, Thread)> {
    let mut found = Vec::new();
    for entry in facts.list("/proc") {
        let Ok(id) = entry.parse::<u32>() else { continue };
        let Ok(name) = facts.fs.read(&format!("/proc/{id}/comm")) else { continue };
        let name = name.trim_end_matches('\n').to_owned();
        let Some(owner) = vhost_owner(&name) else { continue };
        let path = format!("/proc/{id}/status");
        let Some(status) = facts.text(&path) else { continue };
        // Kernel threads are children of kthreadd, process 2. Others may call themselves what they like.
        if field(&status, "PPid") != Some("2") {
            continue;
        }
        let affinity = parsed(&path, &status, allowed_cpus);
        let scheduling = scheduling::read(facts.fs, &format!("/proc/{id}/stat"));
        let (affinity, scheduling) = (facts.noted(affinity), facts.noted(scheduling));
        found.push((owner, Thread { id, name, role: ThreadRole::Vhost, affinity, scheduling }));
    }
    found
}

/// How long the thread of each vCPU was ready and had no PU. Documentation/scheduler/sched-stats.rst.
pub(super) fn vcpu_waits(facts: &mut Facts<'_>, pid: u32, threads: &[Thread]) -> Vec<(u32, u64)> {
    let mut waits = Vec::new();
    for thread in threads {
        let ThreadRole::Vcpu(vcpu) = thread.role else { continue };
        let wait = facts.optional(&format!("/proc/{pid}/task/{}/schedstat", thread.id), wait);
        waits.extend(wait.map(|wait| (vcpu, wait)));
    }
    waits
}

/// `RUN WAIT SLICES`: time on a PU and time ready without one in ns, and how often it got one.
pub(super) fn wait(text: &str) -> Parsed<u64> {
    let fields: Vec<u64> = text.split_ascii_whitespace().map(number).collect::<Parsed<_>>()?;
    match fields[..] {
        [_, wait, _] => Ok(wait),
        _ => malformed(format!("{} numbers where 3 were expected", fields.len())),
    }
}

/// VmSwap of a process.
///
/// # Errors
/// No such process, or a status that cannot be understood.
pub(super) fn swapped(fs: &HostFs, pid: u32) -> Result<Bytes, ReadError> {
    let path = format!("/proc/{pid}/status");
    parsed(&path, &fs.read(&path)?, swap_in)
}

pub(super) fn swap_in(status: &str) -> Parsed<Bytes> {
    amount(status, "VmSwap")
}

/// Memory that a process has in hugetlb pools (HugetlbPages), or outside of them (VmRSS). Unlike [`super::residency`], any user may read it.
///
/// # Errors
/// No such process, or a status that cannot be understood.
pub fn resident(fs: &HostFs, pid: u32, in_pools: bool) -> Result<Bytes, ReadError> {
    let path = format!("/proc/{pid}/status");
    parsed(&path, &fs.read(&path)?, |status| amount(status, if in_pools { "HugetlbPages" } else { "VmRSS" }))
}

fn amount(status: &str, name: &str) -> Parsed<Bytes> {
    match field(status, name).and_then(|value| value.strip_suffix(" kB")) {
        Some(kib) => number(kib).map(Bytes::from_kib),
        None => malformed(format!("there is no line `{name}:` in kB")),
    }
}

fn affinity_in(fs: &HostFs, path: &str) -> Result<CpuSet, ReadError> {
    parsed(path, &fs.read(path)?, allowed_cpus)
}

/// Cpus_allowed_list of a status file. An empty list is refused: a thread can always run somewhere.
pub(super) fn allowed_cpus(status: &str) -> Parsed<CpuSet> {
    let Some(list) = field(status, "Cpus_allowed_list") else {
        return malformed("there is no line `Cpus_allowed_list:`");
    };
    let set: CpuSet = list.parse()?;
    if set.is_empty() { malformed("Cpus_allowed_list is empty") } else { Ok(set) }
}

/// The value of a complete line `Name:\tvalue`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.split_inclusive('\n').find_map(|line| {
        let value = line.strip_suffix('\n')?.strip_prefix(name)?.strip_prefix(':')?;
        Some(value.trim())
    })
}

/// What a thread of this name does. QEMU names its threads if started with `-name …,debug-threads=on`, as libvirt does.
pub(super) fn role(name: &str, is_main: bool) -> ThreadRole {
    if is_main {
        return ThreadRole::Emulator;
    }
    let vcpu = name.strip_prefix("CPU ").and_then(|rest| rest.split_once('/'));
    if let Some(index) = vcpu.and_then(|(index, _)| plain_number(index)) {
        return ThreadRole::Vcpu(index);
    }
    if let Some(index) = name.strip_prefix("IO iothread").and_then(plain_number) {
        // At full length the number may have lost digits: no iothread rather than the wrong one.
        return if name.len() < LONGEST_NAME { ThreadRole::Iothread(index) } else { ThreadRole::Other };
    }
    if vhost_owner(name).is_some() {
        return ThreadRole::Vhost;
    }
    if name == "worker" { ThreadRole::Worker } else { ThreadRole::Other }
}

fn vhost_owner(name: &str) -> Option<u32> {
    plain_number(name.strip_prefix("vhost-")?)
}

fn plain_number(digits: &str) -> Option<u32> {
    crate::parse::number_u32(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn roles_follow_from_names() {
        for (name, expected) in [
            ("CPU 0/KVM", ThreadRole::Vcpu(0)),
            ("CPU 127/TCG", ThreadRole::Vcpu(127)),
            ("IO iothread1", ThreadRole::Iothread(1)),
            ("IO iothread999", ThreadRole::Iothread(999)),
            ("IO iothread1234", ThreadRole::Other), // 15 characters: perhaps iothread12345
            ("IO mon_iothread", ThreadRole::Other),
            ("vhost-1234", ThreadRole::Vhost),
            ("vhost-", ThreadRole::Other),
            ("worker", ThreadRole::Worker),
            ("vnc_worker", ThreadRole::Other),
            ("CPU x/KVM", ThreadRole::Other),
            ("CPU 0", ThreadRole::Other),
            ("qemu-system-x86", ThreadRole::Other),
        ] {
            assert_eq!(role(name, false), expected, "{name}");
        }
        assert_eq!(role("CPU 0/KVM", true), ThreadRole::Emulator);
    }

    #[test]
    fn affinity_is_a_complete_line_or_an_error() {
        let status = "Name:\tCPU 0/KVM\nPPid:\t1\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_cpus(status).unwrap().to_string(), "0-3");
        assert_eq!(field(status, "PPid"), Some("1"));
        for junk in ["", "Name:\tx\n", "Cpus_allowed_list:\t0-3", "Cpus_allowed_list:\t\n", "Cpus_allowed_list:\tff\n"]
        {
            assert!(allowed_cpus(junk).is_err(), "{junk:?}");
        }
    }

    #[test]
    fn waits_and_swap_are_whole_numbers() {
        assert_eq!(wait("912345 4711 20"), Ok(4711));
        assert_eq!(swap_in("Name:\tqemu\nVmSwap:\t    2048 kB\n"), Ok(Bytes::from_mib(2)));
        assert!(wait("1 2").is_err() && wait("1 x 3").is_err());
        assert!(swap_in("Name:\tqemu\n").is_err() && swap_in("VmSwap:\t1 MB\n").is_err());
        let both = "VmRSS:\t    4096 kB\nHugetlbPages:\t    2048 kB\n";
        assert_eq!(
            (amount(both, "VmRSS"), amount(both, "HugetlbPages")),
            (Ok(Bytes::from_mib(4)), Ok(Bytes::from_mib(2)))
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}\n?") {
            let _ = (role(&text, false), allowed_cpus(&text));
            let _ = allowed_cpus(&format!("Cpus_allowed_list:{text}\n"));
        }
    }
}
