//! What is taken of a machine now, read in little: for whoever looks at many hosts every few seconds.
//!
//! [`Host::read`](crate::Host::read) reads a hundred times as much, and guests' pages among it (numa_maps), for which the
//! kernel walks all their page tables and holds their memory map: no watch may cost guests that.

use nearmetal_units::{Bytes, CpuSet};

use crate::facts::Facts;
use crate::guests::{CommandLine, command_lines, threads_inside};
use crate::read::whole_machine;
use crate::{HostFs, ThreadRole, online_pus};

/// What is taken of a machine, and by which guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupancy {
    /// PUs that are online; `None`: the kernel does not tell.
    pub online: Option<CpuSet>,
    /// All memory.
    pub memory_total: Option<Bytes>,
    /// Memory for guests to come: what is free, what the kernel gives up for whoever needs it, and free pages of pools.
    pub memory_free: Option<Bytes>,
    /// QEMU processes that this user sees, by process id.
    pub guests: Vec<RunningGuest>,
}

/// A QEMU process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningGuest {
    /// Process id.
    pub pid: u32,
    /// Its name, where its command line has one.
    pub name: Option<String>,
    /// Its UUID, where its command line has one.
    pub uuid: Option<String>,
    /// Memory that it was given.
    pub memory: Option<Bytes>,
    /// Its vCPUs; `None`: no thread is named as vCPUs are, or its threads cannot be read.
    pub vcpus: Option<Vcpus>,
}

/// vCPU threads of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vcpus {
    /// How many.
    pub count: u32,
    /// How many of them float over all PUs that are online.
    pub floating: u32,
    /// PUs that the others are bound to.
    pub bound: CpuSet,
}

impl Occupancy {
    /// Reads it. Never fails: what cannot be read is `None`, and a guest that cannot be seen is not there.
    pub fn read(fs: &HostFs) -> Self {
        let mut facts = Facts::new(fs);
        let online = online_pus(fs);
        let whole = whole_machine(&mut facts, &online.clone().unwrap_or_default());
        let pools = whole.pools.iter().fold(Bytes::ZERO, |sum, pool| sum.plus(pool.size.bytes().times(pool.free)));
        let reclaimable = whole.memory_reclaimable.unwrap_or_default();
        let memory_free = whole.memory_free.map(|free| free.plus(reclaimable).plus(pools));
        let mut guests: Vec<RunningGuest> = command_lines(fs)
            .unwrap_or_default()
            .into_iter()
            .map(|(pid, line)| guest(&mut facts, pid, line, online.as_ref()))
            .collect();
        guests.sort_by_key(|guest| guest.pid);
        Self { online, memory_total: whole.memory_total, memory_free, guests }
    }
}

fn guest(facts: &mut Facts<'_>, pid: u32, line: CommandLine, online: Option<&CpuSet>) -> RunningGuest {
    let memory = line.guest_memory();
    RunningGuest { pid, name: line.name, uuid: line.uuid, memory, vcpus: vcpus(facts, pid, online) }
}

fn vcpus(facts: &mut Facts<'_>, pid: u32, online: Option<&CpuSet>) -> Option<Vcpus> {
    let mut vcpus = Vcpus::default();
    for thread in threads_inside(facts, pid).ok()? {
        if !matches!(thread.role, ThreadRole::Vcpu(_)) {
            continue;
        }
        let affinity = thread.affinity?;
        vcpus.count += 1;
        match online {
            Some(online) if online.is_subset(&affinity) => vcpus.floating += 1,
            Some(online) => vcpus.bound = vcpus.bound.union(&affinity.intersection(online)),
            None => vcpus.bound = vcpus.bound.union(&affinity),
        }
    }
    (vcpus.count > 0).then_some(vcpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree_text::unpack;

    const TREE: &str = "[/sys/devices/system/cpu]
online = 0-7
[/sys/kernel/mm/hugepages/hugepages-2048kB]
nr_hugepages = 512
free_hugepages = 256
surplus_hugepages = 0
[/proc]
meminfo =
| MemTotal:        8388608 kB
| MemFree:         2097152 kB
| Active(file):     524288 kB
";

    /// A guest with one vCPU on each of these lists of PUs.
    fn running(pid: u32, vcpus: &[&str]) -> String {
        let line = format!("cmdline : qemu-system-x86_64\\x00-name\\x00guest=g{pid}\\x00-m\\x00size=1024k\\x00\n");
        let mut text = format!("[/proc/{pid}]\n{line}");
        for (at, cpus) in vcpus.iter().enumerate() {
            let thread = pid as usize + 1 + at;
            text +=
                &format!("[/proc/{pid}/task/{thread}]\ncomm = CPU {at}/KVM\nstatus =\n| Cpus_allowed_list:\t{cpus}\n");
        }
        text
    }

    fn read(tree: &str) -> Occupancy {
        let directory = tempfile::tempdir().unwrap();
        unpack(tree, directory.path()).unwrap();
        Occupancy::read(&HostFs::at(directory.path()).unwrap())
    }

    #[test]
    fn free_memory_is_what_guests_to_come_can_have() {
        let seen = read(TREE);
        assert_eq!(seen.memory_total, Some(Bytes::from_mib(8192)));
        // 2 GiB free, 512 MiB of the page cache, 512 MiB of the pool.
        assert_eq!(seen.memory_free, Some(Bytes::from_mib(3072)));
        assert_eq!((seen.online.unwrap().to_string(), seen.guests), ("0-7".to_owned(), Vec::new()));
    }

    #[test]
    fn vcpus_are_bound_or_float_or_are_not_known() {
        let tree = TREE.to_owned() + &running(70, &["1", "2-3", "0-63"]) + &running(40, &[]);
        let seen = read(&tree);
        let of = |at: usize| (seen.guests[at].pid, seen.guests[at].name.as_deref(), seen.guests[at].memory);
        assert_eq!(of(0), (40, Some("g40"), Some(Bytes::from_mib(1))));
        assert_eq!(of(1), (70, Some("g70"), Some(Bytes::from_mib(1))));
        assert_eq!(seen.guests[0].vcpus, None);
        let vcpus = seen.guests[1].vcpus.clone().unwrap();
        assert_eq!((vcpus.count, vcpus.floating, vcpus.bound.to_string().as_str()), (3, 1, "1-3"));
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_unknown() {
        let seen = read("[/proc]\nversion = 6\n");
        assert_eq!((seen.online, seen.memory_total, seen.memory_free), (None, None, None));
    }
}
