//! Eight runs at once, some of them killed and then the power cut: what lives has its own PUs, and nothing of the others is left.

use anyhow::{Context, ensure};
use nearmetal_units::CpuSet;

use super::super::Verdict;
use super::{FLAVOURS, nothing_is_left};
use crate::context::{Bench, Boot, purge};

const NAME: &str = "cases-eight";
const RUNS: usize = 8;
/// MiB that may be in use afterwards beyond what was before: logs. Each guest with a disk writes 20.
const BESIDE: i64 = 10;

/// Beside those of all cases: one of a vCPU with huge pages.
const PAGED: &str =
    "\n[[flavour]]\nname = \"paged\"\nvcpus = 1\nmemory = \"256 MiB\"\npage-size = \"2 MiB\"\nboot = \"appliance\"\n";

/// Starts all of them and waits until each has begun its command: the shell lines up to there. `$run1` to `$run8` are their processes.
/// Two have huge pages, and two a disk that they write to. Six sleep for a while and end with codes of their own; the sixth and the
/// eighth would sleep for long.
fn start() -> String {
    format!(
        "rm -f /root/events*; for i in $(seq {RUNS}); do
             write=; sleep=150; case $i in 6|8) sleep=3600 ;; esac
             case $i in
                 1|5) words=paged ;;
                 2|6) words='disk --image base.qcow2 --directory /root/images'; write=\"head -c 20000000 /dev/zero | tr '\\\\000' x >/dev/vda; sync;\" ;;
                 *) words=tiny ;;
             esac
             nearmetal run $words --flavours /root/flavours.toml --events /root/events$i -- sh -c \"$write sleep $sleep; exit 1$i\" >/dev/null 2>/root/said$i &
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

/// MiB in use where deltas take their room.
fn used(bench: &Bench) -> anyhow::Result<i64> {
    Ok(bench.sh("sync; df -BM --output=used /var/lib/nearmetal | tail -n 1 | tr -dc 0-9")?.parse()?)
}

/// Three are killed: a run with a disk, the QEMU of one with huge pages, and a helper. Three end by themselves, with their own codes,
/// and two go on.
fn three_killed(bench: &Bench) -> anyhow::Result<()> {
    let ended = bench.sh(&format!(
        "{}guest() {{ tail -n 1 /root/events$1 | grep -o 'run-[a-z]*-[0-9a-f]*'; }}
         kill -9 $run2; pkill -9 -f \"[g]uest=$(guest 5)\"; kill -9 $(pgrep -P $run7 -f '[n]earmetal-libvirt')
         for i in 1 2 3 4 5 7; do eval wait \\$run$i; echo code $?; done; cat /root/events*
         for i in 6 8; do pgrep -f \"[g]uest=$(guest $i)\" >/dev/null || echo run $i has no guest; done; sync",
        start()
    ))?;
    let codes: Vec<&str> = ended.lines().filter_map(|line| line.strip_prefix("code ")).collect();
    ensure!(codes == ["11", "137", "13", "14", "3", "3"] && !ended.contains("has no guest"), "{ended}");
    are_apart(&ended)
}

fn up() -> anyhow::Result<Bench> {
    let bench = Bench::up(NAME, &Boot { keep: true, machine: Some("quad-wide"), ..Boot::default() })?;
    bench.write("/root/flavours.toml", &format!("{FLAVOURS}{PAGED}"))?;
    bench.write("/root/here.toml", "[[host]]\nname = \"here\"\nlocal = true\n")?;
    bench.sh("mkdir -p /var/lib/nearmetal; [ -e /root/images ] || {
             qemu-img create -q -f qcow2 /root/base.qcow2 64M
             nearmetal image push /root/base.qcow2 --fleet /root/here.toml --directory /root/images; }")?;
    Ok(bench)
}

pub(super) fn eight_at_once() -> anyhow::Result<Verdict> {
    let mut bench = up()?;
    let result = (|| {
        // The first run makes the appliance's kernel and file system a guest's, which then stay.
        bench.sh("nearmetal run tiny --flavours /root/flavours.toml -- true")?;
        let before = used(&bench)?;
        three_killed(&bench)?;
        bench.lab.power_loss()?;
        bench = up()?;
        nothing_is_left(&bench, "the power loss")?;
        let more = used(&bench)? - before;
        ensure!(more <= BESIDE, "{more} MiB more are in use after the power loss");
        let text = bench.ends_with(7, "nearmetal run paged --flavours /root/flavours.toml -- sh -c 'exit 7'")?;
        ensure!(!text.contains("could not be given back"), "{text}");
        nothing_is_left(&bench, "the run after the power loss")?;
        Ok(Verdict::Holds(format!("{RUNS} runs at once: 3 killed, 3 ended, and the last two by the power")))
    })();
    if bench.lab.is_alive() {
        bench.lab.down()?;
    }
    purge(NAME).context("the disks of the lab")?;
    result
}
