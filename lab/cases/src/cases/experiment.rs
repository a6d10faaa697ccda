//! The published experiments, each from its one command to its page: every step done, our figures beside the paper's, nothing
//! left behind, and nothing run twice.

use anyhow::{Context, ensure};
use nearmetal_lab::machine::Count;
use nearmetal_report::view::{ExperimentView, StepState};

use super::bench::{STATE, define_four_with_drives, on_four_nodes};
use super::net::{second_guest, with_peer};
use super::{Case, Verdict, alone, shared_long};
use crate::context::{Bench, Boot};

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("experiment/numa-modes-on-two-nodes", numa_modes),
        shared_long("experiment/images-io-goes-on-after-a-kill", images_io),
        shared_long("experiment/virtio-io-with-few-ways", virtio_io),
        alone("experiment/passthrough-io-with-two-drives", passthrough_io),
        alone("experiment/net-paths-with-two-guests", net_paths),
        alone("experiment/jvm-scaling-on-two-nodes", jvm_scaling),
    ]
}

/// Runs an experiment to its end. The page and the document agree, each step has its own of both, a second run measures nothing,
/// and `figures` or more of the papers' have ours beside them.
fn ran(bench: &Bench, name: &str, words: &str, figures: usize) -> anyhow::Result<Verdict> {
    let command = format!("nearmetal experiment run {name} {words} --quick -o /root/{name}");
    let dry = bench.sh(&format!("{command} --dry-run"))?;
    bench.sh(&command)?;
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
    ensure!(page.contains("lab: emulated time") && page.contains(&view.question), "{page}");
    let again = bench.sh(&format!("{command} 2>&1 >/dev/null"))?;
    ensure!(again.matches("done before").count() == view.steps.len(), "{again}");
    bench.sh(&format!("rm -r /root/{name}"))?;
    let took: f64 = view.steps.iter().filter_map(|step| step.seconds).sum();
    Ok(Verdict::Holds(format!("lab: {took:.0} s; {}; {}", view.verdict(), beside.join("; "))))
}

fn numa_modes(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let words = format!("web1 --pause --scratch {SCRATCH} --nodes 0,2 --counts 2 --pairs 2 --seconds 2");
    // One VM on each node, and cells over 2 nodes; memory and files.
    ran(bench, "numa-modes", &words, 5)
}

fn jvm_scaling() -> anyhow::Result<Verdict> {
    let bench = Bench::up("java", &Boot { loads: true, count: Some(Count::Work), ..Boot::default() })?;
    bench.applied()?;
    // One VM on each node, one over 2 nodes, and the gap to native.
    let verdict = ran(&bench, "jvm-scaling", "web1 --pause --nodes 0,2 --counts 2 --pairs 2 --seconds 5", 3)?;
    bench.lab.down()?;
    Ok(verdict)
}

/// Killed in its race, it goes on with the measurement that the store has.
fn images_io(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let words = "web1 --directory /var/tmp/images --span 64MiB --budget 480 --pairs 3 --pause";
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
    let verdict = ran(bench, "images-io", words, 3)?;
    let history = bench.sh("nearmetal bench history web1")?;
    let races = history.lines().filter(|line| line.contains(" disk ")).count();
    ensure!(races == 1, "it began anew instead of going on: {history}");
    ensure!(bench.sh("ls -A /var/tmp/images; virsh list --name")?.trim() == "web1", "files or clones are left");
    Ok(verdict)
}

fn virtio_io(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let without =
        ["directsync", "writeback", "device", "lvm", "virtio-scsi", "q1", "discard", "2-iothreads", "sectors-4096"];
    let without: String = without.map(|word| format!(" --without {word}")).concat();
    ran(bench, "virtio-io", &format!("web1 --pause --scratch {SCRATCH} --budget 420 --pairs 3{without}"), 2)
}

fn passthrough_io() -> anyhow::Result<Verdict> {
    on_four_nodes(|bench| {
        define_four_with_drives(bench)?;
        let before = bench.sh(STATE)?;
        let words = "w0 w1 --plan /root/plan.json --pairs 2 --seconds 2";
        // 4 and 8 KiB of one guest; four guests are not there.
        let verdict = ran(bench, "passthrough-io", words, 4)?;
        let after = bench.sh(STATE)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        Ok(verdict)
    })
}

/// The lab's emulated card passes nothing of a bridge while it has functions. So the step with functions fails at first, and the
/// same command runs it alone once they are there.
fn net_paths() -> anyhow::Result<Verdict> {
    with_peer(0, |server, _| {
        second_guest(server)?;
        let ways = ["no-offloads", "rps", "multiqueue", "macvtap"];
        let without: String = ways.map(|word| format!(" --without {word}")).concat();
        let on = "--port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";
        let words = format!("net1 net2 --plan /root/plan.json {on} --pairs 2 --seconds 2 --budget 420{without}");
        let first =
            server.ends_with(3, &format!("nearmetal experiment run net-paths {words} --quick -o /root/net-paths"))?;
        ensure!(first.contains("Guests at once with virtual functions") && first.contains("failed: "), "{first}");
        server.sh("nearmetal device vfs enp57s0 2 --keep-driver --yes")?;
        // User space beside vhost-net, and streams of one guest and of two.
        ran(server, "net-paths", &words, 3)
    })
}
