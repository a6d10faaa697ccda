//! After a boot, what runs of all users say lies in a file system of its own; full, it stops runs from beginning, and nobody from
//! giving back.

use anyhow::{Context, ensure};

use super::super::Verdict;
use super::session::{BEGUN, nothing_is_left, run, users};
use crate::context::{Bench, Boot, purge};

const NAME: &str = "cases-mounted";
const MOUNT: &str = include_str!("../../../../../packaging/systemd/run-nearmetal-runs.mount");
const DIRECTORIES: &str = include_str!("../../../../../packaging/tmpfiles/nearmetal.conf");

fn up() -> anyhow::Result<Bench> {
    Bench::up(NAME, &Boot { keep: true, ..Boot::default() })
}

/// As the packages install it: wanted by local-fs.target, and not started.
fn install(bench: &Bench) -> anyhow::Result<()> {
    bench.write("/etc/systemd/system/run-nearmetal-runs.mount", MOUNT)?;
    bench.write("/etc/tmpfiles.d/nearmetal.conf", DIRECTORIES)?;
    bench.sh("mkdir -p /etc/systemd/system/local-fs.target.wants
         ln -s ../run-nearmetal-runs.mount /etc/systemd/system/local-fs.target.wants/; sync")?;
    Ok(())
}

fn is_mounted(bench: &Bench) -> anyhow::Result<()> {
    let mounted = bench.sh(
        "findmnt -no FSTYPE,SIZE /run/nearmetal/runs; stat -c '%a %U %G' /run/nearmetal/runs /run/nearmetal/runs/lock",
    )?;
    let words: Vec<&str> = mounted.split_whitespace().collect();
    ensure!(words == ["tmpfs", "32M", "3770", "root", "kvm", "640", "root", "kvm"], "{mounted}");
    Ok(())
}

fn full(bench: &Bench) -> anyhow::Result<()> {
    let as_bob = "setpriv --reuid bob --regid bob --init-groups";
    let ended = bench.sh(&format!(
        "events=/var/tmp/events-alice; {} 2>/var/tmp/said & run=$!; {BEGUN}
         {as_bob} sh -c 'head -c 64M /dev/zero >/run/nearmetal/runs/full' 2>/dev/null; df --output=avail /run/nearmetal/runs | tail -n 1
         {} 2>&1; echo code $?; nearmetal run tiny --flavours /var/tmp/flavours.toml -- true 2>&1; echo code $?
         kill -TERM $run; wait $run; echo code $?; cat /var/tmp/said",
        run("alice", "tiny --events $events -- sleep 600"),
        run("bob", "tiny -- true"),
    ))?;
    let codes: Vec<&str> = ended.lines().filter_map(|line| line.strip_prefix("code ")).collect();
    ensure!(codes == ["3", "3", "143"], "{ended}");
    ensure!(ended.lines().next().is_some_and(|left| left.trim() == "0") && ended.contains("No space left"), "{ended}");
    ensure!(!ended.contains("could not be given back"), "{ended}");
    bench.sh(&format!("{as_bob} rm /run/nearmetal/runs/full"))?;
    bench.sh(&run("alice", "tiny -- true"))?;
    nothing_is_left(bench, "a full directory")
}

pub(super) fn from_boot() -> anyhow::Result<Verdict> {
    let mut bench = up()?;
    let result = (|| {
        install(&bench)?;
        bench.lab.power_loss()?;
        bench = up()?;
        is_mounted(&bench)?;
        users(&bench)?;
        full(&bench)?;
        Ok(Verdict::Holds("mounted at boot; full, it refuses two runs and lets a third give back".to_owned()))
    })();
    if bench.lab.is_alive() {
        bench.lab.down()?;
    }
    purge(NAME).context("the disks of the lab")?;
    result
}
