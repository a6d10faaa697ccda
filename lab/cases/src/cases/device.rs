//! Virtual functions of a real driver and of a real drive, given to a real guest, and taken back.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{Case, HOLDS, Verdict, shared, shared_long};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("device/list-says-why-not", list),
        shared("device/vfs-of-a-network-card-are-set-and-read-back", network),
        shared("device/vfs-of-a-drive-lead-to-a-namespace", drive),
        shared("device/kill-9-while-vfs-are-made-and-rollback", killed),
        shared_long("device/a-guest-has-a-vf-that-nobody-takes-from-it", guest),
        shared_long("device/a-network-of-libvirt-deals-vfs", pool),
    ]
}

/// All that changes here: counts, drivers, overrides, the card's table, what the drive has dealt, the module, the unit.
const STATE: &str = "
for d in /sys/bus/pci/devices/*; do
    echo \"$d $(readlink $d/driver) $(cat $d/driver_override $d/sriov_numvfs $d/sriov_drivers_autoprobe 2>/dev/null | tr '\\n' ' ')\"
done
ip -details link show | grep -A9 enp57s0 | grep ' vf '
nvme list-secondary /dev/nvme0 -o json
lsmod | grep -c '^vfio_pci '
ls /etc/systemd/system/nearmetal-boot.service 2>&1; true";

/// The drive that can have virtual functions.
const DRIVE: &str = "$(basename $(dirname $(dirname $(ls -d /sys/bus/pci/devices/*/nvme/nvme0))))";

/// Runs a case and takes back what it left, whatever came of it; all must be as before.
fn restored(bench: &Bench, body: impl FnOnce() -> anyhow::Result<Verdict>) -> anyhow::Result<Verdict> {
    bench.cleared()?;
    let before = bench.sh(STATE)?;
    let verdict = body();
    bench.sh("virsh -q destroy vfguest 2>/dev/null; virsh -q undefine vfguest 2>/dev/null; true")?;
    // With the link up as the case had it: igb restores no rate without one.
    bench.try_sh("for i in 1 2 3 4 5; do nearmetal rollback || break; done; ip link set enp57s0 down")?;
    let after = bench.sh(STATE)?;
    let verdict = verdict?;
    ensure!(after == before, "before:\n{before}\nafter the rollbacks:\n{after}");
    Ok(verdict)
}

fn list(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.cleared()?;
    // Its drive is held as soon as it runs.
    bench.sh("virsh -q define /root/found.xml && virsh -q start web1")?;
    let document = bench.json("nearmetal device list --format json")?;
    let devices = document["devices"].as_array().context("no devices")?;
    let of = |name: &str| devices.iter().find(|one| one["names"].to_string().contains(name));
    let reasons = |name: &str| of(name).map(|one| one["reasons"].to_string()).unwrap_or_default();
    ensure!(reasons("mgmt0").contains("default route"), "{}", reasons("mgmt0"));
    ensure!(reasons("vda").contains("root file system"), "{}", reasons("vda"));
    ensure!(reasons("nvme0n1").contains("web1"), "{}", reasons("nvme0n1"));
    let card = of("enp57s0").context("no card")?;
    ensure!(card["free"] == Value::Bool(true) && card["dma_domain"] == "identity" && card["node"] == 1, "{card}");
    // A capture tells the same, but for who has what open.
    let captured =
        "nearmetal capture /root/device.tar.gz >/dev/null && nearmetal device list --capture /root/device.tar.gz";
    let text = bench.ends_with(0, captured)?;
    ensure!(text.contains("default route leads through `mgmt0`") && text.contains("is on `vda`"), "{text}");
    Ok(HOLDS)
}

