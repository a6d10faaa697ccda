//! Which memory a guest's vCPUs touch, over some seconds: not where its pages lie, but where its accesses go.
//!
//! A lab that counts tells the node of each access on each PU; a processor tells of each thread which of its loads another
//! node's memory answered ([`crate::PerfEvent`]).

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_counters::Reading;
use nearmetal_units::CpuSet;

use crate::guests;
use crate::{
    GuestProcess, HostFs, LabCountersError, NodeLoads, PerfError, PerfEvent, PerfScope, PerfSide, PusChanged,
    ReadError, ThreadRole, online_pus, same_pus,
};

/// Where accesses went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Went {
    /// How many to each node.
    Nodes(BTreeMap<u32, u64>),
    /// Loads that memory answered.
    Near {
        /// That of the PU's own node.
        local: u64,
        /// That of any other.
        remote: u64,
    },
}

impl Went {
    /// All of them.
    pub fn total(&self) -> u64 {
        match self {
            Self::Nodes(nodes) => nodes.values().fold(0, |sum, count| sum.saturating_add(*count)),
            Self::Near { local, remote } => local.saturating_add(*remote),
        }
    }
}

/// What vCPUs did whose accesses cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VcpuAccesses {
    /// Their numbers; several where they share PUs.
    pub vcpus: CpuSet,
    /// Where their accesses went.
    pub went: Went,
}

/// What a guest touched.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestAccesses {
    /// For how long it was watched.
    pub seconds: f64,
    /// By vCPU, in the order of their numbers.
    pub vcpus: Vec<VcpuAccesses>,
}

/// Why it cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The lab's counters say nothing.
    #[error(transparent)]
    Lab(#[from] LabCountersError),
    /// The processor's do not.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// The guest's threads cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The lab counts by PU, and those were not the guest's alone.
    #[error(
        "vCPUs of process {pid} ran too, and may use the same PUs ({pus}): whose accesses they were cannot be told"
    )]
    Shared {
        /// The other guest's QEMU.
        pid: u32,
        /// The PUs.
        pus: CpuSet,
    },
    /// PUs came or went.
    #[error(transparent)]
    Pus(#[from] PusChanged),
    /// Someone ended the counting.
    #[error("the lab ceased to count accesses to memory meanwhile: another program asked it to")]
    Ended,
}

/// A vCPU's thread.
#[derive(Debug, Clone)]
struct Vcpu {
    number: u32,
    thread: u32,
    pus: CpuSet,
}

/// Watches a guest for some time, which must run meanwhile.
///
/// # Errors
/// Nothing here tells where accesses go, or not whose they are.
pub fn guest_accesses(fs: &HostFs, guest: &GuestProcess, length: Duration) -> Result<GuestAccesses, AccessError> {
    let own = vcpus(fs, guest.pid)?;
    let online = online_pus(fs);
    let found = match fs.watch_lab_memory() {
        None => by_thread(fs, &own, length)?,
        Some(watch) => {
            // Until the end: dropped earlier, the lab would count no longer.
            let _watch = watch?;
            by_pu(fs, guest.pid, &own, length)?
        }
    };
    same_pus(online.as_ref(), online_pus(fs).as_ref())?;
    Ok(found)
}

fn vcpus(fs: &HostFs, pid: u32) -> Result<Vec<Vcpu>, ReadError> {
    let threads = guests::threads(fs, pid)?.into_iter();
    let vcpus = threads.filter_map(|thread| match thread.role {
        ThreadRole::Vcpu(number) => Some(Vcpu { number, thread: thread.id, pus: thread.affinity? }),
        _ => None,
    });
    Ok(vcpus.collect())
}

