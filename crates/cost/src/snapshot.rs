//! One reading of all counters.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearmetal_host::{Host, HostFs, ThreadRole, disk_counters, guests, online_pus};
use nearmetal_units::{Bytes, CpuSet};

use super::pu_time::busy_ticks;
use super::silicon::Silicon;
use super::target::{Requests, Target};
use super::{Cost, interrupts};

/// Where KVM keeps its counters of each guest (Linux Documentation/virt/kvm, `kvm_vm_debugfs`).
const KVM: &str = "/sys/kernel/debug/kvm";

/// A tick of /proc/stat and /proc/PID/stat: USER_HZ is 100 on every architecture Linux has KVM on.
pub(super) const NANOSECONDS_PER_TICK: u64 = 10_000_000;

/// Sectors of a disk's counters, whatever its own are (Documentation/block/stat.rst).
const SECTOR: u64 = 512;

/// The distance of a node to itself (ACPI 6.5, ch. 5.2.17, SLIT).
const LOCAL: u32 = 10;

/// Modelled time in which PUs execute.
pub(super) const EXECUTING: &str = "executing";
/// And in which they wait for memory.
pub(super) const WAITING: &str = "waiting";

pub(super) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec.max(0) as u32)
}

/// The host's clock: since 1970.
pub(super) fn of_the_day() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Bytes that requests have moved until now: those of the devices on bare metal, those of QEMU (/proc/PID/io, proc(5)) for
/// guests. `None` where one of them does not tell.
pub(super) fn moved(fs: &HostFs, target: &Target, requests: &Requests) -> Option<[u64; 2]> {
    let mut sum = [0_u64; 2];
    if target.is_bare() {
        for device in &requests.devices {
            let disk = disk_counters(fs, device).ok()?;
            sum[1] =
                sum[1].saturating_add(disk.sectors_read.saturating_add(disk.sectors_written).saturating_mul(SECTOR));
        }
        return (!requests.devices.is_empty()).then_some(sum);
    }
    for pid in &target.guests {
        let text = fs.read(&format!("/proc/{pid}/io")).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        sum[0] = sum[0].saturating_add(field("rchar:")?.saturating_add(field("wchar:")?));
        sum[1] = sum[1].saturating_add(field("read_bytes:")?.saturating_add(field("write_bytes:")?));
    }
    Some(sum)
}

/// Requests of this size between two readings, by the way that moved more: what goes as a system call may become block I/O,
/// at once, later or never.
pub(super) fn requests_between(before: Option<[u64; 2]>, after: Option<[u64; 2]>, size: Bytes) -> Option<f64> {
    let (before, after) = (before?, after?);
    let moved = before.iter().zip(after).filter_map(|(before, after)| after.checked_sub(*before)).max()?;
    (size.get() > 0).then(|| moved as f64 / size.get() as f64)
}

/// Distances of a host, from PU to node.
pub fn distances(host: &Host) -> BTreeMap<(u32, u32), u32> {
    let mut all = BTreeMap::new();
    for node in &host.nodes {
        for pu in node.cpus.iter() {
            all.extend(node.distances.iter().map(|(to, far)| ((pu, *to), *far)));
        }
    }
    all
}

/// Counters at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// When, on a clock that only goes forward.
    pub(super) taken: Duration,
    /// When the requests, and what a lab's processors counted, were read: nearest to the middle of the two readings, so that
    /// the work of reading all else is not counted.
    pub(super) counted: Duration,
    /// Bytes that were moved by requests until then: as system calls and as block I/O, of which a way uses one or both.
    pub(super) moved: Option<[u64; 2]>,
    /// Values since some fixed beginning.
    pub(super) counters: BTreeMap<(Cost, String), u64>,
    /// The PUs that were online.
    pub(super) online: Option<CpuSet>,
    /// ns of all PUs since boot in which they were busy.
    pub(super) busy: Option<u64>,
    /// ns of all threads of each guest's QEMU, by its process.
    pub(super) of_guests: BTreeMap<u32, u64>,
    /// What could not be read, and why.
    pub(super) unknown: Vec<String>,
}

/// Which of the two readings it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The first.
    First,
    /// The second.
    Second,
}

