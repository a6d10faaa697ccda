//! The job itself: plan, apply, verify, rollback, and a short measurement.

use anyhow::ensure;
use nearmetal_load::Workload;
use nearmetal_results::{AS_FOUND, BARE_SLICE, Outcome, PLANNED, Purpose, Results, VIRT_INSTALL};

use super::bench::same_arm;
use super::workloads::{has, has_once};
use super::{Case, HOLDS, Verdict, alone, shared, shared_long};
use crate::context::{Bench, Boot, purge};

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("job/plan-apply-verify-rollback", whole),
        shared_long("job/live-part-without-restart", live_only),
        shared_long("job/what-nearmetal-does-not-know-stays", unknown_stays),
        shared("job/guest-sees-what-was-planned", guest_side),
        shared_long("job/a-wide-guest-sees-the-nodes-it-lies-on", wide),
        shared_long("job/bench-measures-every-arm-and-goes-on-after-a-kill", every_arm),
        shared_long("job/bench-boots-afresh-by-default", fresh_boots),
        shared_long("job/bench-in-the-guest-itself", own_guest),
        alone("job/reboot-with-autostart", reboot),
    ]
}

fn whole(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let before = bench.fingerprint()?;
    let plan = bench.sh("nearmetal plan web1 -o /root/plan.json")?;
    ensure!(plan.contains("io_uring") && plan.contains("node 2"), "the plan does not follow the drive: {plan}");
    ensure!(bench.fingerprint()? == before, "planning changed something");
    bench.sh("nearmetal apply /root/plan.json --restart --yes")?;
    bench.wait_for_agent()?;
    let verified = bench.sh("nearmetal verify web1 --agent-timeout 60")?;
    let applied = bench.fingerprint()?;
    let would = bench.sh("nearmetal rollback --dry-run --restart")?;
    for words in ["1. shut down `web1`", "undo: redefine `web1`", "start `web1`"] {
        ensure!(would.contains(words), "{words}: {would}");
    }
    ensure!(bench.fingerprint()? == applied, "a dry run changed something");
    bench.sh("nearmetal rollback --restart")?;
    let after = bench.fingerprint()?;
    ensure!(after == before, "rollback left a difference:\n{before}\n---\n{after}");
    Ok(Verdict::Holds(format!("{} lines read back", verified.lines().count())))
}

fn unknown_stays(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    bench.sh(
        "virsh dumpxml --inactive web1 | sed 's#</domain>#<description>ours: \\&lt;keep\\&gt;</description></domain>#' > /root/kept.xml
         virsh -q define /root/kept.xml
         nearmetal plan web1 -o /root/plan.json >/dev/null && nearmetal apply /root/plan.json --restart --yes >/dev/null",
    )?;
    let text = bench.sh("virsh dumpxml --inactive web1 | grep description")?;
    ensure!(text.contains("ours: &lt;keep&gt;"), "{text}");
    Ok(HOLDS)
}

fn live_only(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    bench.sh("nearmetal plan web1 -o /root/plan.json >/dev/null")?;
    let before = bench.fingerprint()?;
    let text = bench.ends_with(3, "nearmetal apply /root/plan.json --yes")?;
    ensure!(text.contains("--restart"), "{text}");
    // Whoever only looks sees what it would be.
    let text = bench.ends_with(3, "nearmetal apply /root/plan.json --dry-run")?;
    ensure!(text.contains("shut down `web1`") && text.contains("add --restart"), "{text}");
    ensure!(bench.fingerprint()? == before, "a refused apply changed something");
    let id = bench.sh("virsh domid web1")?;
    bench.try_sh("nearmetal apply /root/plan.json --live-only --yes")?;
    ensure!(bench.sh("virsh domid web1")? == id, "the guest was restarted");
    let pinned = bench.sh("virsh -q vcpupin web1 --live")?;
    ensure!(!pinned.contains("0-11"), "vCPUs still float: {pinned}");
    bench.sh("nearmetal rollback --keep-running").map(|_| HOLDS)
}

fn guest_side(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let document = bench.json("nearmetal verify web1 --agent-timeout 60 --format json")?;
    let text = document.to_string().to_lowercase();
    ensure!(text.contains("guest") && text.contains("queue"), "no word of the guest's queues: {text}");
    Ok(HOLDS)
}

