//! Somebody changes something behind our back: verify must name it.

use anyhow::ensure;

use super::{Case, Verdict, shared, shared_long, told};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("sabotage/vcpu-thread-repinned", vcpu_repinned),
        shared("sabotage/emulator-onto-a-vcpus-pu", emulator_moved),
        shared_long("sabotage/pages-migrated", pages_migrated),
        shared("sabotage/pool-shrunk-while-in-use", pool_shrunk),
        shared("sabotage/redefined-with-another-cache", redefined),
        shared("sabotage/paused", paused),
        shared("sabotage/vcpu-thread-made-idle", vcpu_made_idle),
        shared("sabotage/emulator-and-vhost-made-nice", made_nice),
        shared("sabotage/balloon-inflated", balloon),
        shared("sabotage/quota-and-shares-set-live", quota),
        shared("sabotage/disk-and-interface-throttled-live", throttled),
        shared("sabotage/boot-unit-disabled", unit_disabled),
        shared_long("sabotage/iothread-onto-a-vcpus-pu", iothread_moved),
        shared_long("read-back/deep-tells-the-iothread-of-each-queue", deep),
        shared_long("sabotage/started-with-another-cache-and-the-xml-put-back", another_cache),
        // The last: it leaves the guest with another engine, and whoever wants it as applied has to boot it twice.
        shared_long("sabotage/io-uring-disabled", io_uring_disabled),
    ]
}

const PID: &str = "pid=$(cat /run/libvirt/qemu/web1.pid)";

/// A mismatch that names all of these words.
fn found(bench: &Bench, words: &[&str]) -> anyhow::Result<Verdict> {
    told(bench, "web1", words)
}

/// Moves a thread with taskset. libvirt confines it with a cpuset besides, in which taskset is refused: who re-pins a
/// thread for good has widened that first, so we do.
fn repin(bench: &Bench, thread: &str, cpus: &str) -> anyhow::Result<()> {
    bench
        .sh(&format!(
            "set -e; group=/sys/fs/cgroup$(cut -d: -f3 /proc/{thread}/cgroup)
             cat $group/cpuset.cpus > /run/cpuset-{thread}; echo 0-11 > $group/cpuset.cpus; taskset -pc {cpus} {thread} >/dev/null"
        ))
        .map(drop)
}

/// Undoes [`repin`]: the thread may use `cpus` again, and others of its group no more than before.
fn put_back(bench: &Bench, thread: &str, cpus: &str) -> anyhow::Result<()> {
    bench
        .sh(&format!(
            "set -e; group=/sys/fs/cgroup$(cut -d: -f3 /proc/{thread}/cgroup)
             taskset -pc {cpus} {thread} >/dev/null; cat /run/cpuset-{thread} > $group/cpuset.cpus; rm /run/cpuset-{thread}"
        ))
        .map(drop)
}

fn vcpu_repinned(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let thread = bench.sh(&format!("{PID}; grep -l 'CPU 1/KVM' /proc/$pid/task/*/comm | cut -d/ -f5"))?;
    repin(bench, thread.trim(), "0")?;
    let result = found(bench, &["vCPU 1", thread.trim()]);
    let pu = bench.sh("virsh -q vcpupin web1 --vcpu 1 | awk '{print $2}'")?;
    put_back(bench, thread.trim(), pu.trim())?;
    result
}

fn emulator_moved(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let pid = bench.sh(&format!("{PID}; echo $pid"))?;
    let pu = bench.sh("virsh -q vcpupin web1 --vcpu 0 | awk '{print $2}'")?;
    repin(bench, pid.trim(), pu.trim())?;
    let result = found(bench, &["mulator", pid.trim()]);
    let back = bench.sh("virsh -q emulatorpin web1 | awk '{print $NF}'")?;
    put_back(bench, pid.trim(), back.trim())?;
    result
}

fn pages_migrated(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    // Hugepages move only to a node with free ones.
    bench.sh(&format!(
        "{PID}; echo 400 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
         migratepages $pid 2 0; echo 0 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
    ))?;
    found(bench, &["page"])
}

