//! A guest with a function of its own and a vhost worker of its own: pinned after every start, and whatever somebody does to
//! them behind our back is named by verify.

use anyhow::ensure;
use serde_json::Value;

use super::{Case, HOLDS, Verdict, shared, shared_long, told};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("sabotage/card-of-virtual-functions-switched-off", card_down),
        shared_long("after-start/pins-come-with-every-start", every_start),
        shared_long("sabotage/interrupt-of-a-function-moved", interrupt_moved),
        shared_long("sabotage/vhost-worker-moved", worker_moved),
        shared_long("sabotage/function-given-to-another-guest", given_away),
        shared_long("sabotage/virtual-functions-set-to-0-under-a-guest", count_zero),
        shared_long("after-start/rollback-takes-the-hook-away", taken_back),
    ]
}

/// The drive that can have virtual functions.
const DRIVE: &str = "$(basename $(dirname $(dirname $(ls -d /sys/bus/pci/devices/*/nvme/nvme0))))";

/// A guest with a virtual function of the drive and an interface that vhost-net carries.
const GUEST: &str = "<domain type='kvm'><name>io1</name><memory unit='MiB'>384</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>/var/lib/libvirt/boot/vmlinuz</kernel>
<initrd>/var/lib/libvirt/boot/small.cpio</initrd><cmdline>console=ttyS0 quiet pci=lastbus=0 hpet=disable</cmdline></os>
<features><acpi/></features><cpu mode='host-passthrough'/><devices>
FUNCTION
<interface type='network'><source network='default'/><model type='virtio'/></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>";

