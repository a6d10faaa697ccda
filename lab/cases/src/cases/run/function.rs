//! A virtual function of a port for each guest: its own while it runs, and back with the host's driver however the run ends.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::super::{HOLDS, Verdict};
use super::{flavours, nothing_is_left};
use crate::context::Bench;

const PORT: &str = "enp57s0";

const FLAVOUR: &str =
    "[[flavour]]\nname = \"vf\"\nvcpus = 1\nmemory = \"384 MiB\"\nboot = \"appliance\"\ngrace = \"5s\"
function = \"enp57s0\"\n";

const RUN: &str = "nearmetal run vf --flavours /root/vf.toml";

/// What drives each function, and for whom it is kept: of two that nobody has, [`FREE`].
const DRIVERS: &str = "for f in /sys/class/net/enp57s0/device/virtfn*; do echo $(basename $(readlink $f/driver || echo none)) $(cat $f/driver_override); done";
const FREE: &str = "igbvf (null)\nigbvf (null)";

pub(super) fn own(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.cleared()?;
    flavours(bench)?;
    bench.write("/root/vf.toml", FLAVOUR)?;
    let verdict = with_two(bench);
    // Whatever came of it. libvirt has loaded vfio_pci for the guests.
    bench.sh(&format!(
        "for i in 1 2; do systemctl stop vf$i 2>/dev/null; done; nearmetal run tiny --flavours /root/flavours.toml -- true
         nearmetal rollback; ip link set {PORT} down; modprobe -r vfio_pci; rm -f /root/vf.toml; true"
    ))?;
    verdict
}

