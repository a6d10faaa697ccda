//! The disk matrix, and what stands behind its one ban: which cache modes keep what a guest has flushed.

use std::time::Duration;

use anyhow::{Context, ensure};
use nearmetal_results::{Advice, Bus, Container, Effect, MatrixResults, PathCache, PathRow, PathTable, Scheduler};

use super::experiment::ran;
use super::{Case, Verdict, alone, shared_long};
use crate::context::{Bench, Boot, purge};

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

/// One disk of the guest whose flushes are tried.
struct Flushed {
    /// Its last letter: `vdb`, `vdc`, ….
    letter: char,
    /// libvirt's `cache`.
    cache: &'static str,
    /// libvirt's `io`.
    engine: &'static str,
    /// An image on the lab's root disk, where libvirt's user may go; else a partition of the scratch namespace.
    qcow2: bool,
    /// Whether what the guest synced is there after a power loss.
    keeps: bool,
}

const fn block(letter: char, cache: &'static str, engine: &'static str) -> Flushed {
    Flushed { letter, cache, engine, qcow2: false, keeps: true }
}

/// Every cache mode, with each engine QEMU takes for it.
const FLUSHED: [Flushed; 12] = [
    block('b', "none", "native"),
    block('c', "none", "io_uring"),
    block('d', "none", "threads"),
    block('e', "directsync", "native"),
    block('f', "directsync", "io_uring"),
    block('g', "writeback", "threads"),
    block('h', "writeback", "io_uring"),
    block('i', "writethrough", "io_uring"),
    // QEMU's own fault, 10.0.3 and later: rule `disk-write-through-flushed`.
    Flushed { keeps: false, ..block('j', "writethrough", "threads") },
    Flushed { keeps: false, ..block('k', "unsafe", "threads") },
    Flushed { qcow2: true, ..block('l', "writeback", "threads") },
    Flushed { qcow2: true, ..block('m', "writethrough", "threads") },
];

impl Flushed {
    fn name(&self) -> String {
        format!("{}{}/{}", if self.qcow2 { "qcow2 " } else { "" }, self.cache, self.engine)
    }

    /// What holds its blocks.
    fn source(&self) -> String {
        if self.qcow2 {
            return format!("/var/lib/libvirt/images/{}.qcow2", self.letter);
        }
        format!("{SCRATCH}-part{}", u32::from(self.letter) - u32::from('a'))
    }

    fn element(&self) -> String {
        let (kind, attribute, format) = if self.qcow2 { ("file", "file", "qcow2") } else { ("block", "dev", "raw") };
        format!(
            "<disk type='{kind}' device='disk'><driver name='qemu' type='{format}' cache='{}' io='{}'/><source {attribute}='{}'/><target dev='vd{}' bus='virtio'/></disk>",
            self.cache,
            self.engine,
            self.source(),
            self.letter
        )
    }
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("matrix/every-disk-path-on-blocks-is-read-back", paths_on_blocks),
        shared_long("matrix/disk-paths-on-files-are-read-back", paths_on_files),
        shared_long("matrix/the-winner-beats-qemus-default", winner),
        alone("matrix/flushed-data-survives-where-it-is-promised", durability),
    ]
}

/// For what looks at one path after the other.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Makes the paths of the scratch space with these caches, reads each back, and sees that nothing is left.
fn read_back(bench: &Bench, scratch: &str, caches: &[PathCache], without: &[&str]) -> anyhow::Result<PathTable> {
    bench.applied()?;
    bench.sh("modprobe -a kyber-iosched bfq mq-deadline; mkdir -p /var/tmp/paths")?;
    // A multipath namespace has it at its hidden path.
    let schedulers = "grep -H . /sys/class/block/nvme*/queue/scheduler";
    let before = bench.sh(schedulers)?;
    // `unsafe` is not there unless it is asked for.
    let others = PathCache::ALL.into_iter().filter(|cache| !caches.contains(cache) && *cache != PathCache::Unsafe);
    let mut options: String = others.map(|cache| format!(" --without {}", cache.id())).collect();
    options.extend(without.iter().map(|word| format!(" --without {word}")));
    options.push_str(if caches.contains(&PathCache::Unsafe) { " --unsafe-loses-data" } else { "" });
    let command = format!(
        "nearmetal bench disk read-back web1 --scratch {scratch} --pause --span 4MiB{options} -o /root/paths.json"
    );
    let text = bench.sh_within(PATIENCE, &command).context("not every path took effect")?;
    let table: PathTable = serde_json::from_str(&bench.document("/root/paths.json", "web1")?)?;
    ensure!(bench.sh(schedulers)? == before, "the scheduler is not as it was");
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(bench.sh("lvm vgs --noheadings; ls -A /var/tmp/paths")?.trim().is_empty(), "volumes or files are left");
    ensure!(bench.sh(&format!("wipefs --noheadings {SCRATCH}"))?.is_empty(), "the scratch device is not empty again");
    let wanted = |one: &Container| one.is_file() == (scratch != SCRATCH) && !without.contains(&one.id());
    for container in Container::ALL.into_iter().filter(wanted) {
        for cache in caches.iter().copied() {
            let there = table.rows.iter().any(|row| row.path.container == container && row.path.cache == cache);
            ensure!(there, "{} with cache={} is not in the table: {text}", container.id(), cache.id());
        }
    }
    Ok(table)
}