fn network(bench: &Bench) -> anyhow::Result<Verdict> {
    restored(bench, || {
        bench.sh("ip link set enp57s0 up; sleep 2")?;
        bench.sh("nearmetal device vfs enp57s0 2 --yes --mac-base 02:00:00:00:01:00 --vlan 0=7,1=9 --spoof-check off --trust on \
                  --max-rate 100 --no-autoprobe")?;
        let links = bench.json("ip -json -details link show dev enp57s0")?;
        let seen = |number: usize| {
            let row = &links[0]["vfinfo_list"][number];
            format!(
                "{} {} {} {} {}",
                row["address"], row["vlan_list"][0]["vlan"], row["spoofchk"], row["trust"], row["rate"]["max_tx"]
            )
        };
        ensure!(seen(0) == "\"02:00:00:00:01:00\" 7 false true 100", "{}", seen(0));
        ensure!(seen(1) == "\"02:00:00:00:01:01\" 9 false true 100", "{}", seen(1));
        bench.ends_with(0, "nearmetal verify")?;
        // What stays keeps its settings through 0.
        bench.sh("nearmetal device vfs enp57s0 4 --yes")?;
        let table = bench.sh("ip -details link show enp57s0")?;
        ensure!(table.contains("vf 0 ") && table.contains("02:00:00:00:01:00") && table.contains("vf 3 "), "{table}");
        let text = bench.ends_with(3, "nearmetal device vfs enp57s0 8 --yes")?;
        ensure!(text.contains("can have 7 virtual functions"), "{text}");
        bench.sh("ip link set enp57s0 vf 1 trust off")?;
        let text = bench.ends_with(1, "nearmetal verify")?;
        ensure!(text.contains("trust of VF 1"), "{text}");
        Ok(HOLDS)
    })
}

fn drive(bench: &Bench) -> anyhow::Result<Verdict> {
    restored(bench, || {
        bench.sh(&format!("nearmetal device vfs {DRIVE} 2 --keep-driver --yes; sleep 2"))?;
        let seen = bench.sh(&format!(
            "for n in 0 1; do ls -d /sys/bus/pci/devices/{DRIVE}/virtfn$n/nvme/nvme*/nvme*n1; \
             cat /sys/bus/pci/devices/{DRIVE}/virtfn$n/nvme/nvme*/state; done"
        ))?;
        ensure!(seen.matches("live").count() == 2 && seen.lines().count() == 4, "{seen}");
        // The drive is reset: its functions are offline, and come back when asked for again.
        bench.sh("nvme virt-mgmt /dev/nvme0 --cntlid=2 --act=7")?;
        let text = bench.ends_with(1, "nearmetal verify")?;
        ensure!(text.contains("offline"), "{text}");
        bench.sh(&format!("nearmetal device vfs {DRIVE} 2 --yes"))?;
        bench.ends_with(0, "nearmetal verify")?;
        Ok(Verdict::Holds(seen.lines().next().unwrap_or_default().to_owned()))
    })
}

fn killed(bench: &Bench) -> anyhow::Result<Verdict> {
    restored(bench, || {
        let before = bench.sh(STATE)?;
        let made = "nearmetal device vfs enp57s0 3 --mac-base 02:00:00:00:01:00 --vlan 7 --persist --yes";
        let points = bench.sh(&format!("{made} --list-fault-points"))?;
        let point = points.lines().find(|point| point.ends_with(":made")).context("no point")?.to_owned();
        let output = bench.try_sh(&format!("NEARMETAL_TESTING=1 NEARMETAL_FAULT_AT='{point}' {made}"))?;
        ensure!(output.status == 137, "at `{point}` it ended with {} instead of SIGKILL", output.status);
        let text = bench.ends_with(3, "nearmetal device vfs enp57s0 1 --yes")?;
        ensure!(text.contains("is unfinished"), "{text}");
        bench.sh("nearmetal rollback")?;
        let after = bench.sh(STATE)?;
        ensure!(after == before, "after `{point}` and rollback:\n{before}\n---\n{after}");
        Ok(Verdict::Holds(point))
    })
}

