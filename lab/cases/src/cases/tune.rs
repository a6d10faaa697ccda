//! The closed loop: a VM as people make them is tuned within a budget, and its plan is used from then on.

use std::time::Duration;

use anyhow::{Context, ensure};
use nearmetal_measure::{Results, TuneVerdict, VIRT_INSTALL};

use super::{Case, Verdict, shared_long};
use crate::context::Bench;

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";
/// Seconds: boots of an emulated machine take most of it.
const BUDGET: u32 = 1300;

pub(super) fn cases() -> Vec<Case> {
    vec![shared_long("tune/the-found-vm", found_vm)]
}

fn found_vm(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let dry = bench.sh("nearmetal tune web1 --dry-run")?;
    ensure!(dry.contains("4 factors") && dry.contains("node.small.") && dry.contains("halt polling"), "{dry}");
    let tune = format!(
        "cd /root && nearmetal tune web1 --scratch {SCRATCH} --pause --quick --without pages --without iothread \
         --without engine --budget {BUDGET} --plan-out /root/tuned.json -o /root/tune.json"
    );
    let text = bench.sh_within(Duration::from_secs(u64::from(BUDGET) + 600), &tune)?;
    let results: Results = serde_json::from_str(&bench.document("/root/tune.json", "web1")?)?;
    let tuning = results.tune.as_deref().context("the document has no outcome")?;
    ensure!(tuning.took <= f64::from(BUDGET), "{} s of {BUDGET}: {text}", tuning.took);
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
    if let TuneVerdict::Use { arm } = &tuning.verdict {
        bench.sh("nearmetal apply /root/tuned.json --restart --yes && nearmetal verify web1 --agent-timeout 60")?;
        bench.sh("nearmetal rollback --restart --yes")?;
        let plan = bench.sh("nearmetal plan web1")?;
        ensure!(
            plan.contains("tune run") || arm == nearmetal_measure::PLANNED,
            "the plan does not name the run: {plan}"
        );
    }
    Ok(Verdict::Holds(figures))
}