/// What takes part: the function, its interrupts, the worker, and waiting for the guest's driver.
const NAMES: &str = "
f=$(cat /root/io1.function); bus=/sys/bus/pci/devices
interrupts() { ls $bus/$f/msi_irqs 2>/dev/null; }
worker() { grep -l '^vhost-' /proc/$(cat /run/libvirt/qemu/io1.pid)/task/*/comm | cut -d/ -f5; }
ready() { end=$(($(date +%s) + 90)); until [ -n \"$(interrupts)\" ] && virsh -q qemu-agent-command io1 '{\"execute\":\"guest-ping\"}' >/dev/null 2>&1
          do [ $(date +%s) -lt $end ] || exit 1; sleep 1; done; }";

fn hostdev(function: &str) -> String {
    let parts: Vec<&str> = function.split([':', '.']).collect();
    format!(
        "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x{}' bus='0x{}' slot='0x{}' \
         function='0x{}'/></source></hostdev>",
        parts[0], parts[1], parts[2], parts[3]
    )
}

/// `io1` planned, applied and running with all it was given. Kept from the case before if it still verifies.
fn given(bench: &Bench) -> anyhow::Result<()> {
    let kept = "test -e /etc/libvirt/hooks/qemu.d/nearmetal && virsh -q domstate io1 | grep -q running \
                && nearmetal verify io1 --agent-timeout 60";
    if bench.try_sh(kept)?.success() {
        return Ok(());
    }
    cleared(bench)?;
    bench.sh(&format!("nearmetal device vfs {DRIVE} 1 --no-autoprobe --yes"))?;
    let function =
        bench.sh(&format!("basename $(readlink /sys/bus/pci/devices/{DRIVE}/virtfn0) | tee /root/io1.function"))?;
    bench.write("/root/io1.xml", &GUEST.replace("FUNCTION", &hostdev(function.trim())))?;
    bench.sh("virsh -q define /root/io1.xml && nearmetal plan io1 --vhost-pus 1 -o /root/io1.json")?;
    bench.sh("nearmetal apply /root/io1.json --start --yes")?;
    bench.sh(&format!("{NAMES}\nready"))?;
    bench.ends_with(0, "nearmetal verify io1 --agent-timeout 60").map(drop)
}

/// Nothing of these cases, and no guest, is left; `Bench::found` brings its own back.
fn cleared(bench: &Bench) -> anyhow::Result<()> {
    bench.sh("for d in $(virsh list --name); do virsh -q destroy $d; done
         while nearmetal rollback --restart >/dev/null 2>&1; do :; done")?;
    bench.cleared()
}

/// A mismatch of `io1` that names all of these words.
fn found(bench: &Bench, words: &[&str]) -> anyhow::Result<Verdict> {
    told(bench, "io1", words)
}

fn card_down(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.sh("ip link set enp57s0 up; sleep 2; nearmetal device vfs enp57s0 1 --no-autoprobe --yes; ip link set enp57s0 down")?;
    let result = told(bench, "devices of transaction", &["link of enp57s0", "down"]);
    bench.sh("ip link set enp57s0 up; nearmetal rollback; ip link set enp57s0 down")?;
    result
}

/// What was found by the checks of one kind that are as planned.
fn checks(document: &Value, kind: &str) -> Vec<String> {
    let all = document["checks"].as_array().into_iter().flatten();
    let good = all.filter(|check| check["kind"] == kind && check["outcome"] == "ok");
    good.map(|check| check["found"].to_string()).collect()
}

fn every_start(bench: &Bench) -> anyhow::Result<Verdict> {
    given(bench)?;
    // Three starts: by virsh, by the guest itself, and by virsh again.
    let mut told = String::new();
    for again in [
        "virsh -q destroy io1; virsh -q start io1",
        "virsh -q reset io1; sleep 8",
        "virsh -q destroy io1; virsh -q start io1",
    ] {
        bench.sh(&format!("{again}\n{NAMES}\nready"))?;
        let text = bench.ends_with(0, "nearmetal verify io1 --agent-timeout 60")?;
        let document = bench.json("nearmetal verify io1 --agent-timeout 60 --format json")?;
        let (workers, interrupts) = (checks(&document, "vhost"), checks(&document, "interrupt"));
        ensure!(workers.len() == 1 && interrupts.len() == 1, "after `{again}`: {text}");
        told = format!("vhost worker {}, interrupts {}", workers.join(" "), interrupts.join(" "));
    }
    Ok(Verdict::Holds(told))
}

fn interrupt_moved(bench: &Bench) -> anyhow::Result<Verdict> {
    given(bench)?;
    let number =
        bench.sh(&format!("{NAMES}\ni=$(interrupts | head -n 1); echo 0 > /proc/irq/$i/smp_affinity_list; echo $i"))?;
    let result = found(bench, &[&format!("interrupt {} of PCI function", number.trim()), "on PUs 0"]);
    bench.sh(&format!("{NAMES}\necho 7 > /proc/irq/{}/smp_affinity_list", number.trim()))?;
    result
}

fn worker_moved(bench: &Bench) -> anyhow::Result<Verdict> {
    given(bench)?;
    let thread = bench.sh(&format!("{NAMES}\nt=$(worker); taskset -pc 7 $t >/dev/null; echo $t"))?;
    let result = found(bench, &["vhost worker", thread.trim(), "PUs 7"]);
    bench.sh(&format!("taskset -pc 8 {}", thread.trim()))?;
    result
}

fn given_away(bench: &Bench) -> anyhow::Result<Verdict> {
    given(bench)?;
    let function = bench.sh("cat /root/io1.function")?;
    bench.write("/root/function.xml", &hostdev(function.trim()))?;
    let thief = GUEST.replace("FUNCTION", &hostdev(function.trim())).replace("<name>io1<", "<name>thief<");
    bench.write("/root/thief.xml", &thief)?;
    bench.sh("virsh -q detach-device io1 /root/function.xml --live; virsh -q define /root/thief.xml
         end=$(($(date +%s) + 60)); until virsh -q start thief --paused; do [ $(date +%s) -lt $end ] || exit 1; sleep 2; done")?;
    let result = found(bench, &["not held by QEMU: the guest `thief` has it"]);
    // Off, it must not be another's either.
    bench.sh("virsh -q destroy io1")?;
    let off = found(bench, &["free for this guest", "held by the guest `thief`"]);
    bench.sh("virsh -q destroy thief; virsh -q undefine thief; virsh -q start io1")?;
    bench.sh(&format!("{NAMES}\nready"))?;
    off.and(result)
}

fn count_zero(bench: &Bench) -> anyhow::Result<Verdict> {
    given(bench)?;
    // The kernel asks QEMU to let go, and the guest gives its function back: nothing refuses, and the guest runs on without.
    bench.sh(&format!("timeout 60 sh -c \"echo 0 > /sys/bus/pci/devices/{DRIVE}/sriov_numvfs\""))?;
    let function = bench.sh("cat /root/io1.function")?;
    found(bench, &[&format!("PCI function {}", function.trim()), "the machine has no such function"])
}

fn taken_back(bench: &Bench) -> anyhow::Result<Verdict> {
    given(bench)?;
    bench.sh("test -x /etc/libvirt/hooks/qemu.d/nearmetal && nearmetal rollback --restart && test ! -e /etc/libvirt/hooks/qemu.d")?;
    cleared(bench)?;
    Ok(HOLDS)
}