impl Snapshot {
    /// Reads all counters; what cannot be read is in `unknown`.
    pub(super) fn take(fs: &HostFs, target: &Target, silicon: &mut Silicon, which: Reading) -> Self {
        let mut snapshot = Self { online: online_pus(fs), ..Self::default() };
        if which == Reading::Second {
            snapshot.nearest(fs, target, silicon);
        }
        snapshot.rest(fs, target);
        snapshot.taken = now();
        if which == Reading::First {
            snapshot.nearest(fs, target, silicon);
        }
        snapshot
    }

    fn nearest(&mut self, fs: &HostFs, target: &Target, silicon: &mut Silicon) {
        self.moved = target.requests.as_ref().and_then(|requests| moved(fs, target, requests));
        self.lab(fs, target);
        let (counted, unknown) = silicon.read();
        self.counters.extend(counted);
        self.unknown.extend(unknown);
        self.counted = now();
    }

    fn rest(&mut self, fs: &HostFs, target: &Target) {
        // The guests last and first: their threads work all the time, and the moment is theirs.
        match fs.read("/proc/interrupts") {
            Ok(text) => {
                let lines = interrupts::parse(&text);
                self.add(Cost::Interrupts, "all", lines.values().sum());
                lines.into_iter().for_each(|(line, count)| self.add(Cost::Interrupts, &line, count));
            }
            Err(error) => self.unknown.push(format!("interrupts: {error}")),
        }
        match fs.read("/proc/stat") {
            Ok(text) => self.processors(&text, target),
            Err(error) => self.unknown.push(format!("time of the PUs: {error}")),
        }
        for guest in &target.guests {
            self.threads(fs, *guest);
            self.exits(fs, *guest);
        }
    }

    fn add(&mut self, cost: Cost, name: &str, value: u64) {
        let slot = self.counters.entry((cost, name.to_owned())).or_default();
        *slot = slot.saturating_add(value);
    }

