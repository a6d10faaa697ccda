//! Guests against bare metal: one that has a function of a drive for itself, one with a neighbour, and four at once.

use anyhow::{Context, ensure};
use nearmetal_load::Cost;
use nearmetal_results::{BARE_SLICE, Comparison, Estimate, PLANNED, Purpose, Results, Run, compare, cost_table};

use super::{Case, Verdict, long_in, shared_long};
use crate::context::Bench;
use crate::labs::Labs;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("bench/nvme-vf-against-bare-metal", function),
        shared_long("bench/a-neighbour-on-the-slice-is-seen-and-said", neighbour),
        long_in(Labs::FourDrives, "bench/four-guests-on-four-nodes", side_by_side),
    ]
}

/// The drive that can have virtual functions.
const DRIVE: &str = "$(basename $(dirname $(dirname $(ls -d /sys/bus/pci/devices/*/nvme/nvme0))))";

/// Everything the comparison changes: drivers, overrides, pools, mounts, guests.
pub(super) const STATE: &str = "
for d in /sys/bus/pci/devices/*; do echo \"$d $(readlink $d/driver) $(cat $d/driver_override $d/sriov_numvfs 2>/dev/null | tr '\\n' ' ')\"; done
cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
grep -E ' (debugfs|tracefs) ' /proc/mounts
virsh -q list --all; ls /var/lib/nearmetal/bench.json 2>&1; true";

fn function(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh(&format!("nearmetal device vfs {DRIVE} 1 --keep-driver --yes; sleep 2"))?;
    let function = bench.sh(&format!("basename $(readlink /sys/bus/pci/devices/{DRIVE}/virtfn0)"))?;
    let command = format!("nearmetal bench drive web1 {function} --quick --pause");
    let text = bench.ends_with(2, &command)?;
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
    let killed =
        format!("timeout --signal=KILL 40 {command} --pairs 2 >/dev/null 2>&1; test -e /var/lib/nearmetal/bench.json");
    ensure!(bench.try_sh(&killed)?.success(), "it was not killed in the middle");
    let text = bench.sh(&format!("{command} --pairs 3 --seconds 3 -o /root/function.json"))?;
    let after = bench.sh(STATE)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    let results: Results = serde_json::from_str(&bench.document("/root/function.json", "web1")?)?;
    let side = |arm: &str| results.arm(arm).map(|one| one.placement.join("; "));
    let bare = side(BARE_SLICE).context("no bare arm")?;
    let guest = side(PLANNED).context("no guest")?;
    ensure!(bare.contains("driver nvme,") && guest.contains("driver vfio-pci,"), "{bare}\n{guest}");
    ensure!(guest.contains("the guest sees /dev/nvme"), "{guest}");
    let found = compare(&results)?.into_iter().find(|one| one.metric == "iops").context("no ratio")?;
    let Estimate::Paired { ratio, .. } = found.estimate else { anyhow::bail!("no pairs: {text}") };
    let costs = cost_table(&results);
    let cost = |arm: &str, group: Cost, name: &str| {
        let row = costs.iter().find(|row| row.arm.id == arm && row.cost == group && row.name.starts_with(name));
        row.map(|row| row.per_io).with_context(|| format!("no {name} of {arm}: {text}"))
    };
    // What runs on the host raises the drive's interrupt there; the guest's comes by VFIO, and costs exits.
    let bare_interrupts = cost(BARE_SLICE, Cost::Interrupts, "nvme1q")?;
    let guest_interrupts = cost(PLANNED, Cost::Interrupts, "vfio-msi")?;
    let exits = cost(PLANNED, Cost::Exits, "all")?;
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
        "lab: the guest does {ratio} of bare metal, n = {}; per I/O: {exits:.2} exits ({}), interrupts {guest_interrupts:.2} by VFIO and {bare_interrupts:.2} bare",
        ratio.n,
        reasons.join(", ")
    )))
}

/// A loop on a PU of the slice: each sample that it ran beside is repeated, and marked since it is still there.
fn neighbour(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh("pu=$(virsh -q vcpupin web1 --live | awk 'NR == 1 {print $2}')
        setsid taskset -c $pu sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null & echo $! > /run/neighbour.pid")?;
    let measured = bench.try_sh("nearmetal bench slice web1 --arm planned --no-reasons --quick --pause --pairs 2 --seconds 3 --no-memory --no-single-shots --same-arm-pairs 0 --scratch /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 -o /root/neighbour.json");
    bench.sh("kill -- -$(cat /run/neighbour.pid)")?;
    let text = measured?.text();
    let results: Results = serde_json::from_str(&bench.document("/root/neighbour.json", "web1")?)?;
    let words = "something else ran on its PUs: `sh`";
    for arm in [BARE_SLICE, PLANNED] {
        let of: Vec<_> = results.runs.iter().filter(|run| run.arm == arm).collect();
        let repeated = of.iter().filter(|run| run.failure().is_some_and(|why| why.starts_with(words))).count();
        let marked = of.iter().filter(|run| run.notes().iter().any(|note| note.starts_with(words))).count();
        ensure!(repeated >= 2 && marked >= 2, "{arm}: {repeated} repeated, {marked} marked: {text}");
    }
    ensure!(results.caveats.iter().any(|one| one.starts_with("something else ran on the PUs of")), "{text}");
    Ok(Verdict::Holds(results.caveats.last().cloned().unwrap_or_default()))
}

/// Samples in which four guests overlap though a few emulated processors start them: longer than they are apart.
const PAIRS_OF_FOUR: &str = "--pairs 3 --seconds 9 --same-arm-pairs 0";

/// A drive of the machine `quad-4nvme`: one on each node, empty.
fn drive_of(node: usize) -> String {
    format!("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_drive{node}_1")
}

/// Four guests of one vCPU, each with what `disk` makes of its node's drive, planned together.
fn define_four(bench: &Bench, disk: impl Fn(usize) -> anyhow::Result<String>) -> anyhow::Result<()> {
    bench.cleared()?;
    let found = nearmetal_lab::domains::FOUND;
    let (before, rest) = found.split_once("<disk").context("the guest has no disk")?;
    let (_, after) = rest.split_once("</disk>").context("the guest's disk does not end")?;
    for node in 0..4 {
        let xml = format!("{before}{}{after}", disk(node)?)
            .replace("<name>web1<", &format!("<name>w{node}<"))
            .replace("<memory unit='MiB'>384<", "<memory unit='MiB'>320<")
            .replace("<vcpu>2<", "<vcpu>1<");
        bench.write(&format!("/root/w{node}.xml"), &xml)?;
        bench.sh(&format!("virsh -q define /root/w{node}.xml"))?;
    }
    bench.sh("nearmetal plan w0 w1 w2 w3 -o /root/plan.json").map(drop)
}

/// Guests over bare slices by rate, for each number of guests.
pub(super) fn rates(results: &Results) -> anyhow::Result<Vec<Comparison>> {
    let rate = |one: &Comparison| Some(&one.metric) == one.workload.rate().as_ref() && one.pairs.len() > 1;
    Ok(compare(results)?.into_iter().filter(rate).collect())
}

/// Runs of A/A pairs that were measured.
pub(super) fn same_arm(results: &Results) -> Vec<&Run> {
    results.runs.iter().filter(|run| run.purpose == Purpose::SameArm && run.failure().is_none()).collect()
}

/// Each guest is on its drive's node, each sample that counts ran side by side, and at least two pairs of all four count.
fn four_side_by_side(bench: &Bench, text: &str) -> anyhow::Result<Verdict> {
    ensure!(text.contains("lab: emulated time") && text.contains("overlap: "), "{text}");
    let results: Results = serde_json::from_str(&bench.document("/root/together.json", "w0")?)?;
    for (node, member) in results.tenants.iter().enumerate() {
        let nodes = member.slice.nodes.to_string();
        ensure!(nodes == node.to_string(), "{} is on node {nodes}, and its drive on {node}", member.guest);
    }
    let counted = results.runs.iter().filter(|run| run.failure().is_none()).filter_map(|run| run.together.as_ref());
    let least = results.least_overlap.context("no least overlap")?;
    ensure!(counted.clone().count() > 0 && counted.clone().all(|sample| sample.overlap >= least), "{text}");
    let ratios = rates(&results)?;
    let all = ratios.iter().find(|one| one.count == 4).with_context(|| format!("no ratio of four: {text}"))?;
    ensure!(all.pairs.len() >= 2, "only {} pairs of four ran side by side: {text}", all.pairs.len());
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("note: ")).collect();
    Ok(Verdict::Holds(lines.join(" | ")))
}

/// Four guests, each with the drive of its node for itself.
pub(super) fn define_four_with_drives(bench: &Bench) -> anyhow::Result<()> {
    define_four(bench, |node| {
        let address = bench.sh(&format!(
            "basename $(readlink -f $(dirname $(grep -lw drive{node} /sys/class/nvme/*/serial))/device)"
        ))?;
        let [domain, bus, rest] = address.trim().split(':').collect::<Vec<_>>()[..] else {
            anyhow::bail!("drive{node} is at `{address}`");
        };
        let (slot, function) = rest.split_once('.').context("an address without a function")?;
        Ok(format!(
            "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/></source></hostdev>"
        ))
    })
}

fn side_by_side(bench: &Bench) -> anyhow::Result<Verdict> {
    define_four(bench, |node| {
        let drive = drive_of(node);
        Ok(format!("<disk type='block' device='disk'><source dev='{drive}'/><target dev='vda' bus='virtio'/></disk>"))
    })?;
    bench.sh("nearmetal apply /root/plan.json --yes")?;
    let before = bench.sh(STATE)?;
    let scratch: String = (0..4).map(|node| format!(" --scratch {}", drive_of(node))).collect();
    let command = format!("nearmetal bench together w0 w1 w2 w3{scratch} --quick");
    let text = bench.ends_with(2, &format!("{command} --scratch /dev/vda"))?;
    ensure!(text.contains("4 VMs") && text.contains("5 scratch devices"), "{text}");
    let text = bench.sh(&format!("{command} {PAIRS_OF_FOUR} -o /root/together.json"))?;
    let after = bench.sh(STATE)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    for node in 0..4 {
        let left = bench.sh(&format!("wipefs --noheadings {}", drive_of(node)))?;
        ensure!(left.is_empty(), "the drive of node {node} is not empty again: {left}");
    }
    four_side_by_side(bench, &text)
}
