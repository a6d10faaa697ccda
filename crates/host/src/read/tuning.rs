//! Knobs of the kernel that tuning profiles turn, and the queues of block devices.

use crate::facts::Facts;
use crate::parse::{Parsed, bracketed, cpu_mask, flag, malformed, number, word};
use crate::{BlockQueue, DirtyLimit, GuestProcess, MemoryGroup, Tuning};

pub(super) fn read(facts: &mut Facts<'_>) -> Tuning {
    let mut dirty = |name: &str| DirtyLimit {
        ratio: facts.optional(&format!("/proc/sys/vm/{name}_ratio"), number),
        bytes: facts.optional(&format!("/proc/sys/vm/{name}_bytes"), number),
    };
    let (limit, background) = (dirty("dirty"), dirty("dirty_background"));
    Tuning {
        workqueue_cpus: facts.optional("/sys/devices/virtual/workqueue/cpumask", cpu_mask),
        compaction_proactiveness: facts.optional("/proc/sys/vm/compaction_proactiveness", number),
        hugetlb_optimize_vmemmap: facts.optional("/proc/sys/vm/hugetlb_optimize_vmemmap", flag),
        dirty: limit,
        dirty_background: background,
        busy_read: facts.optional("/proc/sys/net/core/busy_read", number),
        busy_poll: facts.optional("/proc/sys/net/core/busy_poll", number),
        link_power_policy: facts.optional("/sys/module/pcie_aspm/parameters/policy", bracketed),
    }
}

/// The queue of a whole device: its directory in /sys/class/block.
pub(super) fn queue(facts: &mut Facts<'_>, whole: &str) -> BlockQueue {
    // A SCSI drive has one directory there, named for its address.
    let drives = format!("{whole}/device/scsi_disk");
    let drive = facts.list(&drives).into_iter().next();
    BlockQueue {
        rq_affinity: facts.optional(&format!("{whole}/queue/rq_affinity"), number),
        nomerges: facts.optional(&format!("{whole}/queue/nomerges"), number),
        write_cache: facts.optional(&format!("{whole}/queue/write_cache"), write_cache),
        forced_unit_access: facts.optional(&format!("{whole}/queue/fua"), flag),
        drive_cache: drive.and_then(|drive| facts.optional(&format!("{drives}/{drive}/cache_type"), word)),
    }
}

pub(super) fn write_cache(text: &str) -> Parsed<String> {
    match text {
        "write back" | "write through" => Ok(text.to_owned()),
        _ => malformed("expected `write back` or `write through`"),
    }
}

/// Groups of the guests, by their processes.
pub(super) fn memory_groups(facts: &mut Facts<'_>, guests: &[GuestProcess]) -> Vec<MemoryGroup> {
    guests.iter().filter_map(|guest| memory_group(facts, guest.pid)).collect()
}

fn memory_group(facts: &mut Facts<'_>, pid: u32) -> Option<MemoryGroup> {
    let text = facts.text(&format!("/proc/{pid}/cgroup"))?;
    let own = scope(text.lines().find_map(|line| line.strip_prefix("0::"))?);
    // Without systemd the guest's group has no name of its own kind; groups of threads in it have no memory controller.
    let above = own.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty());
    for path in [Some(own), above].into_iter().flatten() {
        let root = format!("/sys/fs/cgroup{path}");
        if let Some(events) = facts.text(&format!("{root}/memory.events")) {
            let swap = facts.optional(&format!("{root}/memory.swap.current"), number);
            let of = |name| count(&events, name);
            let path = path.to_owned();
            return Some(MemoryGroup { pid, path, high: of("high"), max: of("max"), oom: of("oom"), swap });
        }
    }
    // The guest is just stopping, or the host's memory controller is of version 1.
    None
}

/// libvirt makes a scope for each guest and groups for its threads below: events of these are counted in the scope too.
pub(super) fn scope(path: &str) -> &str {
    match path.find(".scope/") {
        Some(end) => &path[..end + ".scope".len()],
        None => path.trim_end_matches('/'),
    }
}

/// `high 0` of a file with one counter a line.
pub(super) fn count(events: &str, name: &str) -> Option<u64> {
    events.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_thread_is_the_guests() {
        let guest = r"/machine.slice/machine-qemu\x2d1\x2ddb.scope";
        for tail in ["", "/libvirt/emulator", "/libvirt/vcpu0"] {
            assert_eq!(scope(&format!("{guest}{tail}")), guest);
        }
        assert_eq!((scope("/user.slice/vm"), scope("/")), ("/user.slice/vm", ""));
    }

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let events = "low 0\nhigh 3\nmax 1\noom 0\noom_kill 7\n";
        assert_eq!((count(events, "high"), count(events, "oom"), count(events, "swap")), (Some(3), Some(0), None));
        assert_eq!((count("high x", "high"), count("", "high")), (None, None));
        assert!(write_cache("write back").is_ok() && write_cache("none").is_err());
    }
}