    /// /proc/stat, proc_stat(5): busy time of the PUs, and `ctxt`.
    fn processors(&mut self, text: &str, target: &Target) {
        let switches = text.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok());
        switches.into_iter().for_each(|count| self.add(Cost::Switches, "host-all", count));
        for (pu, busy) in busy_ticks(text) {
            let busy = busy.saturating_mul(NANOSECONDS_PER_TICK);
            self.add(Cost::Cpu, target.place(pu), busy);
            self.busy = Some(self.busy.unwrap_or_default().saturating_add(busy));
        }
    }

    /// What the processors of a lab counted: instructions of all, and accesses of the guests, or of programs on the slice
    /// where bare metal is measured.
    fn lab(&mut self, fs: &HostFs, target: &Target) {
        let reading = match fs.lab_counters() {
            None => return,
            Some(Err(error)) => return self.unknown.push(format!("instructions: {error}")),
            Some(Ok(reading)) => reading,
        };
        self.modelled(target, &reading);
        let bare = target.is_bare();
        for (pu, counts) in (0_u32..).zip(&reading.pus) {
            self.add(Cost::Work, target.place(pu), counts.instructions);
            self.add(Cost::Work, "in-guest", counts.in_guest);
            self.add(Cost::Work, "world-switches", counts.world_switches);
            if !reading.watching || (bare && !target.slice.contains(pu)) {
                continue;
            }
            for (node, memory) in (0_u32..).zip(counts.memory.iter().flatten()) {
                let accesses = if bare { memory.user } else { memory.guest };
                let Some(far) = target.distances.get(&(pu, node)) else { continue };
                self.add(Cost::Locality, "accesses", accesses);
                self.add(Cost::Locality, "local", if *far == LOCAL { accesses } else { 0 });
                self.add(Cost::Locality, "distance", accesses.saturating_mul(u64::from(*far)));
            }
        }
    }

    /// What the machine's model makes of all that its PUs executed, and of what their modelled caches missed.
    fn modelled(&mut self, target: &Target, reading: &nearmetal_counters::Reading) {
        let model = match target.time_model.as_ref().filter(|_| reading.watching) {
            None => return,
            Some(Err(error)) => return self.unknown.push(format!("modelled time: {error}")),
            Some(Ok(model)) => model,
        };
        for (pu, counts) in (0_u32..).zip(&reading.pus) {
            self.add(Cost::Modelled, EXECUTING, model.executing(counts.instructions));
            for (node, memory) in (0_u32..).zip(counts.memory.iter().flatten()) {
                let Some(far) = target.distances.get(&(pu, node)) else { continue };
                self.add(Cost::Modelled, WAITING, model.waiting(memory.misses, *far));
            }
        }
    }

    /// CPU time and context switches of a QEMU process by what its threads do.
    fn threads(&mut self, fs: &HostFs, pid: u32) {
        let threads = match guests::threads(fs, pid) {
            Ok(threads) => threads,
            Err(error) => return self.unknown.push(format!("threads of process {pid}: {error}")),
        };
        for thread in threads {
            let role = role_name(&thread.role);
            // vhost workers before Linux 6.4 are no threads of QEMU, and have a directory of their own.
            let own = format!("/proc/{pid}/task/{}", thread.id);
            let directory = if fs.exists(&own) { own } else { format!("/proc/{}", thread.id) };
            // `RUN WAIT SLICES` in ns, Documentation/scheduler/sched-stats.rst.
            let run = fs.read(&format!("{directory}/schedstat")).ok();
            let run = run.and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
            if let Some(run) = run {
                self.add(Cost::Cpu, role, run);
                let all = self.of_guests.entry(pid).or_default();
                *all = all.saturating_add(run);
            }
            if let ThreadRole::Vcpu(_) = thread.role {
                let guest = fs.read(&format!("{directory}/stat")).ok().and_then(|text| guest_time(&text));
                let guest = guest.map(|ticks| ticks.saturating_mul(NANOSECONDS_PER_TICK));
                guest.into_iter().for_each(|time| self.add(Cost::Cpu, "vcpus-in-guest", time));
            }
            let status = fs.read(&format!("{directory}/status")).unwrap_or_default();
            let switches = status.lines().filter_map(|line| {
                let (name, count) = line.split_once(':')?;
                name.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
            });
            let switches: u64 = switches.fold(0, u64::saturating_add);
            self.add(Cost::Switches, role, switches);
        }
    }

    /// KVM's counters of a guest: one file each, in a directory named after process and file descriptor.
    fn exits(&mut self, fs: &HostFs, pid: u32) {
        let directories = match fs.list(KVM) {
            Ok(names) => names,
            Err(error) => {
                return self.unknown.push(format!(
                    "exits: {error}; KVM's counters are in debugfs (mount -t debugfs debugfs /sys/kernel/debug)"
                ));
            }
        };
        let Some(own) = directories.iter().find(|name| name.split('-').next() == Some(&pid.to_string())) else {
            return self.unknown.push(format!("exits: {KVM} has nothing of process {pid}"));
        };
        let directory = format!("{KVM}/{own}");
        for name in fs.list(&directory).unwrap_or_default() {
            let value = fs.read(&format!("{directory}/{name}")).ok().and_then(|text| text.trim().parse::<u64>().ok());
            let Some(value) = value else { continue };
            match name.as_str() {
                "exits" => self.add(Cost::Exits, "all", value),
                "irq_injections" | "nmi_injections" | "hypercalls" => self.add(Cost::Exits, &name, value),
                "irq_window_exits" => self.add(Cost::Exits, "irq_window", value),
                // The rest counts pages, time slept and remote flushes: nothing an exit is spent on.
                _ => {
                    let reason = name.strip_suffix("_exits");
                    reason.into_iter().for_each(|reason| self.add(Cost::Exits, reason, value));
                }
            }
        }
    }
}

/// What costs of a thread are counted as.
pub(super) fn role_name(role: &ThreadRole) -> &'static str {
    match role {
        ThreadRole::Vcpu(_) => "vcpus",
        ThreadRole::Emulator => "emulator-thread",
        ThreadRole::Iothread(_) => "iothreads",
        ThreadRole::Vhost => "vhost-workers",
        ThreadRole::Worker | ThreadRole::Other => "other-threads",
    }
}

