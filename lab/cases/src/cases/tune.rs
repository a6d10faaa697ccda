//! The closed loop: a VM as people make them is tuned within a budget, and its plan is used from then on.

use std::time::Duration;

use anyhow::{Context, ensure};
use nearmetal_results::{AS_FOUND, PLANNED, Results, TuneVerdict, VIRT_INSTALL};

use super::{Case, Verdict, shared_long};
use crate::context::Bench;

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";
/// Seconds: boots of an emulated machine take most of it, and what is left goes into more rounds.
const BUDGET: u32 = 1100;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("tune/the-found-vm", found_vm),
        shared_long("tune/a-vm-itself-under-a-command-of-its-users", under_a_command),
    ]
}

fn found_vm(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    // With a budget that has room for what races alone, too.
    let dry = bench.sh("nearmetal tune web1 --dry-run --budget 1h")?;
    ensure!(dry.contains("4 factors") && dry.contains("node.small.") && dry.contains("halt_poll_ns"), "{dry}");
    // A node has three PUs, which its two vCPUs and the helper threads have.
    let told = |factor: &str, why: &str| dry.lines().any(|line| line.trim().starts_with(factor) && line.contains(why));
    ensure!(told("emulator ", "are the same") && told("iothread-pu ", "are the same"), "{dry}");
    ensure!(told("iothreads ", "no other PU is free") && dry.contains("iothread.guest-polls"), "{dry}");
    let tune = format!(
        "cd /root && nearmetal tune web1 --scratch {SCRATCH} --pause --quick --without pages --without pins --without iothread \
         --without engine --plan-out /root/tuned.json -o /root/tune.json"
    );
    let text = within(bench, &tune, BUDGET)?;
    let results: Results = serde_json::from_str(&bench.document("/root/tune.json", "web1")?)?;
    let tuning = results.tune.as_deref().context("the document has no outcome")?;
    ensure!(tuning.took <= f64::from(tuning.budget), "{} s of {}: {text}", tuning.took, tuning.budget);
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(bench.sh(&format!("wipefs --noheadings {SCRATCH}"))?.is_empty(), "the scratch device is not empty again");
    let worse = tuning.to_rule.as_ref().is_some_and(|ratio| ratio.interval().high < 1.0);
    ensure!(!worse, "the winner is worse than the plan by rule: {text}");
    ensure!(
        tuning.arms.iter().any(|arm| arm.id == VIRT_INSTALL && arm.rounds >= 3),
        "virt-install was not raced: {text}"
    );
    let figures = format!(
        "lab: {} in {:.0} s, {:?} of the VM as found",
        tuning.verdict.arm(),
        tuning.took,
        tuning.to_found.as_ref().map(|ratio| ratio.ratio)
    );
    // A guest that polls by itself really starts, and has a row of its own.
    ensure!(tuning.alone.iter().any(|own| own.of.factor.id == "polling"), "polling was not raced: {text}");
    if let TuneVerdict::Use { arm } = &tuning.verdict {
        bench.sh("nearmetal apply /root/tuned.json --restart --yes && nearmetal verify web1 --agent-timeout 60")?;
        bench.sh("nearmetal rollback --restart")?;
        let plan = bench.sh("nearmetal plan web1")?;
        ensure!(plan.contains("tune run") || arm == PLANNED, "the plan does not name the run: {plan}");
    }
    Ok(Verdict::Holds(figures))
}

/// Runs a tune within so many seconds, or, where boots take longer than that has room for, within what it asks for.
fn within(bench: &Bench, tune: &str, budget: u32) -> anyhow::Result<String> {
    bench.sh_within(
        Duration::from_secs(5400),
        &format!(
            "{tune} --budget {budget} 2>/root/said || {{
                 needed=$(sed -n 's/.*take about \\([0-9]*\\) s here.*/\\1/p' /root/said)
                 [ -n \"$needed\" ] || {{ cat /root/said >&2; exit 1; }}
                 {tune} --budget $((needed * 11 / 10)); }}"
        ),
    )
}

/// What must be as before: the definition that libvirt keeps, the pools, and that it runs by that definition.
const STATE: &str = "virsh dumpxml --inactive web1 | sha256sum; cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
virsh domstate web1; virsh dumpxml web1 | grep -c nearmetal-turn; ls /var/lib/nearmetal/bench.json 2>/dev/null; true";
/// Seconds: each sample is a shutdown and a boot. It ends sooner where these are quick, since its fresh rounds are few.
const OF_A_COMMAND: u32 = 1900;
/// So many that no slow machine refuses it; it is killed long before.
const OF_WHAT_IS_KILLED: u32 = 3600;

/// Killed while the VM runs as an arm, rollback gives it back; then a whole tune, which leaves it as it was too.
fn under_a_command(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let before = bench.sh(STATE)?;
    let tune = "nearmetal tune web1 --command 'dd if=/dev/vda of=/dev/null bs=4k count=2000 iflag=direct' --restart --quick --without pages \
         --without pins --without engine --without network --without polling -o /root/command.json --plan-out /root/command-plan.json";
    bench.sh_within(
        Duration::from_secs(400),
        &format!(
            "{tune} --budget {OF_WHAT_IS_KILLED} >/root/kill.log 2>&1 & until virsh dumpxml web1 2>/dev/null | grep -q nearmetal-turn; do
                 kill -0 $! || {{ cat /root/kill.log; exit 1; }}; sleep 0.5; done
             kill -9 $!; nearmetal rollback"
        ),
    )?;
    let after = bench.sh(STATE)?;
    ensure!(after == before, "after a kill and a rollback:\n{after}\nbefore:\n{before}");
    bench.wait_for_agent()?;
    let text = within(bench, tune, OF_A_COMMAND)?;
    let after = bench.sh(STATE)?;
    ensure!(after == before, "after:\n{after}\nbefore:\n{before}");
    let results: Results = serde_json::from_str(&bench.document("/root/command.json", "web1")?)?;
    let tuning = results.tune.as_deref().context("the document has no outcome")?;
    ensure!(tuning.took <= f64::from(tuning.budget), "{} s of {}: {text}", tuning.took, tuning.budget);
    let placed = |arm: &str| results.arm(arm).map(|arm| arm.placement.join("; ")).unwrap_or_default();
    ensure!(placed(AS_FOUND).contains("vCPU 0") && placed(AS_FOUND) != placed(PLANNED), "{}", placed(PLANNED));
    ensure!(placed(PLANNED).contains("iothread"), "{}", placed(PLANNED));
    for arm in &tuning.arms {
        ensure!(arm.rounds >= 3, "{} was raced in {} rounds: {text}", arm.id, arm.rounds);
    }
    let page =
        "nearmetal report /root/command.json -o /root/command-page >/dev/null && cat /root/command-page/report.html";
    ensure!(
        bench.sh(page)?.contains("shut down and started for each sample"),
        "the page does not say how it was measured"
    );
    Ok(Verdict::Holds(format!(
        "lab: {} of {} arms in {:.0} s, {:?} of the VM as found",
        tuning.verdict.arm(),
        tuning.arms.len(),
        tuning.took,
        tuning.to_found.as_ref().map(|ratio| ratio.ratio)
    )))
}
