//! The disk matrix, and what stands behind its one ban: which cache modes keep what a guest has flushed.

use anyhow::{Context, ensure};
use nearmetal_measure::{Advice, Bus, Container, Effect, MatrixResults, PathCache, PathRow, PathTable, Scheduler};

use super::{Case, Verdict, alone, shared_long};
use crate::context::{Bench, Boot};

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

/// Cache modes, each with a partition of the scratch namespace and a disk of the guest: `vdb`, `vdc`, ….
const CACHES: [(&str, char); 5] =
    [("none", 'b'), ("directsync", 'c'), ("writeback", 'd'), ("writethrough", 'e'), ("unsafe", 'f')];

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("matrix/every-disk-path-is-read-back", every_path),
        shared_long("matrix/the-winner-beats-qemus-default", winner),
        alone("matrix/flushed-data-survives-but-for-unsafe", durability),
    ]
}

/// Each container with each cache and engine, each bus, option and scheduler: made, read back, removed.
fn every_path(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("modprobe -a kyber-iosched bfq mq-deadline; mkdir -p /var/tmp/paths")?;
    let schedulers = format!("cat /sys/block/$(basename $(readlink -f {SCRATCH}))/queue/scheduler");
    let before = bench.sh(&schedulers)?;
    let output = bench.try_sh(&format!(
        "nearmetal bench web1 --matrix disk --read-back-only --scratch {SCRATCH} --scratch /var/tmp/paths --pause \
         --span 4MiB --unsafe-loses-data -o /root/paths.json"
    ))?;
    let text = output.text() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.success(), "not every path took effect: {text}");
    let table: PathTable = serde_json::from_str(&bench.sh("cat /root/paths.json")?)?;
    for container in Container::ALL {
        for cache in PathCache::ALL {
            let there = table.rows.iter().any(|row| row.path.container == container && row.path.cache == cache);
            ensure!(there, "{} with cache={} is not in the table: {text}", container.id(), cache.id());
        }
    }
    let shown = |what: &str, has: fn(&PathRow) -> bool| {
        let row = table.rows.iter().find(|row| has(row));
        row.map(drop).with_context(|| format!("no row shows {what}: {text}"))
    };
    shown("virtio-scsi", |row| row.path.bus == Bus::VirtioScsi)?;
    shown("a discard on the drive", |row| row.path.discard && !row.path.container.is_file())?;
    shown("zeroes that a file gave back", |row| {
        row.path.detect_zeroes
            && row.proof.given_back.as_ref().is_some_and(|words| words.contains("the file holds less"))
    })?;
    shown("two iothreads", |row| row.proof.thread.as_deref() == Some("iothreads 1, 2"))?;
    shown("a scheduler", |row| row.path.scheduler == Some(Scheduler::Kyber))?;
    ensure!(bench.sh(&schedulers)? == before, "the scheduler is not as it was");
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(bench.sh("lvm vgs --noheadings; ls -A /var/tmp/paths")?.trim().is_empty(), "volumes or files are left");
    ensure!(bench.sh(&format!("wipefs --noheadings {SCRATCH}"))?.is_empty(), "the scratch device is not empty again");
    Ok(Verdict::Holds(format!("lab: {} paths read back in {:.0} s", table.rows.len(), table.took)))
}

/// A small matrix: every arm read back, a winner measured again, the plan that uses it, and nothing left behind.
fn winner(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let list = bench.sh("nearmetal bench web1 --matrix disk --list")?;
    ensure!(list.contains("--unsafe-loses-data") && list.contains("at least"), "{list}");
    let text =
        bench.ends_with(3, &format!("nearmetal bench web1 --matrix disk --scratch {SCRATCH} --pause --budget 60"))?;
    ensure!(text.contains("--budget") && text.contains("--without"), "the budget was not refused: {text}");
    let text = bench.sh(&format!(
        "nearmetal bench web1 --matrix disk --scratch {SCRATCH} --pause --seconds 2 --span 128MiB --pairs 10 --budget 480 \
         --without writeback --without writethrough --without directsync --without threads --without virtio-scsi --without q1 \
         --without discard --without detect-zeroes --without lvm --without device --without scheduler-mq-deadline --without sectors-4096 -o /root/matrix.json --chart /root/matrix.svg"
    ))?;
    let results = MatrixResults::parse(&bench.sh("cat /root/matrix.json")?)?;
    for arm in &results.arms {
        if let Effect::NotShown { why } = &arm.effect {
            anyhow::bail!("{} did not take effect: {why}", arm.path.title());
        }
    }
    let Advice::Use(arm, estimate) = results.advice() else {
        anyhow::bail!("no arm was shown faster than QEMU's default: {text}");
    };
    ensure!(arm.path.cache != PathCache::Unsafe && text.contains("lab: emulated time"), "{text}");
    ensure!(bench.sh("cat /root/matrix.svg")?.contains("</svg>"), "no chart");
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(bench.sh(&format!("wipefs --noheadings {SCRATCH}"))?.is_empty(), "the scratch device is not empty again");
    let plan = bench.sh("nearmetal plan web1")?;
    ensure!(plan.contains("fresh pairs"), "the plan does not use the winner {}: {plan}", arm.path.title());
    ensure!(!bench.sh("nearmetal plan web1 --no-measured")?.contains("fresh pairs"), "--no-measured was not heard");
    let interval = estimate.interval();
    let figures = format!(
        "lab: {} does {:.2}x ({:.2} to {:.2}) of QEMU's default, n = {}; {} runs in {:.0} s",
        arm.path.title(),
        estimate.ratio,
        interval.low,
        interval.high,
        estimate.n,
        results.turns.len(),
        results.took
    );
    ensure!(estimate.ratio >= 1.5, "the goal is 1.5: {figures}\n{text}");
    Ok(Verdict::Holds(figures))
}

