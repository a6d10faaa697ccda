//! Tiles of guests that serve: one, then two, over a bridge and over virtual functions of one port.

use std::time::Duration;

use anyhow::ensure;
use nearmetal_results::{Full, Results, filled, miss_text};

use super::{Case, Verdict, whole};
use crate::context::{Bench, Boot};

/// Guests are booted for each way's turn, and their servers make their contents first.
const LIMIT: Duration = Duration::from_secs(5400);
/// A driver on an emulated processor is late by more than a twentieth of a second.
const LIMITS: &str = "[web]\nwithin = [[0.95, 9000], [0.99, 15000]]\n[idle]\nwithin = [[0.99, 6000]]\n";

/// A guest without a disk and with no card: what it serves it has in memory.
const GUEST: &str = "<domain type='kvm'><name>NAME</name><memory unit='MiB'>448</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>/var/lib/libvirt/boot/vmlinuz</kernel>
<initrd>/var/lib/libvirt/boot/initramfs.cpio.gz</initrd><cmdline>console=ttyS0 quiet pci=lastbus=0 hpet=disable</cmdline></os>
<features><acpi/></features><cpu mode='host-passthrough'/><devices>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>";

/// What a measurement must leave as it was.
const NETWORK: &str = "ip -brief link | sort; ls /run/netns 2>/dev/null; virsh list --all
for f in /sys/bus/pci/devices/*/physfn; do echo $f $(readlink $(dirname $f)/driver); done
cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; cat /var/lib/nearmetal/bench.json 2>/dev/null; true";

pub(super) fn cases() -> Vec<Case> {
    vec![whole("tiles/two-tiles-both-ways", both_ways)]
}

/// Two tiles of a web server and an idle guest. Whether emulated guests answer in time says nothing; that all are asked, read
/// back, judged and shown as emulated does, and that the machine is afterwards as it was.
fn both_ways() -> anyhow::Result<Verdict> {
    let bench = Bench::up("cases-tiles", &Boot { machine: Some("quad-tiles"), loads: true, ..Boot::default() })?;
    let result = measured(&bench);
    bench.lab.down()?;
    result
}

fn measured(bench: &Bench) -> anyhow::Result<Verdict> {
    let guests = ["w1", "i1", "w2", "i2"];
    for guest in guests {
        bench.write(&format!("/root/{guest}.xml"), &GUEST.replace("NAME", guest))?;
        bench.sh(&format!("virsh -q define /root/{guest}.xml"))?;
    }
    bench.write("/root/limits.toml", LIMITS)?;
    let port = bench.sh("basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_totalvfs | head -n 1)))")?;
    bench.sh(&format!("ip link set {port} up; nearmetal device vfs {port} 4 --keep-driver --yes"))?;
    bench.sh(&format!("nearmetal plan {} -o /root/plan.json", guests.join(" ")))?;
    let before = bench.sh(NETWORK)?;
    let command = format!(
        "nearmetal bench tiles --tile web=w1,idle=i1 --tile web=w2,idle=i2 --port {port} --plan /root/plan.json \
         --limits /root/limits.toml"
    );
    let short = bench.ends_with(2, &format!("{command} --tile web=w1,idle=i1"))?;
    ensure!(short.contains("`w1` is named twice"), "{short}");
    // Samples that give no figures are a finding (1), and each arm must have some that do.
    let ran = bench.sh_within(
        LIMIT,
        &format!("{command} --scale 0.01 --seconds 20 --ramp 5 --samples 1 -o /root/tiles.json 2>&1; test $? -le 1"),
    )?;
    let after = bench.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    let results = Results::parse(&bench.document("/root/tiles.json", "w1")?)?;
    for arm in filled(&results) {
        ensure!(!arm.levels.is_empty() && !arm.levels[0].samples.is_empty(), "{}: {}: {ran}", arm.arm, arm.why());
        let placed = results.arm(&arm.arm).map(|one| one.placement.join("; ")).unwrap_or_default();
        let words = if arm.arm == "vf" { "driver igbvf" } else { "virtio_net" };
        ensure!(placed.contains(words), "{}: {placed}", arm.arm);
    }
    ensure!(ran.contains("emulated, at 0.01 times the usual rates"), "{ran}");
    let page = "nearmetal report /root/tiles.json -o /root/page >/dev/null && grep -c 'Emulated, at 0.01 times' /root/page/report.html";
    ensure!(bench.sh(page)? != "0", "the page does not say that it is emulated");
    let starved = starved(bench, &command)?;
    let held: Vec<&str> = ran.lines().filter(|line| line.contains(" held ")).collect();
    Ok(Verdict::Holds(format!("lab: {}; {starved}", held.join("; "))))
}

/// Guests whose processors are taken away while they are asked: the first tile fails, and the document says which limit.
fn starved(bench: &Bench, command: &str) -> anyhow::Result<String> {
    let quota = "systemctl set-property --runtime machine.slice CPUQuota=";
    let asks = "pgrep -f '[n]earmetal-probe load' >/dev/null; do sleep 1; done";
    let take = format!("until {asks}; {quota}2%; while {asks}; {quota}");
    let said = bench.sh_within(
        LIMIT,
        &format!(
            "({take}) & {command} --ways bridge --scale 0.01 --seconds 20 --ramp 5 --samples 1 -o /root/starved.json 2>&1
             echo ended with $?; kill $! 2>/dev/null; {quota}"
        ),
    )?;
    let results = Results::parse(&bench.document("/root/starved.json", "w1")?)?;
    let all = filled(&results);
    let [arm] = all.as_slice() else { anyhow::bail!("not one arm: {said}") };
    ensure!(matches!(arm.ended, Some((1, Full::Quality { .. }))) && arm.held == 0, "{}: {said}", arm.why());
    let misses = arm.levels.iter().flat_map(|level| &level.samples).flat_map(|sample| &sample.misses);
    let texts: Vec<String> = misses.map(miss_text).collect();
    ensure!(texts.iter().any(|text| text.contains("`w1`")), "{texts:?}: {said}");
    Ok(texts.join("; "))
}