fn shown(table: &PathTable, what: &str, has: fn(&PathRow) -> bool) -> anyhow::Result<()> {
    table.rows.iter().find(|row| has(row)).map(drop).with_context(|| format!("no row shows {what}"))
}

/// Partitions with each cache and engine; each bus, option and scheduler. The whole device and logical volumes with each engine: to a
/// cache they are block devices as a partition is.
fn paths_on_blocks(bench: &Bench) -> anyhow::Result<Verdict> {
    let others = read_back(bench, SCRATCH, &[PathCache::None], &ON_PARTITIONS)?;
    for container in [Container::Device, Container::Lvm] {
        let engines = others.rows.iter().filter(|row| row.path.container == container).count();
        ensure!(engines == 3, "{}: {engines} engines", container.id());
    }
    let table = read_back(bench, SCRATCH, &PathCache::ALL, &["device", "lvm"])?;
    shown(&table, "virtio-scsi", |row| row.path.bus == Bus::VirtioScsi)?;
    shown(&table, "a discard on the drive", |row| {
        row.proof.given_back.as_ref().is_some_and(|words| words.contains("the drive was told"))
    })?;
    shown(&table, "two iothreads", |row| row.proof.thread.as_deref() == Some("iothreads 1, 2"))?;
    shown(&table, "a scheduler", |row| row.path.scheduler == Some(Scheduler::Kyber))?;
    let (paths, took) = (table.rows.len() + others.rows.len(), table.took + others.took);
    Ok(Verdict::Holds(format!("lab: {paths} paths read back in {took:.0} s")))
}

/// What is read back on partitions.
const ON_PARTITIONS: [&str; 10] = [
    "main-loop",
    "2-iothreads",
    "q1",
    "virtio-scsi",
    "sectors-4096",
    "discard",
    "scheduler-none",
    "scheduler-mq-deadline",
    "scheduler-kyber",
    "scheduler-bfq",
];

/// What [`paths_on_blocks`] shows as well.
const ON_BLOCKS: [&str; 6] = ["threads", "main-loop", "2-iothreads", "q1", "virtio-scsi", "sectors-4096"];

/// Raw files and qcow2 in all its kinds, and what a file gives back of zeroes. Engines, caches, buses and iothreads differ in nothing that
/// a file has to do with: blocks are read back with all of them.
fn paths_on_files(bench: &Bench) -> anyhow::Result<Verdict> {
    let table = read_back(bench, "/var/tmp/paths", &[PathCache::None], &ON_BLOCKS)?;
    shown(&table, "zeroes that a file gave back", |row| {
        let words = row.proof.given_back.as_ref();
        row.path.detect_zeroes && words.is_some_and(|words| words.contains("the file holds less"))
    })?;
    Ok(Verdict::Holds(format!("lab: {} paths read back in {:.0} s", table.rows.len(), table.took)))
}

/// Leaves each node little memory, so that QEMU's default works on the drive as all others do and not in the page cache, and
/// says what the pools had.
const MEMORY_TAKEN: &str = "sync; echo 3 >/proc/sys/vm/drop_caches
for n in /sys/devices/system/node/node[0-9]*; do
  pool=$n/hugepages/hugepages-2048kB/nr_hugepages; had=$(cat $pool); echo $had
  free=$(awk '/MemFree/ {print $4}' $n/meminfo); echo $((had + (free - 262144) / 2048)) >$pool
