//! Guests with drives of their own against bare metal: one that has a function for itself, and four at once.

use anyhow::{Context, ensure};
use nearmetal_measure::{ArmKind, Cost, Estimate, Results, compare, cost_table};
use serde_json::Value;

use super::{Case, Verdict, shared_long};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![shared_long("bench/nvme-vf-against-bare-metal", function)]
}

/// The drive that can have virtual functions.
const DRIVE: &str = "$(basename $(dirname $(dirname $(ls -d /sys/bus/pci/devices/*/nvme/nvme0))))";

/// Everything the comparison changes: drivers, overrides, pools, guests.
const STATE: &str = "
for d in /sys/bus/pci/devices/*; do echo \"$d $(readlink $d/driver) $(cat $d/driver_override $d/sriov_numvfs 2>/dev/null | tr '\\n' ' ')\"; done
cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
virsh -q list --all; ls /var/lib/nearmetal/bench.json 2>&1; true";

fn function(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh(
        "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
         mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing",
    )?;
    bench.sh(&format!("nearmetal device vfs {DRIVE} 1 --keep-driver --yes; sleep 2"))?;
    let function = bench.sh(&format!("basename $(readlink /sys/bus/pci/devices/{DRIVE}/virtfn0)"))?;
    let command = format!("nearmetal bench web1 --device {function} --quick --pause");
    let text = bench.ends_with(3, &command)?;
    ensure!(text.contains("--namespace"), "two namespaces, and it chose one: {text}");
    let text = bench.ends_with(3, &format!("{command} --namespace 2"))?;
    ensure!(text.contains("several ways"), "{text}");
    // A namespace of its own, as a drive gives its functions: the drive itself no longer leads to it.
    bench.sh("nvme detach-ns /dev/nvme0 --namespace-id=2 --controllers=0 >/dev/null; udevadm settle; sleep 1")?;
    let before = bench.sh(STATE)?;
    let measured = compared(bench, &format!("{command} --namespace 2"), &before);
    bench.sh("nvme attach-ns /dev/nvme0 --namespace-id=2 --controllers=0 >/dev/null; udevadm settle")?;
    // The function was made after the plan was applied, and is taken back alone.
    bench.sh("nearmetal rollback")?;
    measured
}

fn compared(bench: &Bench, command: &str, before: &str) -> anyhow::Result<Verdict> {
    // Killed in the middle of a guest's turn: the next one cleans up and measures.
    let killed = format!("timeout --signal=KILL 45 {command} --pairs 2 >/dev/null 2>&1; test -e /var/lib/nearmetal/bench.json");
    ensure!(bench.try_sh(&killed)?.success(), "it was not killed in the middle");
    let text = bench.sh(&format!("{command} --pairs 5 --seconds 4 -o /root/function.json"))?;
    let after = bench.sh(STATE)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    let results: Results = serde_json::from_str(&bench.sh("cat /root/function.json")?)?;
    let side = |arm: ArmKind| results.arms.iter().find(|one| one.kind == arm).map(|one| one.placement.join("; "));
    let bare = side(ArmKind::BareSlice).context("no bare arm")?;
    let guest = side(ArmKind::Planned).context("no guest")?;
    ensure!(bare.contains("driver nvme,") && guest.contains("driver vfio-pci,"), "{bare}\n{guest}");
    ensure!(guest.contains("the guest sees /dev/nvme"), "{guest}");
    let found = compare(&results)?.into_iter().find(|one| one.metric == "iops").context("no ratio")?;
    let Estimate::Paired { ratio, .. } = found.estimate else { anyhow::bail!("no pairs: {text}") };
    let interval = ratio.interval();
    let costs = cost_table(&results);
    let cost = |arm: ArmKind, group: Cost, name: &str| {
        let row = costs.iter().find(|row| row.arm == arm && row.cost == group && row.name.starts_with(name));
        row.map(|row| row.per_io).with_context(|| format!("no {name} of {}: {text}", arm.title()))
    };
    // What runs on the host raises the drive's interrupt there; the guest's comes by VFIO, and costs exits.
    let bare_interrupts = cost(ArmKind::BareSlice, Cost::Interrupts, "nvme1q")?;
    let guest_interrupts = cost(ArmKind::Planned, Cost::Interrupts, "vfio-msi")?;
    let exits = cost(ArmKind::Planned, Cost::Exits, "all")?;
    ensure!(exits > 0.0 && bare_interrupts > 0.0 && guest_interrupts > 0.0, "{text}");
    ensure!(costs.iter().any(|row| row.cost == Cost::Reasons && row.name == "interrupt"), "no reasons: {text}");
    ensure!(text.contains("lab: emulated time"), "{text}");
    let reasons: Vec<String> = costs
        .iter()
        .filter(|row| row.cost == Cost::Reasons)
        .take(5)
        .map(|row| format!("{} {:.2}", row.name, row.per_io))
        .collect();
    Ok(Verdict::Holds(format!(
        "lab: the guest does {:.2}x ({:.2} to {:.2}) of bare metal, n = {}; per I/O: {exits:.2} exits ({}), interrupts {guest_interrupts:.2} by VFIO and {bare_interrupts:.2} bare",
        ratio.ratio,
        interval.low,
        interval.high,
        ratio.n,
        reasons.join(", ")
    )))
}