fn pool_shrunk(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("echo 10 > /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages")?;
    // All pages are in use, so the plain file says what it said before; only surplus has changed.
    let plain = bench.sh("cat /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages")?;
    ensure!(plain.trim() != "10", "the pool was not in use");
    let result = found(bench, &["pool"]);
    bench.sh("echo 192 > /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages")?;
    result
}

fn unit_disabled(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("systemctl -q disable nearmetal-boot")?;
    let result = found(bench, &["the boot unit", "enabled", "not enabled: the next boot leaves pools as they were"]);
    bench.sh("systemctl -q enable nearmetal-boot")?;
    result
}

fn redefined(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("virsh dumpxml --inactive web1 | sed \"s/cache='none'/cache='unsafe'/\" > /root/s.xml; virsh -q define /root/s.xml")?;
    let result = found(bench, &["cache", "unsafe"]);
    bench.sh("sed -i \"s/cache='unsafe'/cache='none'/\" /root/s.xml; virsh -q define /root/s.xml")?;
    result
}

fn io_uring_disabled(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("sysctl -q kernel.io_uring_disabled=2; virsh -q destroy web1; virsh -q start web1")?;
    bench.wait_for_agent()?;
    let result = found(bench, &["engine"]);
    bench.sh("sysctl -q kernel.io_uring_disabled=0")?;
    result
}

/// What the doctor finds in the running guest, by rule.
fn doctor_finds(bench: &Bench, rules: &[&str]) -> anyhow::Result<()> {
    let report = bench.json("nearmetal doctor --fail-on never --format json")?;
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<&str> = findings.iter().filter_map(|finding| finding["rule"].as_str()).collect();
    for rule in rules {
        ensure!(found.contains(rule), "the doctor does not find `{rule}`: {found:?}");
    }
    Ok(())
}

fn paused(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("virsh -q suspend web1")?;
    let result = found(bench, &["the guest", "running", "paused"]);
    bench.sh("virsh -q resume web1")?;
    bench.wait_for_agent()?;
    result
}

fn vcpu_made_idle(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let thread = bench.sh(&format!("{PID}; grep -l 'CPU 1/KVM' /proc/$pid/task/*/comm | cut -d/ -f5"))?;
    bench.sh(&format!("chrt -i -p 0 {}", thread.trim()))?;
    let result = found(bench, &["scheduling of vCPU 1", thread.trim(), "SCHED_IDLE"]);
    let diagnosed = doctor_finds(bench, &["threads-scheduled-as-defined"]);
    bench.sh(&format!("chrt -o -p 0 {}", thread.trim()))?;
    diagnosed.and(result)
}

fn made_nice(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let threads =
        bench.sh(&format!("{PID}; echo $pid; grep -l '^vhost-' /proc/$pid/task/*/comm | cut -d/ -f5 | head -n 1"))?;
    let mut threads = threads.split_whitespace();
    let (Some(emulator), Some(vhost)) = (threads.next(), threads.next()) else {
        return Ok(Verdict::CannotTry("the guest has no vhost worker among its threads".to_owned()));
    };
    bench.sh(&format!("renice -n 10 -p {emulator} {vhost} >/dev/null"))?;
    let (first, second) = (
        found(bench, &["scheduling of emulator", emulator, "nice 10"]),
        found(bench, &["scheduling of vhost worker", vhost, "nice 10"]),
    );
    let diagnosed = doctor_finds(bench, &["threads-scheduled-as-defined"]);
    bench.sh(&format!("renice -n 0 -p {emulator} {vhost} >/dev/null"))?;
    diagnosed.and(first).and(second)
}