done";

/// The ways that do not race here.
const NOT_RACED: [&str; 14] = [
    "writeback",
    "writethrough",
    "directsync",
    "main-loop",
    "virtio-scsi",
    "q1",
    "2-iothreads",
    "discard",
    "detect-zeroes",
    "lvm",
    "device",
    "scheduler-kyber",
    "scheduler-bfq",
    "sectors-4096",
];

/// A small matrix, as the published experiment on ways to a disk: every arm read back, a winner measured again, the plan that
/// uses it, and nothing left behind.
fn winner(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let list = bench.sh("nearmetal bench disk list web1")?;
    ensure!(list.contains("--unsafe-loses-data") && list.contains("at least"), "{list}");
    let text =
        bench.ends_with(2, &format!("nearmetal bench disk race web1 --scratch {SCRATCH} --pause --budget 60"))?;
    ensure!(text.contains("--budget") && text.contains("--without"), "the budget was not refused: {text}");
    let pools = bench.sh(MEMORY_TAKEN)?;
    let without: String = NOT_RACED.map(|word| format!(" --without {word}")).concat();
    let words = format!("web1 --pause --scratch {SCRATCH} --span 1280MiB --seconds 2 --budget 560 --pairs 8{without}");
    let mut raced = None;
    // mq-deadline beside none, and Linux AIO beside threads.
    let ran = ran(bench, "virtio-io", &words, 2, |directory| {
        bench.sh(&format!("grep -q '</svg>' {directory}/ways.html"))?;
        raced = Some(bench.sh(&format!("cat {directory}/ways.json"))?);
        Ok(String::new())
    });
    for (node, pages) in pools.lines().enumerate() {
        bench.sh(&format!(
            "echo {pages} >/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"
        ))?;
    }
    let Verdict::Holds(text) = ran? else { anyhow::bail!("the experiment did not run") };
    let results = MatrixResults::parse(&raced.context("no document")?)?;
    for arm in &results.arms {
        if let Effect::NotShown { why } = &arm.effect {
            anyhow::bail!("{} did not take effect: {why}", arm.path.title());
        }
    }
    let Advice::Use(arm, estimate) = results.advice() else {
        anyhow::bail!("no arm was shown faster than QEMU's default: {text}");
    };
    ensure!(results.arms.iter().all(|arm| arm.cannot_win.is_none()), "QEMU's default worked in memory: {text}");
    ensure!(arm.path.cache != PathCache::Unsafe, "{text}");
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(bench.sh(&format!("wipefs --noheadings {SCRATCH}"))?.is_empty(), "the scratch device is not empty again");
    // The host's scheduler is nothing that a plan sets, and then it says that in place of using the rest.
    let plan = bench.sh("nearmetal plan web1 2>&1")?;
    let words = if arm.path.scheduler.is_some() { "has a scheduler, which no plan sets" } else { "fresh pairs" };
    ensure!(plan.contains(words), "the plan knows nothing of the winner {}: {plan}", arm.path.title());
    ensure!(!bench.sh("nearmetal plan web1 --no-measured")?.contains("fresh pairs"), "--no-measured was not heard");
    let figures = format!(
        "lab: {} does {estimate} of QEMU's default, n = {}; {} runs in {:.0} s; {text}",
        arm.path.title(),
        estimate.n,
        results.turns.len(),
        results.took
    );
    ensure!(estimate.ratio >= 1.5, "the goal is 1.5: {figures}");
    Ok(Verdict::Holds(figures))
}

/// A guest whose disks differ in cache mode and engine alone.
fn guest_with_caches() -> String {
    let disks: String = FLUSHED.iter().map(Flushed::element).collect();
    nearmetal_lab::domains::FOUND.replacen("<interface", &format!("{disks}<interface"), 1)
}