/// In a lab: the guests' accesses on the PUs of its vCPUs, where no other guest's ran.
fn by_pu(fs: &HostFs, pid: u32, own: &[Vcpu], length: Duration) -> Result<GuestAccesses, AccessError> {
    let all = own.iter().fold(CpuSet::new(), |all, vcpu| all.union(&vcpu.pus));
    let mut others = Vec::new();
    for other in guests::pids(fs)?.into_iter().filter(|other| *other != pid) {
        // One that ended meanwhile has none.
        let vcpus = vcpus(fs, other).unwrap_or_default().into_iter();
        others.extend(vcpus.filter(|vcpu| !vcpu.pus.is_disjoint(&all)).map(|vcpu| (other, vcpu.thread, vcpu.pus)));
    }
    let ran = |(pid, thread, _): &(u32, u32, CpuSet)| run_time(fs, *pid, *thread);
    let before: Vec<Option<u64>> = others.iter().map(ran).collect();
    let reading = || fs.lab_counters().unwrap_or(Err(nearmetal_counters::CounterError::Still.into()));
    let (began, first) = (Instant::now(), reading()?);
    sleep(length);
    let counted = reading()?.since(&first);
    let seconds = began.elapsed().as_secs_f64();
    for (other, before) in others.iter().zip(before) {
        if ran(other) != before {
            return Err(AccessError::Shared { pid: other.0, pus: other.2.intersection(&all) });
        }
    }
    let vcpus = groups(own).into_iter().map(|(vcpus, pus)| {
        let nodes = touched(&counted, &pus).ok_or(AccessError::Ended)?;
        Ok(VcpuAccesses { vcpus, went: Went::Nodes(nodes) })
    });
    Ok(GuestAccesses { seconds, vcpus: vcpus.collect::<Result<_, AccessError>>()? })
}

/// Time that a thread has run, ns (Documentation/scheduler/sched-stats.rst).
fn run_time(fs: &HostFs, pid: u32, thread: u32) -> Option<u64> {
    fs.read(&format!("/proc/{pid}/task/{thread}/schedstat")).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Accesses of guests on some PUs, by node.
fn touched(counted: &Reading, pus: &CpuSet) -> Option<BTreeMap<u32, u64>> {
    let mut nodes = BTreeMap::new();
    for (_, counts) in (0_u32..).zip(&counted.pus).filter(|(pu, _)| pus.contains(*pu)) {
        for (node, memory) in (0_u32..).zip(counts.memory.as_ref()?) {
            let sum: &mut u64 = nodes.entry(node).or_default();
            *sum = sum.saturating_add(memory.guest);
        }
    }
    nodes.retain(|_, count| *count > 0);
    Some(nodes)
}

/// vCPUs that share PUs, directly or through others, and those PUs.
fn groups(vcpus: &[Vcpu]) -> Vec<(CpuSet, CpuSet)> {
    let mut groups: Vec<(CpuSet, CpuSet)> = Vec::new();
    for vcpu in vcpus {
        let (mut numbers, mut pus) = (CpuSet::new(), vcpu.pus.clone());
        numbers.insert(vcpu.number);
        let (meet, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, own)| !own.is_disjoint(&pus));
        for (their_numbers, their_pus) in meet {
            (numbers, pus) = (numbers.union(&their_numbers), pus.union(&their_pus));
        }
        groups = apart;
        groups.push((numbers, pus));
    }
    groups.sort_by_key(|(numbers, _)| numbers.first());
    groups
}

/// By the processor's counters: each vCPU's own loads, in the guest alone.
fn by_thread(fs: &HostFs, own: &[Vcpu], length: Duration) -> Result<GuestAccesses, AccessError> {
    let mut counters = Vec::new();
    for vcpu in own {
        let count = |event| fs.count(event, PerfScope::Thread(vcpu.thread), PerfSide::Guest);
        counters.push((vcpu.number, count(PerfEvent::NodeLoads)?, count(PerfEvent::NodeLoadMisses)?));
    }
    let began = Instant::now();
    sleep(length);
    let seconds = began.elapsed().as_secs_f64();
    let mut vcpus = Vec::new();
    for (number, loads, misses) in &mut counters {
        let (loads, remote) = (loads.read()?, misses.read()?);
        let mut one = CpuSet::new();
        one.insert(*number);
        let went = Went::Near { local: NodeLoads::of(fs).own(loads, remote), remote };
        vcpus.push(VcpuAccesses { vcpus: one, went });
    }
    vcpus.sort_by_key(|own| own.vcpus.first());
    Ok(GuestAccesses { seconds, vcpus })
}

