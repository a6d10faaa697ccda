//! Who else ran on the PUs of a sample while it was measured: by the scheduler's own account, on every machine.
//!
//! A neighbour on the slice makes a guest slower, and no repetition averages it away. All threads of programs are read twice
//! (proc_pid_stat(5)), as the costs are; what ran meanwhile, was on one of the sample's PUs at either end, and belongs neither
//! to the guests measured nor to nearmetal itself is a neighbour. A thread that came to these PUs and left them in between is
//! not seen, nor are the kernel's own threads, which work for the guests too.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_host::{HostFs, online_pus};

use super::snapshot::{NANOSECONDS_PER_TICK, now};
use super::target::Target;

/// The part of one PU's time that neighbours may take together: less is what any host does now and then.
const MOST: f64 = 0.1;

/// Flag of the kernel's own threads (Linux include/linux/sched.h, `PF_KTHREAD`).
const KERNEL: u64 = 0x0020_0000;

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    process: u32,
    parent: u32,
    name: String,
    /// Time it ran, in ns.
    ran: u64,
    /// The PU it ran on last.
    pu: u32,
    threads: u64,
    is_kernel: bool,
}

impl Thread {
    /// From /proc/PID/stat or /proc/PID/task/TID/stat.
    fn parse(process: u32, stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        // The name, in brackets, is the second field and may hold anything; the third is the first behind it.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)?.saturating_add(field(15)?);
        Some(Self {
            process,
            parent: u32::try_from(field(4)?).ok()?,
            name: before.split_once('(')?.1.to_owned(),
            ran: ticks.saturating_mul(NANOSECONDS_PER_TICK),
            pu: u32::try_from(field(39)?).ok()?,
            threads: field(20)?,
            is_kernel: field(9)? & KERNEL != 0,
        })
    }
}

/// All threads of programs at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Threads {
    /// When, in ns on a clock that only goes forward.
    taken: u64,
    /// By thread id.
    all: BTreeMap<u32, Thread>,
}

impl Threads {
    /// Reads them; one that ends meanwhile is left out.
    pub(super) fn read(fs: &HostFs) -> Self {
        let mut all = BTreeMap::new();
        let numbers = |names: Vec<String>| names.into_iter().filter_map(|name| name.parse::<u32>().ok());
        for process in numbers(fs.list("/proc").unwrap_or_default()) {
            let read = |path: String| Thread::parse(process, &fs.read(&path).ok()?);
            let Some(leader) = read(format!("/proc/{process}/stat")).filter(|thread| !thread.is_kernel) else {
                continue;
            };
            // The leader's times are those of all its threads.
            if leader.threads <= 1 {
                all.insert(process, leader);
                continue;
            }
            let tasks = format!("/proc/{process}/task");
            for thread in numbers(fs.list(&tasks).unwrap_or_default()) {
                all.extend(read(format!("{tasks}/{thread}/stat")).map(|one| (thread, one)));
            }
        }
        Self { taken: now().as_nanos() as u64, all }
    }

    /// The process and all that it started.
    fn family(&self, process: u32) -> BTreeSet<u32> {
        let mut family = BTreeSet::from([process]);
        loop {
            let children = self.all.values().filter(|thread| family.contains(&thread.parent)).map(|one| one.process);
            let more: BTreeSet<u32> = children.filter(|process| !family.contains(process)).collect();
            if more.is_empty() {
                return family;
            }
            family.extend(more);
        }
    }

    /// Who ran on the target's PUs since `before`, in words; `None`: nobody, or less than counts. `own` is the process that
    /// measures. What is pinned nowhere has no PUs of its own.
    pub(super) fn neighbours(&self, before: &Self, fs: &HostFs, target: &Target, own: u32) -> Option<String> {
        let length = self.taken.saturating_sub(before.taken);
        if target.floats || target.roams || length == 0 {
            return None;
        }
        let pus = target.undisturbed(&online_pus(fs).unwrap_or_default());
        let family = self.family(own);
        let foreign = |process: u32| !family.contains(&process) && !target.guests.contains(&process);
        let mut found: Vec<(u64, &Thread)> = Vec::new();
        for (id, now) in self.all.iter().filter(|(_, thread)| foreign(thread.process)) {
            let then = before.all.get(id);
            let here = pus.contains(now.pu) || then.is_some_and(|then| pus.contains(then.pu));
            let ran = now.ran.saturating_sub(then.map_or(0, |then| then.ran));
            if here && ran > 0 && !is_a_clone(fs, now.process) {
                found.push((ran, now));
            }
        }
        let all: u64 = found.iter().map(|(ran, _)| *ran).sum();
        let part = |ran: u64| ran as f64 / length as f64;
        let (ran, most) = found.iter().max_by_key(|(ran, _)| *ran)?;
        (part(all) >= MOST).then(|| {
            let others = if found.len() > 1 { format!(", and {} more", found.len() - 1) } else { String::new() };
            format!(
                "`{}` (process {}) ran for {:.0} % of the time, seen on PU {}{others}: {pus} are the sample's own",
                most.name,
                most.process,
                part(*ran) * 100.0,
                most.pu
            )
        })
    }
}