const GUEST: &str = "<domain type='kvm'><name>vfguest</name><memory unit='MiB'>384</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>/var/lib/libvirt/boot/vmlinuz</kernel>
<initrd>/var/lib/libvirt/boot/small.cpio</initrd><cmdline>console=ttyS0 quiet pci=lastbus=0 hpet=disable</cmdline></os>
<features><acpi/></features><cpu mode='host-passthrough'/><devices>
<hostdev mode='subsystem' type='pci' managed='no'><source><address domain='0x0000' bus='0xBUS' slot='0xSLOT' function='0xFUNCTION'/></source></hostdev>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>";

fn guest(bench: &Bench) -> anyhow::Result<Verdict> {
    restored(bench, || {
        bench.sh(&format!("nearmetal device vfs {DRIVE} 1 --no-autoprobe --yes"))?;
        let function = bench.sh(&format!("basename $(readlink /sys/bus/pci/devices/{DRIVE}/virtfn0)"))?;
        bench.sh(&format!("nearmetal device bind {function} --yes; test -e /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/{function}/iommu_group))"))?;
        // A reset leaves driver and queues.
        bench.sh(&format!("echo 1 > /sys/bus/pci/devices/{function}/reset"))?;
        bench.ends_with(0, "nearmetal verify")?;
        let parts: Vec<&str> = function.split([':', '.']).collect();
        let xml = GUEST.replace("BUS", parts[1]).replace("SLOT", parts[2]).replace("FUNCTION", parts[3]);
        bench.write("/root/vfguest.xml", &xml)?;
        bench.sh("virsh -q define /root/vfguest.xml && virsh -q start vfguest")?;
        let text = bench.ends_with(3, &format!("nearmetal device vfs {DRIVE} 0 --yes"))?;
        ensure!(text.contains("the guest `vfguest` has it"), "{text}");
        let text = bench.ends_with(3, &format!("nearmetal device release {function} --yes"))?;
        ensure!(text.contains("the guest `vfguest` has it"), "{text}");
        let text = bench.ends_with(0, "nearmetal device list")?;
        ensure!(text.contains("has it: vfguest") && text.contains("1 of 4, 1 used"), "{text}");
        let seen = bench.sh(SEEN)?;
        ensure!(seen.contains("live") && seen.contains("nvme0n1"), "the guest sees: {seen}");
        let text = bench.ends_with(3, "nearmetal rollback")?;
        ensure!(text.contains("holds `/dev/vfio/"), "{text}");
        bench.sh("virsh -q destroy vfguest; virsh -q undefine vfguest; nearmetal rollback")?;
        bench.sh(&format!("nearmetal device bind {function} --yes && nearmetal device release {function} --yes"))?;
        Ok(Verdict::Holds(seen.split_whitespace().collect::<Vec<_>>().join(" ")))
    })
}

/// A VM whose VF is dealt by a network of libvirt: the plan says how many, libvirt which.
const POOLED: &str = "[[host]]\nname = \"here\"\nlocal = true\n
[[vm]]\nname = \"vfguest\"\nvcpus = 1\nmemory = \"384 MiB\"\ntemplate = \"/root/vfguest.xml\"
[[vm.nic]]\nkind = \"vf\"\nnetwork = \"vfs\"\ninterface = \"enp57s0\"\nmac = \"02:00:00:00:02:07\"\n";

