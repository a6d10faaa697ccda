//! The published experiments, each from its one command to its page: every step done, our figures beside the paper's, nothing
//! left behind, and nothing run twice.

use std::time::Duration;

use anyhow::{Context, ensure};
use nearmetal_report::view::{ExperimentView, StepState};
use nearmetal_results::{Purpose, Results, Run};

use super::bench::{STATE, define_four_with_drives, same_arm};
use super::counting::near_and_far;
use super::{Case, Verdict, alone, long_in, shared_long};
use crate::context::{Bench, Boot};
use crate::labs::Labs;

/// JVMs take nearly two minutes a sample.
const LIMIT: Duration = Duration::from_secs(3600);
const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

pub(super) fn cases() -> Vec<Case> {
    vec![
        long_in(Labs::Counting, "experiment/numa-modes-on-two-nodes", numa_modes),
        shared_long("experiment/images-io-goes-on-after-a-kill", images_io),
        long_in(Labs::FourDrives, "experiment/passthrough-io-with-two-drives", passthrough_io),
        alone("experiment/jvm-scaling-on-two-nodes", jvm_scaling),
    ]
}

/// Runs an experiment to its end. The page and the document agree, each step has its own of both, a second run measures nothing,
/// and `figures` or more of the papers' have ours beside them. `look` sees the directory with the documents before it is removed.
pub(super) fn ran(
    bench: &Bench,
    name: &str,
    words: &str,
    figures: usize,
    look: impl FnOnce(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Verdict> {
    let command = format!("nearmetal experiment run {name} {words} --quick -o /root/{name}");
    let dry = bench.sh(&format!("{command} --dry-run"))?;
    bench.sh_within(LIMIT, &command)?;
    let view: ExperimentView = serde_json::from_str(&bench.sh(&format!("cat /root/{name}/experiment.json"))?)?;
    let commands: Vec<&str> = view.steps.iter().map(|step| step.command.as_str()).collect();
    ensure!(dry.lines().eq(commands), "--dry-run says\n{dry}\nand it ran {:?}", view.steps);
    for step in &view.steps {
        ensure!(step.state == StepState::Done, "{}: {:?}", step.title, step.state);
        let (document, page) = (step.document.as_ref().context("no document")?, step.page.as_ref().context("no page")?);
        bench.document(&format!("/root/{name}/{document}"), &view.guests[0])?;
        bench.sh(&format!(
            "grep -q '</html>' /root/{name}/{page} && grep -qF 'href=\"{page}\"' /root/{name}/report.html"
        ))?;
    }
    let beside: Vec<String> = view
        .figures
        .iter()
        .filter_map(|figure| Some(format!("{}: {}, ours {}", figure.what, figure.value, figure.ours.as_ref()?.value)))
        .collect();
    ensure!(beside.len() >= figures, "{} figures of {} have ours: {beside:?}", beside.len(), view.figures.len());
    let page = bench.sh(&format!("cat /root/{name}/report.html"))?;
    // As it is written in HTML.
    let question = view.question.replace('/', "&#x2f;").replace('\'', "&#x27;");
    ensure!(page.contains("lab: emulated time") && page.contains(&question), "the page lacks `{}`", view.question);
    let again = bench.sh(&format!("{command} 2>&1 >/dev/null"))?;
    ensure!(again.matches("done before").count() == view.steps.len(), "{again}");
    let seen = look(&format!("/root/{name}"))?;
    bench.sh(&format!("rm -r /root/{name}"))?;
    let took: f64 = view.steps.iter().filter_map(|step| step.seconds).sum();
    Ok(Verdict::Holds(format!("lab: {took:.0} s; {}; {}{seen}", view.verdict(), beside.join("; "))))
}

/// Nothing beside what every experiment must show.
fn no_more(_: &str) -> anyhow::Result<String> {
    Ok(String::new())
}

/// What sees its nodes, or has one, touches memory there, and what does not scatters.
fn numa_modes(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let words = format!(
        "web1 --pause --scratch {SCRATCH} --span 32MiB --nodes 0,2 --counts 2 --mode default --mode cells --pairs 2 --seconds 2 --overlap 50 \
         --same-arm-pairs 0"
    );
    // Cells over 2 nodes; latency and bandwidth of memory, and files.
    ran(bench, "numa-modes", &words, 4, |directory| {
        let results: Results = serde_json::from_str(&bench.sh(&format!("cat {directory}/modes.json"))?)?;
        near_and_far(&results)
    })
}

/// In a lab that counts nothing: its rounds with accesses counted would take an hour.
fn jvm_scaling() -> anyhow::Result<Verdict> {
    let bench = Bench::up("java", &Boot { loads: true, ..Boot::default() })?;
    bench.applied()?;
    // One VM on each node, one over 2 nodes, and the gap to native.
    let words = "web1 --pause --nodes 0,2 --counts 2 --mode cells --mode per-node --pairs 2 --seconds 3 --start 35 --same-arm-pairs 0";
    let verdict = ran(&bench, "jvm-scaling", words, 3, no_more)?;
    bench.lab.down()?;
    Ok(verdict)
}

/// Killed in its race, it goes on with the measurement that the store has.
fn images_io(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let words = "web1 --directory /var/tmp/images --span 48MiB --budget 400 --pairs 2 --pause --without qcow2-falloc --without qcow2-full \
        --without qcow2-snapshot";
    bench.sh(&format!(
        "mkdir -p /var/tmp/images; rm -f /var/lib/nearmetal/results.sqlite*
         nearmetal experiment run images-io {words} --quick -o /root/images-io >/root/kill.log 2>&1 &
         for second in $(seq 400); do
             runs=$(nearmetal bench history web1 2>/dev/null | awk '$3 == \"disk\" {{ print $7 }}')
             [ \"${{runs:-0}}\" -ge 3 ] && kill -9 $! && exit 0
             sleep 1
         done
         cat /root/kill.log; exit 1"
    ))?;
    let on =
        bench.sh(&format!("nearmetal experiment run images-io {words} --quick -o /root/images-io 2>&1 >/dev/null"))?;
    ensure!(on.contains("going on with measurement"), "{on}");
    // The third of the paper's figures has none of ours beside it.
    let verdict = ran(bench, "images-io", words, 2, no_more)?;
    let history = bench.sh("nearmetal bench history web1")?;
    let races = history.lines().filter(|line| line.contains(" disk ")).count();
    ensure!(races == 1, "it began anew instead of going on: {history}");
    ensure!(bench.sh("ls -A /var/tmp/images; virsh list --name")?.trim() == "web1", "files or clones are left");
    Ok(verdict)
}

fn passthrough_io(bench: &Bench) -> anyhow::Result<Verdict> {
    define_four_with_drives(bench)?;
    let before = bench.sh(STATE)?;
    // 4 and 8 KiB of one guest, then one and two guests at once, with A/A pairs of both together.
    let words = "w0 w1 --plan /root/plan.json --pairs 2 --seconds 2 --overlap 50";
    let verdict = ran(bench, "passthrough-io", words, 4, |directory| {
        let results: Results = serde_json::from_str(&bench.sh(&format!("cat {directory}/together.json"))?)?;
        for count in [1, 2] {
            let pair = |run: &Run| run.purpose == Purpose::Pair && run.count == count && run.failure().is_none();
            ensure!(results.runs.iter().any(pair), "{count} guests at once were not measured: {:?}", results.runs);
        }
        for member in &results.tenants {
            let found = member.placement.join("; ");
            ensure!(found.contains("driver vfio-pci,"), "{}: {found}", member.guest);
        }
        let page = bench.sh(&format!("cat {directory}/together.html"))?;
        ensure!(
            page.contains("handed over by VFIO") && page.contains("vfio-msi"),
            "the page has no interrupts by VFIO"
        );
        let same = same_arm(&results);
        ensure!(same.len() >= 2 && same.iter().all(|run| run.count == 2), "A/A runs: {same:?}");
        Ok(String::new())
    })?;
    let after = bench.sh(STATE)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    Ok(verdict)
}
