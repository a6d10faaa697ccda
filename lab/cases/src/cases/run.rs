//! One guest for one job: it passes on its command's code, stays on its own PUs, and leaves nothing, whoever is killed.

mod cost;
mod eight;
mod function;
mod mounted;
mod sequence;
pub(super) mod service;
mod session;

use anyhow::ensure;

use super::bad_input::refused_without_libvirt;
use super::{Case, HOLDS, Verdict, alone, shared, shared_long};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        shared("run/passes-on-code-and-output-of-the-command", code),
        shared_long("run/an-image-stays-as-it-is", image),
        shared_long("run/output-of-any-length-and-what-is-left-behind-cost-no-code", output),
        shared_long("run/user-data-are-a-disk-that-is-only-read", user_data),
        shared_long("run/killed-it-leaves-nothing", killed),
        shared_long("run/qemu-killed-is-a-failure-with-a-sentence", qemu_killed),
        shared_long("run/libvirt-killed-leaves-nothing", libvirt_killed),
        shared_long("run/two-at-once-share-no-pu", two_at_once),
        shared_long("run/costs-little-over-virsh-create", cost::over_virsh),
        alone("run/eight-at-once-and-the-power-cut", eight::eight_at_once),
        alone("run/what-runs-say-has-a-file-system-of-its-own-from-boot", mounted::from_boot),
        shared_long("run/a-virtual-function-is-the-guests-own-and-goes-back", function::own),
        shared_long("run/one-after-the-other-and-some-are-killed", sequence::some_killed),
        shared("run/refuses-what-does-not-fit-before-it-takes-anything", refusals),
    ];
    cases.extend(session::cases());
    cases.extend(service::cases());
    cases
}

pub(super) const FLAVOURS: &str = r#"
[[flavour]]
name = "tiny"
vcpus = 1
memory = "256 MiB"
boot = "appliance"
grace = "5s"

[[flavour]]
name = "pages"
vcpus = 2
memory = "256 MiB"
page-size = "2 MiB"
boot = "appliance"

[[flavour]]
name = "disk"
vcpus = 1
memory = "256 MiB"
boot = "kernel"
kernel = "/var/lib/libvirt/boot/vmlinuz"
initrd = "/var/lib/libvirt/boot/small.cpio"
command-line = "console=ttyS0 quiet"

[[flavour]]
name = "bridged"
vcpus = 1
memory = "256 MiB"
boot = "appliance"
bridge = "br-missing"

[[flavour]]
name = "huge"
vcpus = 1
memory = "64 GiB"
boot = "appliance"
"#;

/// What would show that something of a run is still there: nothing of it may.
// A shell whose own text holds the pattern would find itself.
const LEFT: &str = "virsh list --all --name | grep ^run-; pgrep -f '[g]uest=run-'; pgrep -f '[n]earmetal-libvirt'
    nearmetal run --list | grep -v '^no runs$'; ls -A /var/lib/nearmetal/deltas 2>/dev/null
    cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages | grep -vx 0; true";