/// Four vCPUs, where a node has three PUs.
fn wide(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    bench.sh("virsh dumpxml --inactive web1 | sed -E 's#>2</vcpu>#>4</vcpu>#' > /root/wide.xml
         virsh -q destroy web1; virsh -q define /root/wide.xml; virsh -q start web1")?;
    bench.wait_for_agent()?;
    let before = bench.fingerprint()?;
    let plan = bench.sh("nearmetal plan web1 --guest-cells -o /root/plan.json")?;
    ensure!(plan.contains("guest cells") && plan.contains("vCPUs 2-3 and 192 MiB of node"), "{plan}");
    bench.sh("nearmetal apply /root/plan.json --restart --yes")?;
    bench.wait_for_agent()?;
    let verified = bench.sh("nearmetal verify web1 --agent-timeout 60")?;
    let seen = bench.sh("virsh qemu-monitor-command web1 --hmp 'info numa'")?;
    for line in ["2 nodes", "node 0 cpus: 0 1", "node 1 cpus: 2 3", "node 1 size: 192 MB"] {
        ensure!(seen.contains(line), "QEMU shows it no `{line}`: {seen}");
    }
    // Planned again, without being asked for cells, it stays as it is.
    let again = bench.json("nearmetal plan web1 --format json")?;
    let [was, is] = ["xml_before", "xml_after"].map(|which| again["domains"][0][which].as_str().unwrap_or_default());
    ensure!(was.contains("memnode") && was == is, "planned again it differs:\n{was}\n---\n{is}");
    bench.sh("nearmetal rollback --restart")?;
    let after = bench.fingerprint()?;
    ensure!(after == before, "rollback left a difference:\n{before}\n---\n{after}");
    Ok(Verdict::Holds(format!("{} lines read back", verified.lines().count())))
}

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

/// Two pairs of short samples: that every arm runs and is what it says, not how fast it is. Killed in the middle, the measurement
/// goes on with what was written down, and gives back what the first attempt had taken.
fn every_arm(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let running = bench.sh("virsh domstate web1")?;
    let text = bench.ends_with(2, &format!("nearmetal bench slice web1 --scratch {SCRATCH} --quick"))?;
    ensure!(text.contains("--pause"), "{text}");
    // Sequential, for the processor time of both sides: two workloads, reading and writing.
    bench.sh(&format!(
        "rm -f /root/kill.sqlite*
         nearmetal bench slice web1 --scratch {SCRATCH} --quick --pause --workload sequential --block-size 64KiB --pairs 2 --seconds 2 \
             --same-arm-pairs 2 --no-single-shots --no-memory --no-reasons --store /root/kill.sqlite >/root/kill.log 2>&1 &
         for second in $(seq 400); do
             runs=$(nearmetal bench history web1 --store /root/kill.sqlite 2>/dev/null | awk 'NR == 2 {{ print $7 }}')
             [ \"${{runs:-0}}\" -ge 5 ] && kill -9 $! && exit 0
             sleep 1
         done
         cat /root/kill.log; exit 1"
    ))?;
    let before = bench.sh("nearmetal bench history web1 --store /root/kill.sqlite | awk 'NR == 2 { print $7 }'")?;
    bench.sh("nearmetal bench resume 1 --store /root/kill.sqlite -o /root/r.json")?;
    let results = Results::parse(&bench.document("/root/r.json", "web1")?)?;
    for arm in [BARE_SLICE, AS_FOUND, PLANNED, VIRT_INSTALL] {
        let good = results.runs.iter().filter(|run| run.arm == arm && matches!(run.outcome, Outcome::Measured { .. }));
        let failed: Vec<_> = results.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).collect();
        ensure!(good.count() >= 4, "arm {arm} has too few runs: {failed:?}");
    }
    let pairs = results.runs.iter().filter(|run| run.purpose == Purpose::Pair).count();
    // Two rounds of four arms and of two workloads.
    ensure!(pairs == 16, "{pairs} runs of pairs");
    // Two A/A pairs of the planned clone for each workload: the resumed measurement has a noise floor too.
    let same = same_arm(&results);
    ensure!(same.len() == 8 && same.iter().all(|run| run.arm == PLANNED), "A/A runs: {same:?}");
    ensure!(results.runs.iter().is_sorted_by_key(|run| &run.started), "what was written down is not at its place");
    for (arm, percent) in [BARE_SLICE, PLANNED].into_iter().flat_map(|arm| [(arm, 100), (arm, 0)]) {
        let of = |workload: &Workload| matches!(workload, Workload::Fio(job) if job.read_percent == percent);
        has(&results, arm, "cpu", of)?;
        // Of two seconds in a slow lab the counted part may miss the requests, and then the sample says so in place of a figure.
        has_once(&results, arm, "cpu.host", of)?;
    }
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(bench.sh("virsh domstate web1")? == running, "the original is not as it was");
    ensure!(bench.sh(&format!("wipefs --noheadings {SCRATCH}"))?.is_empty(), "the scratch device is not empty again");
    let done = bench.sh("nearmetal bench history web1 --store /root/kill.sqlite")?;
    ensure!(done.lines().count() == 2 && done.contains(" done"), "{done}");
    bench.sh("nearmetal verify web1 --agent-timeout 60")?;
    let text = bench.ends_with(
        2,
        "nearmetal bench slice web1 --scratch /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_1 --quick --pause",
    )?;
    ensure!(text.contains("the guest `web1` has it open"), "the guest's own disk was not refused: {text}");
    Ok(Verdict::Holds(format!("killed after {} of {} runs", before.trim(), results.runs.len())))
}

/// Without --quick the clones of a round are booted for that round. They compress, since nothing is run once of that.
fn fresh_boots(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh(&format!(
        "rm -f /var/log/libvirt/qemu/web1-nearmetal-planned.log
         nearmetal bench slice web1 --scratch {SCRATCH} --pause --workload zstd --arm planned --no-reasons --pairs 1 --seconds 2 --no-memory -o /root/r.json"
    ))?;
    let results: Results = serde_json::from_str(&bench.document("/root/r.json", "web1")?)?;
    let failed: Vec<_> = results.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).collect();
    ensure!(failed.is_empty() && !results.quick, "{failed:?}");
    for arm in [BARE_SLICE, PLANNED] {
        for metric in ["bandwidth", "bandwidth.decompression"] {
            has(&results, arm, metric, |_| true)?;
        }
    }
    let log = bench.sh("grep -c 'starting up libvirt' /var/log/libvirt/qemu/web1-nearmetal-planned.log")?;
    let boots: usize = log.trim().parse()?;
    // At first, for the round of pairs, and for each of its own two A/A rounds.
    ensure!(boots >= 4, "the planned clone was booted {boots} times");
    Ok(Verdict::Holds(format!("{} runs, {boots} boots of the planned clone", results.runs.len())))
}

