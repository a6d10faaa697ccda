//! Apply ends at any step, by SIGKILL or by power loss: rollback restores everything.

use anyhow::{Context, ensure};

use super::{Case, Verdict, alone, shared_long};
use crate::context::{Bench, Boot, purge};

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("crash/kill-9-once-each-change-is-made", made_points),
        alone("crash/power-loss-at-three-points", power_loss),
    ]
}

fn points(bench: &Bench) -> anyhow::Result<Vec<String>> {
    bench.found()?;
    bench.sh("nearmetal plan web1 -o /root/plan.json >/dev/null")?;
    let text = bench.sh("nearmetal apply /root/plan.json --restart --list-fault-points")?;
    let points: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    ensure!(points.len() >= 10, "only {} fault points: {text}", points.len());
    Ok(points)
}

/// Applies with a fault armed; the process must be killed by it, not end by itself.
fn crash_at(bench: &Bench, point: &str) -> anyhow::Result<()> {
    let output = bench.try_sh(&format!(
        "NEARMETAL_TESTING=1 NEARMETAL_FAULT_AT='{point}' nearmetal apply /root/plan.json --restart --yes"
    ))?;
    ensure!(output.status == 137, "at `{point}` apply ended with {} instead of SIGKILL", output.status);
    Ok(())
}

/// Rolls back what was interrupted. Before the journal's header is on disk nothing has begun, and rollback says so.
fn roll_back(bench: &Bench, point: &str) -> anyhow::Result<()> {
    if point == "begin:before-header" {
        let text = bench.ends_with(2, "nearmetal rollback --restart")?;
        ensure!(text.contains("nothing to roll back"), "{text}");
        return Ok(());
    }
    bench.sh("nearmetal rollback --restart").map(drop).with_context(|| format!("rollback after `{point}`"))
}

fn made_points(bench: &Bench) -> anyhow::Result<Verdict> {
    // Every point of apply and rollback is crashed in the tests of crates/change. What the kernel and libvirt have by then is only here:
    // at both ends, and once each change is made.
    let is_tried = |point: &&String| {
        ["begin:before-header", "end:before-commit"].contains(&point.as_str()) || point.ends_with(":made")
    };
    let all = points(bench)?;
    let points: Vec<&String> = all.iter().filter(is_tried).collect();
    ensure!(points.len() >= 5, "only {} points are tried of {all:?}", points.len());
    for point in &points {
        bench.found()?;
        // A guest that was not kept takes its plan along.
        bench.sh("test -e /root/plan.json || nearmetal plan web1 -o /root/plan.json >/dev/null")?;
        let before = bench.fingerprint()?;
        crash_at(bench, point)?;
        roll_back(bench, point)?;
        let after = bench.fingerprint()?;
        ensure!(after == before, "after `{point}` and rollback:\n{before}\n---\n{after}");
    }
    Ok(Verdict::Holds(format!("{} fault points", points.len())))
}

/// The lab itself keeps what was synced, too: else what is seen of ours would say little.
fn power_loss() -> anyhow::Result<Verdict> {
    let boot = Boot { keep: true, ..Boot::default() };
    let mut bench = Bench::up("cases-loss", &boot)?;
    let result = (|| {
        let all = points(&bench)?;
        // Three, spread over the whole of apply.
        let chosen: Vec<String> = (0..3).map(|index| all[index * (all.len() - 1) / 2].clone()).collect();
        for (index, point) in chosen.iter().enumerate() {
            bench.found()?;
            bench.sh("nearmetal plan web1 -o /root/plan.json >/dev/null; sync")?;
            let definition =
                "virsh dumpxml --inactive --security-info web1; ls /etc/systemd/system/nearmetal-boot.service 2>&1";
            let before = bench.sh(&format!("{definition}; true"))?;
            crash_at(&bench, point)?;
            // The last before the power goes, and no other sync brings it to the drive.
            let (file, word) = (format!("/root/kept-{index}"), format!("kept at {point}"));
            bench.sh(&format!("echo '{word}' > {file}; sync {file}"))?;
            bench.lab.power_loss()?;
            bench = Bench::up("cases-loss", &boot)?;
            let kept = bench.sh(&format!("cat {file} 2>&1; true"))?;
            ensure!(kept == word, "the lab itself lost what was synced: `{kept}`");
            roll_back(&bench, point)?;
            let after = bench.sh(&format!("{definition}; true"))?;
            ensure!(after == before, "after power loss at `{point}`:\n{before}\n---\n{after}");
            let pools =
                bench.sh("cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages | sort -u")?;
            ensure!(pools == "0", "pools after `{point}`: {pools}");
        }
        anyhow::Ok(Verdict::Holds(chosen.join(", ")))
    })();
    if bench.lab.is_alive() {
        bench.lab.down()?;
    }
    purge("cases-loss")?;
    result
}