fn pool(bench: &Bench) -> anyhow::Result<Verdict> {
    let network =
        "<network><name>vfs</name><forward mode='hostdev' managed='yes'><pf dev='enp57s0'/></forward></network>";
    let verdict = restored(bench, || {
        bench.sh("ip link set enp57s0 up; nearmetal device vfs enp57s0 2 --mac-base 02:00:00:00:01:00 --yes")?;
        bench.write("/root/network.xml", network)?;
        bench.sh("virsh -q net-define /root/network.xml && virsh -q net-start vfs")?;
        let without = GUEST.lines().filter(|line| !line.starts_with("<hostdev")).collect::<Vec<_>>().join("\n");
        bench.write("/root/vfguest.xml", &without)?;
        bench.write("/root/pooled.toml", POOLED)?;
        bench.sh("nearmetal plan --fleet /root/pooled.toml -o /root/pooled.json")?;
        let apply = "nearmetal apply /root/pooled.json --start --yes";
        // AppArmor does not know which function libvirt will deal, and what is printed opens it.
        let text = bench.ends_with(3, apply)?;
        let command =
            text.split_once("mkdir -p /etc/apparmor.d/").and_then(|(_, rest)| rest.split_once("libvirt-qemu"));
        let (command, _) = command.with_context(|| format!("nothing says what helps: {text}"))?;
        bench.sh(&format!("mkdir -p /etc/apparmor.d/{command}libvirt-qemu && {apply}"))?;
        // The appliance's kernel has no driver for it: the guest sees the function, and the card whose address it has.
        let seen = bench.sh(&SEEN.replace(
            "cat /sys/class/nvme/nvme0/state; ls /sys/block",
            "grep -l 0x10ca /sys/bus/pci/devices/*/device",
        ))?;
        ensure!(seen.contains("/device"), "the guest sees: {seen}");
        let table = bench.sh("ip link show enp57s0 | grep ' vf '")?;
        ensure!(table.contains("02:00:00:00:02:07"), "{table}");
        let text = bench.ends_with(0, "nearmetal device list")?;
        ensure!(text.contains("has it: vfguest") && text.contains("2 of 7, 1 used"), "{text}");
        let text = bench.ends_with(3, "nearmetal device vfs enp57s0 0 --yes")?;
        ensure!(text.contains("the guest `vfguest` has it"), "{text}");
        // The plan knows that it runs with one, and asks for no other.
        let again = bench.sh("nearmetal plan --fleet /root/pooled.toml")?;
        ensure!(!again.contains("refused"), "{again}");
        bench.sh("virsh -q destroy vfguest; nearmetal rollback")?;
        let drivers = bench
            .sh("for f in /sys/class/net/enp57s0/device/virtfn*; do basename $(readlink $f/driver); done | sort -u")?;
        ensure!(drivers == "igbvf", "the functions' drivers after the guest: {drivers}");
        // libvirt loaded it for the guest; nearmetal has no part in that.
        bench.sh("modprobe -r vfio_pci")?;
        Ok(Verdict::Holds(seen.split_whitespace().collect::<Vec<_>>().join(" ")))
    });
    bench.sh("virsh -q net-destroy vfs; virsh -q net-undefine vfs; rm -rf /root/network.xml /root/pooled.* /etc/apparmor.d/local/abstractions; true")?;
    verdict
}

/// What the guest's own kernel says, through its agent; the agent may take a while to come.
const SEEN: &str = "
ask() { virsh -q qemu-agent-command vfguest \"$1\" 2>/dev/null; }
end=$(($(date +%s) + 90)); until ask '{\"execute\":\"guest-ping\"}' >/dev/null; do [ $(date +%s) -lt $end ] || exit 1; sleep 1; done
pid=$(ask '{\"execute\":\"guest-exec\",\"arguments\":{\"path\":\"/bin/sh\",\"arg\":[\"-c\",\"cat /sys/class/nvme/nvme0/state; ls /sys/block\"],\"capture-output\":true}}' | grep -o '[0-9]*')
for i in $(seq 60); do
    s=$(ask \"{\\\"execute\\\":\\\"guest-exec-status\\\",\\\"arguments\\\":{\\\"pid\\\":$pid}}\")
    case $s in *'\"exited\":true'*) echo \"$s\" | sed 's/.*\"out-data\":\"\\([^\"]*\\)\".*/\\1/' | base64 -d; exit 0;; esac
    sleep 0.5
done; echo 'the guest did not answer' >&2; exit 1";