fn flavours(bench: &Bench) -> anyhow::Result<()> {
    // No guest of another case has PUs or pools, and nothing of an earlier one is looked for.
    bench.sh("for d in $(virsh list --name); do virsh -q destroy $d; done
         for n in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; do echo 0 > $n; done")?;
    bench.write("/root/flavours.toml", FLAVOURS)
}

fn nothing_is_left(bench: &Bench, after: &str) -> anyhow::Result<()> {
    let left = bench.sh(LEFT)?;
    ensure!(left.is_empty(), "left after {after}: {left}");
    Ok(())
}

/// Starts a run that waits, and gives the shell line up to when its command has begun; `$run` is its process.
fn waiting(flavour: &str) -> String {
    format!(
        "rm -f /root/events; nearmetal run {flavour} --flavours /root/flavours.toml --events /root/events -- sleep 600 2>/root/said & run=$!
         for i in $(seq 300); do grep -q command-started /root/events 2>/dev/null && break; sleep 1; done
         grep -q command-started /root/events || {{ cat /root/said /root/events; exit 99; }}\n"
    )
}

fn code(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    bench.sh("rm -f /var/log/libvirt/qemu/run-*")?;
    let text = bench.ends_with(
        7,
        "nearmetal run pages --flavours /root/flavours.toml --events /root/events --console /root/console -- \
             sh -c 'nproc; echo on the console >/dev/ttyS0; echo err >&2; exit 7'",
    )?;
    ensure!(text.starts_with("2\n") && text.contains("\nerr"), "{text}");
    ensure!(bench.sh("cat /root/console")?.contains("on the console"), "nothing of the console");
    nothing_is_left(bench, "a run")?;
    let logs = bench.sh("ls /var/log/libvirt/qemu | grep ^run-; true")?;
    ensure!(logs.is_empty(), "libvirt's log of its QEMU: {logs}");
    let events = bench.sh("cat /root/events")?;
    for event in ["reserved", "started", "read-back", "agent", "command-started", "command-ended", "given-back"] {
        ensure!(events.contains(&format!("\"event\":\"{event}\"")), "no `{event}`: {events}");
    }
    ensure!(events.contains("\"outcome\":\"exited\",\"code\":7"), "{events}");
    bench.ends_with(124, "nearmetal run tiny --flavours /root/flavours.toml --time-limit 5s -- sleep 600")?;
    nothing_is_left(bench, "a time limit")?;
    Ok(HOLDS)
}

fn output(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    let run = "nearmetal run tiny --flavours /root/flavours.toml --time-limit 20m --";
    // More than libvirt passes on of one answer, and a program that keeps stdout open.
    let inside = "head -c 6000000 /dev/zero; sleep 6000 & exit 9";
    let length =
        bench.ends_with(9, &format!("{run} sh -c '{inside}' >/root/out; code=$?; wc -c </root/out; exit $code"))?;
    ensure!(length.lines().any(|line| line.trim() == "6000000"), "{length}");
    let text = bench.ends_with(127, &format!("{run} nosuch"))?;
    ensure!(text.contains("`nosuch`: no such program"), "{text}");
    nothing_is_left(bench, "long output")?;
    // The first that a kernel says, and while it runs.
    let loud = FLAVOURS.replace("console=ttyS0 quiet", "console=ttyS0 loglevel=7");
    bench.write("/root/loud.toml", &loud)?;
    let said = bench.sh(
        "nearmetal run disk --flavours /root/loud.toml --console /root/console -- sleep 600 2>/root/said & run=$!
         for i in $(seq 120); do grep -qs 'Linux version' /root/console && break; sleep 1; done
         kill -0 $run && head -c 300 /root/console; kill -TERM $run; wait $run; echo code $?",
    )?;
    ensure!(said.contains("Linux version") && said.ends_with("code 143"), "{said}");
    nothing_is_left(bench, "a run whose console is followed")?;
    Ok(HOLDS)
}

fn user_data(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    bench.write("/root/user-data", "#cloud-config\nhostname: seen\n")?;
    bench.sh("cd /root && mv user-data './-i user=data'")?;
    // `disk` without an image has no other disk.
    let inside = "echo ro=$(cat /sys/block/vda/ro)
         tr -d \"\\000\" </dev/vda | grep -o -e CIDATA -e \"hostname: seen\" -e \"instance-id: .*\"";
    let run = "cd /root && nearmetal run disk --flavours /root/flavours.toml --user-data='-i user=data' -- sh -c";
    let mut instances = Vec::new();
    for _ in 0..2 {
        let text = bench.sh(&format!("{run} '{inside}'"))?;
        for part in ["CIDATA", "ro=1", "hostname: seen"] {
            ensure!(text.contains(part), "no `{part}`: {text}");
        }
        instances.extend(text.lines().find_map(|line| line.strip_prefix("instance-id: ")).map(str::to_owned));
        nothing_is_left(bench, "a run with user data")?;
    }
    ensure!(instances.len() == 2 && instances[0] != instances[1], "{instances:?}");
    let refused =
        bench.ends_with(2, "nearmetal run tiny --flavours /root/flavours.toml --user-data /etc/hosts -- true")?;
    ensure!(refused.contains("boots the appliance"), "{refused}");
    Ok(HOLDS)
}

fn image(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    bench.write("/root/here.toml", "[[host]]\nname = \"here\"\nlocal = true\n")?;
    bench.sh(
        "rm -rf /root/images; qemu-img create -q -f qcow2 /root/base.qcow2 64M && qemu-io -c 'write -P 7 0 1M' /root/base.qcow2
         nearmetal image push /root/base.qcow2 --fleet /root/here.toml --directory /root/images",
    )?;
    let run = "nearmetal run disk --image base.qcow2 --flavours /root/flavours.toml --directory /root/images --verify-image -- sh -c";
    // It reads what the image has, and what it wrote itself.
    let text = bench.sh(&format!(
        "{run} 'head -c 1 /dev/vda | od -An -tu1; echo x | dd of=/dev/vda bs=512 conv=fsync 2>/dev/null; head -c 1 /dev/vda'"
    ))?;
    ensure!(text.split_whitespace().eq(["7", "x"]), "{text}");
    bench.sh("nearmetal image verify --directory /root/images")?;
    nothing_is_left(bench, "a run with an image")?;
    // One that leads out of the store is not opened.
    bench.sh("qemu-img create -q -f qcow2 -u -F raw -b /etc/shadow /root/bad.qcow2 64M
         nearmetal image push /root/bad.qcow2 --fleet /root/here.toml --directory /root/images")?;
    let refused = bench.ends_with(3, &run.replace("base.qcow2", "bad.qcow2").replace("-- sh -c", "-- true"))?;
    ensure!(refused.contains("/etc/shadow"), "{refused}");
    Ok(HOLDS)
}

fn killed(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    bench.sh(&format!("{}kill -9 $run; sleep 5", waiting("tiny")))?;
    // The guest and its helper are gone at once; the reservation is nobody's.
    nothing_is_left(bench, "kill -9 of a run")?;
    // Pages that were added are taken away again by the next run.
    bench.sh(&format!("{}kill -9 $run; sleep 5", waiting("pages")))?;
    bench.sh("nearmetal run tiny --flavours /root/flavours.toml -- true")?;
    nothing_is_left(bench, "the run after one that was killed")?;
    // Told to end, it ends by itself.
    let ended = bench.sh(&format!("{}kill -TERM $run; wait $run; echo $?", waiting("tiny")))?;
    ensure!(ended == "143", "{ended}");
    nothing_is_left(bench, "SIGTERM")?;
    Ok(HOLDS)
}

fn qemu_killed(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    let script = "pkill -9 -f '[g]uest=run-tiny'; wait $run; echo $?; cat /root/said";
    let said = bench.sh(&format!("{}{script}", waiting("tiny")))?;
    ensure!(said.starts_with("3\n") && said.contains("the guest ended before its command did"), "{said}");
    nothing_is_left(bench, "kill -9 of QEMU")?;
    Ok(HOLDS)
}

fn libvirt_killed(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    let script = "pkill -9 -x libvirtd; wait $run; echo $?; cat /root/said";
    let said = bench.sh(&format!("{}{script}", waiting("tiny")));
    let back = bench.sh("systemctl reset-failed libvirtd; systemctl start libvirtd; virsh list >/dev/null");
    let said = said?;
    back?;
    ensure!(said.starts_with("3\n") && said.contains("libvirt"), "{said}");
    nothing_is_left(bench, "kill -9 of libvirt's daemon")?;
    Ok(HOLDS)
}

fn two_at_once(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    let both = "for i in 1 2; do nearmetal run pages --flavours /root/flavours.toml --events /root/events$i -- sleep 5 & done; wait
        cat /root/events1 /root/events2";
    let events = bench.sh(both)?;
    let sets: Vec<nearmetal_units::CpuSet> = events
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["cpus"].as_str()?.parse().ok())
        .collect();
    ensure!(sets.len() == 2 && sets[0].is_disjoint(&sets[1]), "{sets:?}: {events}");
    ensure!(events.matches("\"outcome\":\"exited\",\"code\":0").count() == 2, "{events}");
    nothing_is_left(bench, "two runs at once")?;
    Ok(HOLDS)
}

fn refusals(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    let run = "nearmetal run --flavours /root/flavours.toml";
    for (code, prefix, words, says) in [
        (2, "", "tinny -- true", "did you mean `tiny`?"),
        (2, "", "disk --image nothing -- true", "no image `nothing`"),
        (3, "", "huge -- true", "64 GiB"),
        (3, "taskset -c 3", "pages -- true", "of the 1 allowed (PUs 3)"),
        (3, "", "bridged -- true", "`br-missing`, which this host does not have"),
        (3, "systemd-run -q --pipe --wait -p MemoryMax=128M", "tiny -- true", "was given 128 MiB"),
    ] {
        let text = bench.ends_with(code, &format!("{prefix} {run} {words}"))?;
        ensure!(text.contains(says), "{words}: {text}");
    }
    // Before it has a slice or pages, which it could not give back without libvirt.
    refused_without_libvirt(bench, &format!("{run} pages --events /root/events -- true"))?;
    ensure!(!bench.sh("cat /root/events")?.contains("\"event\":\"reserved\""), "it took a slice without libvirt");
    nothing_is_left(bench, "refusals")?;
    Ok(HOLDS)
}