/// Whether a process is the QEMU of one of nearmetal's clones, which all wait while one of them is measured.
fn is_a_clone(fs: &HostFs, process: u32) -> bool {
    let line = fs.read_bytes(&format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    arguments.any(|argument| argument.starts_with("guest=") && argument.contains("nearmetal-"))
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};
    use proptest::prelude::*;

    use super::*;

    /// Line of a thread that ran for so many ticks.
    fn stat(name: &str, (parent, threads, flags): (u32, u64, u64), ticks: u64, pu: u32) -> String {
        let fields = (3..=52).map(|field| match field {
            3 => "R".to_owned(),
            4 => parent.to_string(),
            9 => flags.to_string(),
            14 => ticks.to_string(),
            20 => threads.to_string(),
            39 => pu.to_string(),
            _ => "0".to_owned(),
        });
        format!("1 ({name}) {}\n", fields.collect::<Vec<_>>().join(" "))
    }

    /// A host on which the measuring process 50, its fio 51, the guest 70 with a vCPU 71, and others ran `ticks` long.
    fn host(ticks: u64, others: &[(u32, &str, u32)]) -> HostFs {
        let mut tree = MemoryTree::new();
        let mut put = |path: String, text: &str| tree.put(&path, Entry::File(text.as_bytes().to_vec())).unwrap();
        put("/proc/2/stat".into(), &stat("kworker", (0, 1, KERNEL), ticks, 1));
        put("/proc/50/stat".into(), &stat("nearmetal", (9, 1, 0), ticks, 1));
        put("/proc/51/stat".into(), &stat("fio (x) y", (50, 1, 0), ticks, 1));
        put("/proc/70/stat".into(), &stat("qemu", (1, 2, 0), ticks, 1));
        put("/proc/70/task/70/stat".into(), &stat("qemu", (1, 2, 0), 0, 1));
        put("/proc/70/task/71/stat".into(), &stat("CPU 0/KVM", (1, 2, 0), ticks, 1));
        put("/proc/80/stat".into(), &stat("qemu", (1, 1, 0), ticks, 1));
        put("/proc/80/cmdline".into(), "qemu\0-name\0guest=web1-nearmetal-as-found\0");
        for (process, name, pu) in others {
            put(format!("/proc/{process}/stat"), &stat(name, (1, 1, 0), ticks, *pu));
            put(format!("/proc/{process}/cmdline"), "qemu\0-name\0guest=db\0");
        }
        HostFs::of_tree(tree, "a host")
    }

    /// What is said of so many ticks in a second.
    fn said(ticks: u64, others: &[(u32, &str, u32)], target: &Target) -> Option<String> {
        let (before, after) = (host(0, others), host(ticks, others));
        let mut now = Threads::read(&after);
        let then = Threads { taken: 0, ..Threads::read(&before) };
        now.taken = 1_000_000_000;
        now.neighbours(&then, &after, target, 50)
    }

    fn target() -> Target {
        Target { guests: vec![70], slice: "1".parse().unwrap(), on_top: "2".parse().unwrap(), ..Target::default() }
    }

    #[test]
    fn the_measured_the_measuring_and_its_clones_are_no_neighbours() {
        assert_eq!(said(100, &[], &target()), None);
        let bare = Target { guests: vec![], ..target() };
        let words = said(100, &[], &bare).unwrap();
        assert!(words.contains("`CPU 0/KVM` (process 70)"), "{words}");
    }

    #[test]
    fn who_else_ran_is_named_with_how_long_and_where() {
        let words = said(34, &[(90, "stress", 2), (91, "elsewhere", 3)], &target()).unwrap();
        assert_eq!(words, "`stress` (process 90) ran for 34 % of the time, seen on PU 2: 1-2 are the sample's own");
        let two = said(6, &[(90, "stress", 2), (91, "dd", 1)], &target()).unwrap();
        assert!(two.contains("and 1 more"), "they count together: {two}");
    }

    #[test]
    fn a_little_and_a_guest_that_is_pinned_nowhere_are_no_matter() {
        assert_eq!(said(9, &[(90, "sshd", 1)], &target()), None);
        assert_eq!(said(90, &[(90, "stress", 1)], &Target { floats: true, ..target() }), None);
        assert_eq!(said(90, &[(90, "stress", 1)], &Target { roams: true, ..target() }), None);
    }

    proptest! {
        #[test]
        fn no_line_of_the_kernel_panics(line in ".{0,200}", number in any::<u64>()) {
            let _ = Thread::parse(1, &line);
            let _ = Thread::parse(1, &format!("1 (a) R {}", format!("{number} ").repeat(50)));
        }
    }
}