#[cfg(test)]
mod tests {
    use nearmetal_counters::{Class, Count, Place, empty_page, header, pu_word};

    use super::*;
    use crate::synthetic::counting_lab;
    use crate::{Entry, LAB_VENDOR, MemoryTree};

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn vcpus_that_share_pus_are_told_together() {
        let vcpu = |number, pus| Vcpu { number, thread: 100 + number, pus: set(pus) };
        let of = |vcpus: &[Vcpu]| -> Vec<String> {
            groups(vcpus).iter().map(|(numbers, pus)| format!("{numbers}: {pus}")).collect()
        };
        assert_eq!(of(&[vcpu(0, "2"), vcpu(1, "3")]), ["0: 2", "1: 3"]);
        assert_eq!(of(&[vcpu(0, "0-1"), vcpu(1, "4-5"), vcpu(2, "1,4"), vcpu(3, "7")]), ["0-2: 0-1,4-5", "3: 7"]);
    }

    #[test]
    fn accesses_of_guests_on_these_pus_count() {
        let mut words = empty_page(Count::Work, 2, 2);
        (words[header::WATCHES], words[header::WATCHING]) = (1, 1);
        let before = Reading::parse(&words).unwrap();
        words[pu_word(0, Place::Accesses(Class::Guest, 0))] = 5;
        words[pu_word(1, Place::Accesses(Class::Guest, 1))] = 7;
        words[pu_word(1, Place::Accesses(Class::User, 0))] = 90;
        let counted = |words: &[u64]| Reading::parse(words).unwrap().since(&before);
        assert_eq!(touched(&counted(&words), &set("1")), Some([(1, 7)].into()));
        assert_eq!(touched(&counted(&words), &set("0-1")), Some([(0, 5), (1, 7)].into()));
        words[header::WATCHING] = 0;
        assert_eq!(touched(&counted(&words), &set("1")), None, "someone ended it");
    }

    /// A host with a guest of one vCPU on PU 1, and another whose vCPU may use `pus`.
    fn host(words: Option<&[u64]>, pus: &str) -> HostFs {
        let mut tree = words.map_or(MemoryTree::new(), |words| counting_lab(LAB_VENDOR, words).unwrap());
        let mut put = |path: &str, text: &str| tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
        for (pid, pus) in [(7, "1"), (9, pus)] {
            put(&format!("/proc/{pid}/cmdline"), "qemu-system-x86_64\0-name\0guest=a\0");
            let task = format!("/proc/{pid}/task/{pid}1");
            put(&format!("{task}/comm"), "CPU 0/KVM\n");
            put(&format!("{task}/status"), &format!("Cpus_allowed_list:\t{pus}\n"));
            put(&format!("{task}/schedstat"), "100 0 0\n");
        }
        HostFs::of_tree(tree, "a host")
    }

    #[test]
    fn a_page_that_stands_still_has_no_accesses_and_a_capture_none_to_tell() {
        let guest = |fs: &HostFs| GuestProcess::read(fs, 7).unwrap();
        let words = empty_page(Count::Locality, 2, 2);
        for pus in ["0", "0-1"] {
            let fs = host(Some(&words), pus);
            let found = guest_accesses(&fs, &guest(&fs), Duration::ZERO).unwrap();
            let none = VcpuAccesses { vcpus: set("0"), went: Went::Nodes(BTreeMap::new()) };
            assert_eq!(found.vcpus, [none], "another guest that does not run disturbs nothing");
        }
        let fs = host(None, "0");
        let error = guest_accesses(&fs, &guest(&fs), Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "a capture counts no node-loads");
    }
}