/// Field 43 of /proc/PID/stat: time spent running a virtual processor, in ticks (proc_pid_stat(5)).
fn guest_time(stat: &str) -> Option<u64> {
    // The name, in brackets, may hold anything; the third field is the first behind it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(43 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use nearmetal_counters::TimeModel;
    use nearmetal_host::{Entry, MemoryTree};

    use super::*;

    fn host() -> HostFs {
        let mut tree = MemoryTree::new();
        let stat =
            format!("7 (CPU 0/KVM) S {}\n", (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" "));
        let files = [
            ("/proc/stat", "cpu  9 9 9 9 9 9 9 9\ncpu0 1 1 1 50 50 1 1 0 0 0\ncpu1 2 0 0 50 0 0 0 0 0 0\nctxt 77\n"),
            (
                "/proc/interrupts",
                "     CPU0 CPU1\n 35: 1 2  PCI-MSIX-0000:3a:00.1 1-edge nvme1q1\nLOC: 3 4  Local timer\n",
            ),
            ("/proc/7/task/7/comm", "qemu-system-x86\n"),
            ("/proc/7/task/7/status", "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n"),
            ("/proc/7/task/7/schedstat", "100 2 3\n"),
            ("/proc/7/task/8/comm", "CPU 0/KVM\n"),
            ("/proc/7/task/8/status", "voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n"),
            ("/proc/7/task/8/schedstat", "5000 2 3\n"),
            ("/proc/7/task/8/stat", stat.as_str()),
            ("/sys/kernel/debug/kvm/7-12/exits", "900\n"),
            ("/sys/kernel/debug/kvm/7-12/io_exits", "30\n"),
            ("/sys/kernel/debug/kvm/7-12/pages_4k", "12345\n"),
            ("/sys/kernel/debug/kvm/77-3/exits", "1\n"),
        ];
        for (path, text) in files {
            tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
        }
        HostFs::of_tree(tree, "a guest")
    }

    #[test]
    fn every_counter_has_its_group_and_its_unit() {
        let target = Target { guests: vec![7], slice: "0".parse().unwrap(), ..Target::default() };
        let snapshot = Snapshot::take(&host(), &target, &mut Silicon::default(), Reading::First);
        let value = |cost: Cost, name: &str| snapshot.counters.get(&(cost, name.to_owned())).copied();
        assert_eq!(value(Cost::Cpu, "pus-of-the-slice"), Some(5 * NANOSECONDS_PER_TICK));
        assert_eq!(value(Cost::Cpu, "other-pus"), Some(2 * NANOSECONDS_PER_TICK));
        assert_eq!(value(Cost::Cpu, "pus-on-top"), None, "there are none");
        assert_eq!((snapshot.busy, snapshot.of_guests.get(&7)), (Some(7 * NANOSECONDS_PER_TICK), Some(&5100)));
        assert_eq!((value(Cost::Cpu, "vcpus"), value(Cost::Cpu, "emulator-thread")), (Some(5000), Some(100)));
        assert_eq!(value(Cost::Cpu, "vcpus-in-guest"), Some(43 * NANOSECONDS_PER_TICK));
        assert_eq!((value(Cost::Exits, "all"), value(Cost::Exits, "io")), (Some(900), Some(30)));
        assert_eq!(value(Cost::Exits, "pages_4k"), None);
        assert_eq!((value(Cost::Interrupts, "nvme1q1"), value(Cost::Interrupts, "all")), (Some(3), Some(10)));
        assert_eq!((value(Cost::Switches, "host-all"), value(Cost::Switches, "vcpus")), (Some(77), Some(3)));
        assert!(snapshot.unknown.is_empty(), "{:?}", snapshot.unknown);
    }

    /// A lab of two PUs and two nodes whose guests touched node 1 from PU 0, and whose programs node 0 from both.
    fn counting_lab() -> HostFs {
        use nearmetal_counters::{Class, Count, Place, empty_page, pu_word};

        let mut words = empty_page(Count::Locality, 2, 2);
        words[pu_word(0, Place::Instructions)] = 1000;
        words[pu_word(1, Place::Instructions)] = 50;
        words[pu_word(0, Place::InGuest)] = 700;
        words[pu_word(0, Place::Accesses(Class::Guest, 1))] = 300;
        words[pu_word(0, Place::Accesses(Class::User, 0))] = 40;
        words[pu_word(1, Place::Accesses(Class::User, 0))] = 5;
        words[pu_word(0, Place::Misses(1))] = 30;
        words[pu_word(1, Place::Misses(1))] = 2;
        let tree = nearmetal_host::synthetic::counting_lab(nearmetal_host::LAB_VENDOR, &words).unwrap();
        HostFs::of_tree(tree, "a lab")
    }

    #[test]
    fn accesses_of_guests_count_everywhere_and_those_of_bare_metal_on_the_slice() {
        let distances = [((0, 0), 10), ((0, 1), 16), ((1, 0), 16), ((1, 1), 10)].into();
        let target = Target { guests: vec![7], slice: "1".parse().unwrap(), distances, ..Target::default() };
        let of = |target: &Target, group: Cost, name: &str| {
            Snapshot::take(&counting_lab(), target, &mut Silicon::default(), Reading::First)
                .counters
                .get(&(group, name.to_owned()))
                .copied()
        };
        assert_eq!(of(&target, Cost::Work, "pus-of-the-slice"), Some(50));
        assert_eq!(
            (of(&target, Cost::Work, "other-pus"), of(&target, Cost::Work, "in-guest")),
            (Some(1000), Some(700))
        );
        let local = |target: &Target| ["accesses", "local", "distance"].map(|name| of(target, Cost::Locality, name));
        assert_eq!(local(&target), [Some(300), Some(0), Some(4800)]);
        let bare = Target { guests: vec![], ..target };
        assert_eq!(local(&bare), [Some(5), Some(0), Some(80)], "of the slice alone");
        // 1050 instructions; 30 misses at distance 16 and 2 at 10, of the whole machine.
        let model =
            TimeModel { instructions_per_microsecond: 1000, local_latency: 100, source: "a test's own".to_owned() };
        let modelled = |time_model: Option<_>| {
            let target = Target { time_model, ..bare.clone() };
            [EXECUTING, WAITING].map(|name| of(&target, Cost::Modelled, name))
        };
        assert_eq!(modelled(Some(Ok(model))), [Some(1050), Some(30 * 160 + 2 * 100)]);
        assert_eq!(modelled(None), [None, None], "a machine file without a model");
    }

    #[test]
    fn requests_are_counted_where_they_pass() {
        let fs = |io: &str, stat: &str| {
            let mut tree = MemoryTree::new();
            tree.put("/proc/7/io", Entry::File(io.as_bytes().to_vec())).unwrap();
            tree.put("/sys/class/block/nvme1n1/stat", Entry::File(stat.as_bytes().to_vec())).unwrap();
            HostFs::of_tree(tree, "a host")
        };
        let before = fs("rchar: 1\nwchar: 2\nread_bytes: 0\nwrite_bytes: 0\n", "1 0 8 0 1 0 8 0 0 0 0\n");
        let after = fs("rchar: 8193\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 0\n", "2 0 32 0 1 0 8 0 0 0 0\n");
        let size = Bytes::from_kib(4);
        let requests = Some(Requests { size, devices: vec!["nvme1n1".to_owned()] });
        let between = |target: &Target| {
            let [before, after] =
                [&before, &after].map(|fs| Snapshot::take(fs, target, &mut Silicon::default(), Reading::First));
            requests_between(before.moved, after.moved, size)
        };
        let bare = Target { requests, ..Target::default() };
        assert_eq!(between(&bare), Some(3.0), "24 sectors");
        assert_eq!(between(&Target { guests: vec![7], ..bare.clone() }), Some(2.0), "the way that moved more");
        assert_eq!(between(&Target { guests: vec![8], ..bare }), None, "a QEMU that does not tell");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let target = Target { guests: vec![9], ..Target::default() };
        let snapshot = Snapshot::take(
            &HostFs::of_tree(MemoryTree::new(), "nothing"),
            &target,
            &mut Silicon::default(),
            Reading::Second,
        );
        assert!(snapshot.counters.is_empty());
        assert_eq!(snapshot.unknown.len(), 4, "{:?}", snapshot.unknown);
        assert!(snapshot.unknown.iter().any(|line| line.contains("mount -t debugfs")));
    }
}