fn with_two(bench: &Bench) -> anyhow::Result<Verdict> {
    let refused = bench.ends_with(3, &format!("{RUN} -- true"))?;
    ensure!(refused.contains(&format!("`nearmetal device vfs {PORT} 4`")), "{refused}");
    bench.sh(&format!(
        "ip link set {PORT} up; nearmetal device vfs {PORT} 2 --keep-driver --yes
         for i in $(seq 60); do grep -qx 1 /sys/class/net/{PORT}/carrier && break; sleep 1; done"
    ))?;
    is_free(bench, "they were made")?;
    inside(bench)?;
    let both = [begin(bench, 1)?, begin(bench, 2)?];
    ensure!(both[0] != both[1], "two runs have {}", both[0]);
    for (function, number) in both.iter().zip([1, 2]) {
        held(bench, function, number)?;
    }
    third(bench, &both)?;
    // Killed, and told to end; of neither a next run is needed.
    bench.sh("kill -9 $(systemctl show -P MainPID vf1); systemctl kill -s TERM --kill-whom=main vf2
         for i in $(seq 120); do systemctl is-active -q vf2 || break; sleep 1; done; sleep 10")?;
    is_free(bench, "kill -9 of a run and SIGTERM to another")?;
    without_libvirt(bench)?;
    Ok(HOLDS)
}

/// Both are the host's, as before.
fn is_free(bench: &Bench, after: &str) -> anyhow::Result<()> {
    let drivers = bench.sh(DRIVERS)?;
    ensure!(drivers == FREE, "the functions' drivers after {after}: {drivers}");
    Ok(())
}

/// The guest's own kernel sees a function of that card. The appliance has no driver for it.
fn inside(bench: &Bench) -> anyhow::Result<()> {
    let seen = bench.sh(&format!("{RUN} --events /root/events -- sh -c 'cat /sys/bus/pci/devices/*/device'"))?;
    ensure!(seen.lines().filter(|line| *line == "0x10ca").count() == 1, "the guest sees: {seen}");
    let events = bench.sh("cat /root/events")?;
    ensure!(events.contains("\"functions\":[\"0000:"), "{events}");
    is_free(bench, "a run that ended by itself")?;
    nothing_is_left(bench, "a run with a function")
}

/// Starts a run as a unit, waits until its command has begun, and gives its function.
fn begin(bench: &Bench, number: u32) -> anyhow::Result<String> {
    let list = bench.json(&format!(
        "rm -f /root/events{number}
         systemd-run -q --collect -p KillMode=process --unit=vf{number} {RUN} --events /root/events{number} -- sleep 3000
         for i in $(seq 300); do grep -q command-started /root/events{number} 2>/dev/null && break; sleep 1; done
         grep -q command-started /root/events{number} || {{ journalctl -u vf{number} >&2; exit 99; }}
         nearmetal run --list --format json"
    ))?;
    let pid: u64 = bench.sh(&format!("systemctl show -P MainPID vf{number}"))?.parse()?;
    let run = list["runs"].as_array().into_iter().flatten().find(|run| run["pid"] == pid);
    let lent = run.map(|run| &run["functions"][0]).with_context(|| format!("no run of process {pid}: {list}"))?;
    ensure!(lent["driver"] == "igbvf" && lent["only"] == Value::Null, "{lent}");
    Ok(lent["function"].as_str().context("no function")?.to_owned())
}

/// VFIO drives it, and the QEMU of this run and no other has its group open.
fn held(bench: &Bench, function: &str, number: u32) -> anyhow::Result<()> {
    let seen = bench.sh(&format!(
        "name=$(grep -o '\"run\":\"[^\"]*' /root/events{number} | tail -n 1 | cut -d'\"' -f4)
         root=/sys/bus/pci/devices/{function}; group=$(basename $(readlink $root/iommu_group))
         holders=$(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c \"/dev/vfio/$group$\")
         pid=$(pgrep -f \"[g]uest=$name\"); own=$(ls -l /proc/$pid/fd | grep -c \"/dev/vfio/$group$\")
         echo $(basename $(readlink $root/driver)) own $own all $holders"
    ))?;
    ensure!(seen.starts_with("vfio-pci own ") && !seen.contains("own 0 "), "{function}: {seen}");
    let counts: Vec<&str> = seen.split(' ').collect();
    ensure!(counts[2] == counts[4], "somebody else has the group of {function} as well: {seen}");
    Ok(())
}

/// A run that finds both taken takes nothing, and says who has them; an offer says the same.
fn third(bench: &Bench, both: &[String]) -> anyhow::Result<()> {
    let refused = bench.ends_with(3, &format!("{RUN} -- true"))?;
    for function in both {
        ensure!(refused.contains(&format!("{function}: the run `run-vf-")), "{refused}");
    }
    let offer = bench.json("nearmetal offer --flavours /root/vf.toml --format json")?;
    let flavour = &offer["flavours"][0];
    ensure!(flavour["fit"] == 2 && flavour["fit_now"] == 0, "{flavour}");
    Ok(())
}

/// Run, libvirt and QEMU are killed at once, and libvirt comes back without a memory of the guest: nobody but the next run is left
/// to give the function back, which VFIO drives until then.
fn without_libvirt(bench: &Bench) -> anyhow::Result<()> {
    begin(bench, 1)?;
    let killed = bench.sh(&format!(
        "mkdir -p /run/systemd/system/libvirtd.service.d; printf '[Service]\\nRestart=no\\n' >/run/systemd/system/libvirtd.service.d/no.conf
         systemctl daemon-reload; pid=$(systemctl show -P MainPID vf1)
         pkill -9 -x libvirtd; kill -9 $pid; pkill -9 -f '[g]uest=run-vf'; sleep 5; {DRIVERS}"
    ));
    let back = bench
        .sh("rm -rf /run/libvirt/qemu/run-vf-* /run/systemd/system/libvirtd.service.d; systemctl daemon-reload
         systemctl reset-failed libvirtd; systemctl start libvirtd; virsh list >/dev/null");
    let killed = killed?;
    back?;
    ensure!(killed.contains("vfio-pci"), "the functions' drivers before the next run: {killed}");
    bench.sh("nearmetal run tiny --flavours /root/flavours.toml -- true")?;
    is_free(bench, "the run after one that was killed with libvirt")?;
    nothing_is_left(bench, "the run after one that was killed with libvirt")
}