fn balloon(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let set = |kib: u32| {
        // The guest's driver gives pages back one by one; libvirt's live definition says how far it is.
        bench.try_sh(&format!(
            "virsh -q setmem web1 {kib} --live
             for i in $(seq 30); do virsh dumpxml web1 | grep -q \"<currentMemory unit='KiB'>{kib}<\" && exit 0; sleep 1; done; exit 1"
        ))
    };
    if !set(196_608)?.success() {
        set(393_216)?;
        return Ok(Verdict::CannotTry("the guest has no driver for its balloon".to_owned()));
    }
    let result = found(bench, &["memory the balloon leaves", "192 MiB of 384 MiB"]);
    let diagnosed = doctor_finds(bench, &["balloon-holds-memory"]);
    ensure!(set(393_216)?.success(), "the balloon does not give the memory back");
    diagnosed.and(result)
}

fn quota(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("virsh -q schedinfo web1 --live vcpu_quota=50000 cpu_shares=2 >/dev/null")?;
    let (quota, weight) = (
        found(bench, &["quota of control group `vcpu0`", "no quota", "50000 of each 100000"]),
        found(bench, &["weight of control group", "100", "2"]),
    );
    let diagnosed = doctor_finds(bench, &["cpu-time-as-defined", "vcpu-no-cfs-quota"]);
    bench.sh("virsh -q schedinfo web1 --live vcpu_quota=-1 cpu_shares=100 >/dev/null")?;
    diagnosed.and(weight).and(quota)
}

fn throttled(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let mac = bench.sh("virsh -q domiflist web1 | awk '{print $NF}'")?;
    bench.sh("virsh -q blkdeviotune web1 vda --total-iops-sec 100 --live")?;
    let disk = found(bench, &["throttle of disk vda", "total_iops_sec 100"]);
    bench.sh("virsh -q blkdeviotune web1 vda --total-iops-sec 0 --live")?;
    bench.sh(&format!("virsh -q domiftune web1 {} --inbound 1000 --live", mac.trim()))?;
    let interface = found(bench, &["throttle of interface", mac.trim(), "inbound 1000"]);
    bench.sh(&format!("virsh -q domiftune web1 {} --inbound 0 --outbound 0 --live", mac.trim()))?;
    disk.and(interface)
}

fn iothread_moved(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let thread = bench.sh(&format!("{PID}; grep -l 'IO iothread1' /proc/$pid/task/*/comm | cut -d/ -f5"))?;
    let pu = bench.sh("virsh -q vcpupin web1 --vcpu 0 | awk '{print $2}'")?;
    repin(bench, thread.trim(), pu.trim())?;
    let result = found(bench, &["iothread 1", thread.trim()]);
    let back = bench.sh("virsh -q iothreadinfo web1 | awk '$1 == 1 {print $2}'")?;
    put_back(bench, thread.trim(), back.trim())?;
    result
}

fn another_cache(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("virsh dumpxml --inactive web1 > /root/s.xml; sed \"s/cache='none'/cache='writeback'/\" /root/s.xml > /root/t.xml
         ! cmp -s /root/s.xml /root/t.xml && virsh -q define /root/t.xml && virsh -q destroy web1 && virsh -q start web1
         virsh -q define /root/s.xml")?;
    bench.wait_for_agent()?;
    // The definition is as planned; the descriptors of QEMU are not.
    let result = found(bench, &["disk vda", "O_DIRECT, bypassing the host's page cache", "cached"]);
    bench.sh("virsh -q destroy web1; virsh -q start web1")?;
    bench.wait_for_agent()?;
    result
}

fn deep(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let text = bench.ends_with(0, "nearmetal verify web1 --deep --agent-timeout 60")?;
    let line = text.lines().find(|line| line.contains("queues of disk vda"));
    ensure!(line.is_some_and(|line| line.contains("queue 0: iothread1 (thread ")), "{text}");
    ensure!(
        text.contains("--deep asks QEMU through its monitor: libvirt marks the running guest as tainted"),
        "{text}"
    );
    bench.sh("grep -q 'tainted: custom-monitor' /var/log/libvirt/qemu/web1.log")?;
    Ok(Verdict::Holds(line.unwrap_or_default().trim().to_owned()))
}