/// A guest whose disks differ in their cache mode alone.
fn guest_with_caches() -> String {
    let disk = |(number, (cache, letter)): (usize, &(&str, char))| {
        format!(
            "<disk type='block' device='disk'><driver name='qemu' type='raw' cache='{cache}'/><source dev='{SCRATCH}-part{}'/><target dev='vd{letter}' bus='virtio'/></disk>",
            number + 1
        )
    };
    let disks: String = CACHES.iter().enumerate().map(disk).collect();
    let image = "<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='writeback'/><source file='/root/q.qcow2'/><target dev='vdg' bus='virtio'/></disk>";
    nearmetal_lab::domains::FOUND.replacen("<interface", &format!("{disks}{image}<interface"), 1)
}

/// In the guest: a mebibyte of one word to every disk, each fsynced before the next.
fn write_all(bench: &Bench, word: &str) -> anyhow::Result<()> {
    bench.wait_for_agent()?;
    let inside = format!(
        "set -e; for d in b c d e f g; do yes {word} | head -c 1048576 >/tmp/w; dd if=/tmp/w of=/dev/vd$d bs=65536 conv=fsync; done"
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

/// The cache modes whose disk does not hold the word, and `qcow2` if the image does not.
fn lost(bench: &Bench, word: &str) -> anyhow::Result<Vec<String>> {
    let mut lost = Vec::new();
    // After a boot the partitions' names come one by one; one that is not there yet would pass for lost.
    let parts = CACHES.len();
    bench.sh(&format!("udevadm settle; for p in $(seq {parts}); do test -b {SCRATCH}-part$p || exit 1; done"))?;
    for (number, (cache, _)) in CACHES.iter().enumerate() {
        let part = number + 1;
        let compare = format!("yes {word} | head -c 1048576 | cmp -s -n 1048576 - {SCRATCH}-part{part}");
        if !bench.try_sh(&compare)?.success() {
            lost.push((*cache).to_owned());
        }
    }
    bench.sh("rm -f /root/q.raw; qemu-img dd -U -f qcow2 -O raw if=/root/q.qcow2 of=/root/q.raw bs=1M count=1")?;
    if !bench.try_sh(&format!("yes {word} | head -c 1048576 | cmp -s -n 1048576 - /root/q.raw"))?.success() {
        lost.push("qcow2".to_owned());
    }
    Ok(lost)
}

fn durability() -> anyhow::Result<Verdict> {
    let boot = Boot { keep: true, ..Boot::default() };
    let mut bench = Bench::up("cases-durable", &boot)?;
    let result = (|| {
        let table: String = (0..CACHES.len()).map(|_| "size=16MiB\\n").collect();
        bench.sh(&format!(
            "printf 'label: gpt\\n{table}' | sfdisk -q {SCRATCH}; udevadm settle
             qemu-img create -q -f qcow2 /root/q.qcow2 16M; sync"
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
        let promised: Vec<_> = after_loss.iter().filter(|cache| *cache != "unsafe").collect();
        if !promised.is_empty() {
            // What is there instead tells a lost write from a torn one.
            let found = bench.sh(&format!(
                "for p in 1 2 3 4 5; do echo part$p: $(head -c 1048576 {SCRATCH}-part$p | tr '\\0' '\\n' | sort | uniq -c | sort -rn | head -n 4); done"
            ))?;
            anyhow::bail!("lost with the power after fsync returned: {promised:?}; on the drive:\n{found}");
        }
        // Else this case would pass with any cache mode, and show nothing.
        ensure!(after_loss == ["unsafe"], "unsafe lost nothing: the case cannot tell");
        anyhow::Ok(Verdict::Holds(
            "kill -9: all kept; power loss: unsafe alone lost what it had called flushed".to_owned(),
        ))
    })();
    if bench.lab.is_alive() {
        bench.lab.down()?;
    }
    nearmetal_lab::purge(&nearmetal_lab::Places::standard(), &"cases-durable".parse()?)?;
    result
}