/// In the guest: a mebibyte of one word to every disk, each fsynced before the next.
fn write_all(bench: &Bench, word: &str) -> anyhow::Result<()> {
    bench.wait_for_agent()?;
    let letters: Vec<String> = FLUSHED.iter().map(|disk| disk.letter.to_string()).collect();
    let letters = letters.join(" ");
    let inside = format!(
        "set -e; for d in {letters}; do yes {word} | head -c 1048576 >/tmp/w; dd if=/tmp/w of=/dev/vd$d bs=65536 conv=fsync; done"
    );
    let request = serde_json::json!({"execute": "guest-exec", "arguments":
        {"path": "/bin/sh", "arg": ["-c", inside], "capture-output": true}});
    bench.write("/root/exec.json", &request.to_string())?;
    bench
        .sh("pid=$(virsh -q qemu-agent-command web1 \"$(cat /root/exec.json)\" | tr -cd 0-9)
             for i in $(seq 120); do
                 s=$(virsh -q qemu-agent-command web1 \"{\\\"execute\\\":\\\"guest-exec-status\\\",\\\"arguments\\\":{\\\"pid\\\":$pid}}\")
                 case $s in *'\"exited\":true'*) case $s in *'\"exitcode\":0'*) exit 0;; *) echo \"$s\" >&2; exit 1;; esac;; esac
                 sleep 0.2
             done; echo 'the guest did not end its writes' >&2; exit 1")
        .map(drop)
        .context("writing in the guest")
}

/// The disks that do not hold the word.
fn lost(bench: &Bench, word: &str) -> anyhow::Result<Vec<String>> {
    let mut lost = Vec::new();
    for disk in &FLUSHED {
        let source = disk.source();
        // After a boot the partitions' names come one by one; one that is not there yet would pass for lost.
        bench.sh(&format!("udevadm settle; test -e {source}"))?;
        let read = if disk.qcow2 {
            bench.sh(&format!("qemu-img dd -U -f qcow2 -O raw if={source} of=/root/flushed.raw bs=1M count=1"))?;
            "/root/flushed.raw".to_owned()
        } else {
            source
        };
        if !bench.try_sh(&format!("yes {word} | head -c 1048576 | cmp -s -n 1048576 - {read}"))?.success() {
            lost.push(disk.name());
        }
    }
    Ok(lost)
}

fn durability() -> anyhow::Result<Verdict> {
    let boot = Boot { keep: true, ..Boot::default() };
    let mut bench = Bench::up("cases-durable", &boot)?;
    let result = (|| {
        let blocks = FLUSHED.iter().filter(|disk| !disk.qcow2).count();
        bench.sh(&format!(
            "printf 'label: gpt\n{}' | sfdisk -q {SCRATCH}; udevadm settle
             for i in {}; do qemu-img create -q -f qcow2 $i 16M; done; sync",
            "size=16MiB\n".repeat(blocks),
            FLUSHED.iter().filter(|disk| disk.qcow2).map(|disk| disk.source() + " ").collect::<String>()
        ))?;
        bench.write("/root/caches.xml", &guest_with_caches())?;
        bench.sh("virsh -q define /root/caches.xml && virsh -q start web1")?;
        write_all(&bench, "first")?;
        bench.sh("kill -9 $(pgrep -f '[g]uest=web1,'); sleep 1; echo 3 > /proc/sys/vm/drop_caches")?;
        let after_kill = lost(&bench, "first")?;
        // The lab's own page cache outlives QEMU, so even unsafe keeps what it wrote.
        ensure!(after_kill.is_empty(), "lost by kill -9 of QEMU after fsync returned: {after_kill:?}");

        // Nothing is written back by the clock: what reaches the drive does so because somebody flushed.
        bench.sh(
            "virsh -q destroy web1 2>/dev/null; sysctl -q vm.dirty_writeback_centisecs=0 vm.dirty_expire_centisecs=360000; sync; virsh -q start web1",
        )?;
        write_all(&bench, "second")?;
        bench.lab.power_loss()?;
        bench = Bench::up("cases-durable", &boot)?;
        let after_loss = lost(&bench, "second")?;
        // Were nothing lost that is said to lose, this case would pass with any cache mode and show nothing.
        let expected: Vec<String> = FLUSHED.iter().filter(|disk| !disk.keeps).map(Flushed::name).collect();
        ensure!(after_loss == expected, "lost with the power after fsync returned: {after_loss:?}, not {expected:?}");
        anyhow::Ok(Verdict::Holds(format!(
            "kill -9: all {} disks kept what was flushed; power loss: lost by {}, kept by all others",
            FLUSHED.len(),
            after_loss.join(" and ")
        )))
    })();
    if bench.lab.is_alive() {
        bench.lab.down()?;
    }
    purge("cases-durable")?;
    result
}