/// The guest's own system measured through its agent, by reading: that it runs, and that nothing of it stays.
fn own_guest(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let text = bench.ends_with(2, "nearmetal bench inside web1 --quick")?;
    ensure!(text.contains("--pause"), "{text}");
    bench.sh("nearmetal bench inside web1 --pause --quick --pairs 2 --seconds 1 -o /root/own.json")?;
    let results: Results = serde_json::from_str(&bench.document("/root/own.json", "web1")?)?;
    let failed: Vec<_> = results.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).collect();
    ensure!(failed.is_empty(), "{failed:?}");
    for arm in [BARE_SLICE, PLANNED] {
        let kinds =
            |prefix: &str| results.runs.iter().any(|run| run.arm == arm && run.workload.id().starts_with(prefix));
        ensure!(kinds("fio.") && kinds("memory.latency") && kinds("memory.bandwidth"), "{arm} lacks a workload");
    }
    let fio = results.provenance.get("fio in the guest").cloned().unwrap_or_default();
    ensure!(fio.starts_with("fio-"), "the guest's fio is `{fio}`");
    ensure!(bench.sh("virsh domstate web1")?.trim() == "running", "the guest is not as it was");
    let left = bench.sh("virsh -q qemu-agent-command web1 '{\"execute\":\"guest-file-open\",\"arguments\":{\"path\":\"/tmp/nearmetal-probe\"}}' 2>&1 || true")?;
    ensure!(left.contains("No such file"), "the probe was left in the guest: {left}");
    bench.sh("nearmetal verify web1 --agent-timeout 60")?;
    Ok(Verdict::Holds(format!("{} runs, {fio}", results.runs.len())))
}

fn reboot() -> anyhow::Result<Verdict> {
    let boot = Boot { keep: true, ..Boot::default() };
    let bench = Bench::up("cases-reboot", &boot)?;
    let result = (|| {
        bench.applied()?;
        bench.sh("virsh -q autostart web1")?;
        bench.lab.reboot(std::time::Duration::from_secs(300))?;
        bench.wait_for_agent()?;
        let verified = bench.sh("nearmetal verify web1 --agent-timeout 60")?;
        bench.sh("systemctl is-active nearmetal-boot.service")?;
        anyhow::Ok(Verdict::Holds(format!("{} lines read back after the reboot", verified.lines().count())))
    })();
    bench.lab.down()?;
    purge("cases-reboot")?;
    result
}
