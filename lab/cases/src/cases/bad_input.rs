//! Wrong or unlucky input: a clear error, and nothing changed.

use anyhow::ensure;

use std::process::Command;

use super::{Case, HOLDS, Verdict, alone, shared};
use crate::context::{Bench, programs};

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("bad-input/plan-for-another-host", another_host),
        shared("bad-input/no-such-domain", no_such_domain),
        shared("bad-input/domain-changed-since-planning", changed_since),
        shared("bad-input/libvirt-down", libvirt_down),
        shared("bad-input/not-root", not_root),
        shared("bad-input/pool-cannot-grow", no_memory),
        shared("bad-input/damaged-plan", damaged_plan),
        alone("bad-input/no-room-for-the-image", no_room),
        alone("bad-input/no-network-on-the-second-run", no_network),
    ]
}

/// Applying must end with `code`, say all `words`, and change nothing.
fn refused(bench: &Bench, code: i32, script: &str, words: &[&str]) -> anyhow::Result<Verdict> {
    let before = bench.fingerprint()?;
    let text = bench.ends_with(code, script)?;
    for word in words {
        ensure!(text.contains(word), "the message lacks `{word}`: {text}");
    }
    ensure!(bench.fingerprint()? == before, "a refused apply changed something");
    Ok(Verdict::Holds(text.lines().next().unwrap_or_default().to_owned()))
}

const APPLY: &str = "nearmetal apply /root/plan.json --restart --yes";

fn planned(bench: &Bench) -> anyhow::Result<()> {
    bench.found()?;
    bench.sh("nearmetal plan web1 -o /root/plan.json >/dev/null").map(drop)
}

fn another_host(bench: &Bench) -> anyhow::Result<Verdict> {
    planned(bench)?;
    bench.sh("sed -i 's/\"hostname\": *\"[^\"]*\"/\"hostname\": \"elsewhere\"/; s/\"fingerprint\": *\"[0-9a-f]\\{8\\}/\"fingerprint\": \"00000000/' /root/plan.json")?;
    refused(bench, 3, APPLY, &["elsewhere"])
}

fn no_such_domain(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let text = bench.ends_with(2, "nearmetal plan nothere")?;
    ensure!(text.contains("nothere") && text.contains("web1"), "names what exists: {text}");
    Ok(HOLDS)
}

fn changed_since(bench: &Bench) -> anyhow::Result<Verdict> {
    planned(bench)?;
    bench.sh("virsh dumpxml --inactive web1 | sed 's#<on_reboot>restart#<on_reboot>destroy#' > /root/c.xml; virsh -q define /root/c.xml")?;
    let verdict = refused(bench, 3, APPLY, &["plan"])?;
    // As found again, for the next case.
    bench.sh("virsh -q define /root/baseline.xml")?;
    Ok(verdict)
}

fn libvirt_down(bench: &Bench) -> anyhow::Result<Verdict> {
    planned(bench)?;
    refused_without_libvirt(bench, APPLY)?;
    Ok(HOLDS)
}

/// Stops libvirt for a command that cannot do without it, and says so.
pub(super) fn refused_without_libvirt(bench: &Bench, command: &str) -> anyhow::Result<()> {
    bench.sh("systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd 2>/dev/null; true")?;
    let result = bench.ends_with(3, command);
    bench.sh("systemctl start libvirtd.socket libvirtd 2>/dev/null; for i in $(seq 60); do virsh -q version >/dev/null 2>&1 && exit 0; sleep 1; done; exit 1")?;
    let text = result?;
    ensure!(text.contains("qemu:///system"), "the URI is named: {text}");
    Ok(())
}

fn not_root(bench: &Bench) -> anyhow::Result<Verdict> {
    planned(bench)?;
    bench.sh("chmod 755 /root; chmod 644 /root/plan.json")?;
    bench.sh("setpriv --reuid 65534 --regid 65534 --clear-groups nearmetal inspect > /dev/null")?;
    refused(bench, 3, &format!("cd /; setpriv --reuid 65534 --regid 65534 --clear-groups {APPLY}"), &["root"])
}

fn no_memory(bench: &Bench) -> anyhow::Result<Verdict> {
    planned(bench)?;
    // The pages the plan wants are taken by somebody else between planning and applying. That one leaves 128 MiB, which is less
    // than the plan wants, and prefers the node instead of being bound to it: on a node without a free page the kernel kills
    // whatever it finds, SSH included, for one page of a program that is bound there.
    bench.sh("cd /sys/devices/system/node/node2/hugepages/hugepages-2048kB
              echo 3000 > nr_hugepages; n=$(($(cat nr_hugepages) - 64)); echo $n > nr_hugepages
              mkdir -p /run/eat; mount -t hugetlbfs -o pagesize=2M none /run/eat
              numactl --preferred=2 fallocate -l $((n*2))M /run/eat/all
              test \"$(cat free_hugepages)\" = 0")?;
    let result = refused(bench, 3, APPLY, &["node 2", "2 MiB"]);
    bench.sh("umount /run/eat; echo 0 > /sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages")?;
    result
}

fn damaged_plan(bench: &Bench) -> anyhow::Result<Verdict> {
    planned(bench)?;
    bench.sh(
        "head -c 300 /root/plan.json > /root/cut.json; echo '{\"schema\":\"nearmetal.plan/99\"}' > /root/new.json",
    )?;
    bench.ends_with(2, "nearmetal apply /root/cut.json --yes")?;
    bench.ends_with(2, "nearmetal apply /root/new.json --yes")?;
    bench.ends_with(2, "nearmetal apply /root/missing.json --yes")?;
    Ok(HOLDS)
}

/// A script on this machine, in mount and network namespaces of its own.
fn apart(script: &str) -> anyhow::Result<(Option<i32>, String)> {
    let nearmetal = programs()?.join("nearmetal");
    let output =
        Command::new("unshare").args(["--mount", "--net", "sh", "-ec", script, "sh"]).arg(nearmetal).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code(), text))
}

fn no_room() -> anyhow::Result<Verdict> {
    let (code, text) = apart(
        "mount -t tmpfs -o size=64m none /mnt; NEARMETAL_CACHE=/mnt/cache \"$1\" lab up cases-room 2>&1 && exit 0 || code=$?
         find /mnt -type f -size +0 | grep . && exit 99; exit $code",
    )?;
    ensure!(code == Some(3), "ended with {code:?}: {text}");
    for word in ["/mnt", "4 GiB", "64 MiB"] {
        ensure!(text.contains(word), "the message lacks `{word}`: {text}");
    }
    Ok(Verdict::Holds(text.lines().last().unwrap_or_default().to_owned()))
}

/// The image is in the cache (the shared lab was booted from it), so a boot needs no network but the loopback.
fn no_network() -> anyhow::Result<Verdict> {
    let (code, text) = apart(
        "ip link set lo up; \"$1\" lab up cases-offline && \"$1\" lab exec cases-offline -- virsh -q version; code=$?
         \"$1\" lab down cases-offline; exit $code",
    )?;
    ensure!(code == Some(0) && text.contains("libvirt"), "ended with {code:?}: {text}");
    Ok(HOLDS)
}
