//! Eight runs at once, some of them killed and the power cut: what lives has its own PUs, and nothing of the others is left.

use anyhow::{Context, ensure};
use nearmetal_units::CpuSet;

use super::super::Verdict;
use super::{FLAVOURS, nothing_is_left};
use crate::context::{Bench, Boot, purge};

const NAME: &str = "cases-eight";
const RUNS: usize = 8;

/// Starts all of them and waits until each has begun its command, which takes as long as `seconds` says and ends with a code of
/// its own: the shell line up to there. `$run1` to `$run8` are their processes.
fn start(seconds: u32) -> String {
    format!(
        "rm -f /root/events*; for i in $(seq {RUNS}); do
             nearmetal run tiny --flavours /root/flavours.toml --events /root/events$i -- sh -c \"sleep {seconds}; exit 1$i\" 2>/root/said$i &
             eval run$i=$!
         done
         for i in $(seq {RUNS}); do for s in $(seq 600); do grep -qs -e command-started -e ended /root/events$i && break; sleep 1; done; done
         for i in $(seq {RUNS}); do grep -q command-started /root/events$i || {{ cat /root/said$i /root/events$i; exit 99; }}; done\n"
    )
}

/// No two of them have a PU in common.
fn are_apart(events: &str) -> anyhow::Result<()> {
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["cpus"].as_str()?.parse().ok();
    let sets: Vec<CpuSet> = events.lines().filter_map(read).collect();
    let all = sets.iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    ensure!(sets.len() == RUNS && all.len() == sets.iter().map(CpuSet::len).sum::<usize>(), "{sets:?}: {events}");
    Ok(())
}

/// Three are killed: a run, a QEMU and a helper. The other five end by themselves, with their own codes.
fn three_killed(bench: &Bench) -> anyhow::Result<()> {
    let ended = bench.sh(&format!(
        "{}guest() {{ tail -n 1 /root/events$1 | grep -o 'run-tiny-[0-9a-f]*'; }}
         kill -9 $run2; pkill -9 -f \"[g]uest=$(guest 5)\"; kill -9 $(pgrep -P $run7 -f '[n]earmetal-libvirt')
         for i in $(seq {RUNS}); do eval wait \\$run$i; echo code $?; done; cat /root/events*",
        start(60)
    ))?;
    let codes: Vec<&str> = ended.lines().filter_map(|line| line.strip_prefix("code ")).collect();
    ensure!(codes == ["11", "137", "13", "14", "3", "16", "3", "18"], "{ended}");
    are_apart(&ended)?;
    nothing_is_left(bench, "eight runs, three of them killed")
}

pub(super) fn eight_at_once() -> anyhow::Result<Verdict> {
    let boot = Boot { keep: true, machine: Some("quad-wide"), ..Boot::default() };
    let up = || {
        let bench = Bench::up(NAME, &boot)?;
        bench.write("/root/flavours.toml", FLAVOURS)?;
        anyhow::Ok(bench)
    };
    let mut bench = up()?;
    let result = (|| {
        three_killed(&bench)?;
        for cut in ["the first", "the second"] {
            are_apart(&bench.sh(&format!("{}cat /root/events*; sync", start(600)))?)?;
            bench.lab.power_loss()?;
            bench = up()?;
            nothing_is_left(&bench, &format!("{cut} power loss"))?;
            let text = bench.ends_with(7, "nearmetal run pages --flavours /root/flavours.toml -- sh -c 'exit 7'")?;
            ensure!(!text.contains("could not be given back"), "{text}");
            nothing_is_left(&bench, &format!("the run after {cut} power loss"))?;
        }
        Ok(Verdict::Holds(format!("{RUNS} runs at once: 3 killed, and all of them by the power, twice")))
    })();
    if bench.lab.is_alive() {
        bench.lab.down()?;
    }
    purge(NAME).context("the disks of the lab")?;
    result
}
