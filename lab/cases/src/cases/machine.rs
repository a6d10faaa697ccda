//! The lab itself, and what inspect says of the machine in it.

use anyhow::{Context, ensure};
use nearmetal_lab::machine::Confinement;
use serde_json::Value;

use super::{Case, HOLDS, Verdict, alone, shared};
use crate::context::{Bench, Boot};

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("lab/long-output-is-whole", long_output),
        shared("lab/exit-codes-pass", exit_codes),
        shared("lab/a-hung-command-ends", hung_command),
        shared("lab/looks-for-what-emulation-lost", looks),
        shared("lab/guests-are-confined-as-debian-confines-them", confined),
        shared("inspect/agrees-with-numactl-and-lspci", inspect_agrees),
        shared("inspect/without-libvirt", without_libvirt),
        alone("lab/unconfined-libvirt", unconfined),
        alone("lab/two-names-side-by-side", two_labs),
        alone("lab/a-processor-that-lost-its-timer-is-woken", lost_timer),
    ]
}

fn long_output(bench: &Bench) -> anyhow::Result<Verdict> {
    let text = bench.sh("seq 1 300000")?;
    ensure!(text.len() > 1 << 20 && text.ends_with("\n300000") && text.starts_with("1\n2\n"), "{} bytes", text.len());
    Ok(HOLDS)
}

fn exit_codes(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.ends_with(7, "exit 7")?;
    let text = bench.ends_with(1, "echo out; echo err >&2; false")?;
    ensure!(text == "out\nerr\n", "{text}");
    Ok(HOLDS)
}

fn hung_command(bench: &Bench) -> anyhow::Result<Verdict> {
    let command = nearmetal_lab::Command::shell("sleep 600").timeout(std::time::Duration::from_secs(3));
    let clock = std::time::Instant::now();
    let error = bench.lab.exec(&command).err().context("a command that hangs for ten minutes succeeded")?;
    ensure!(clock.elapsed().as_secs() < 30, "it took {:?}", clock.elapsed());
    bench.ends_with(1, "sleep 1; pgrep -x sleep")?;
    Ok(Verdict::Holds(error.to_string()))
}

/// Both that look are there, and have looked without an error since they started.
fn looks(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.sh("systemctl is-active lab-vigil@0 lab-vigil@1")?;
    let restarts = bench.sh("systemctl show -P NRestarts lab-vigil@0 lab-vigil@1")?;
    ensure!(restarts.split_whitespace().eq(["0", "0"]), "they were started again: {restarts}");
    Ok(HOLDS)
}

/// Where the kernel shows the process of `web1`.
const QEMU: &str = "/proc/$(cat /run/libvirt/qemu/web1.pid)";

/// Guests are confined as Debian confines them: their user, their profile, their own /dev, their slice.
fn confined(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let uuid = bench.sh("virsh domuuid web1")?;
    let profile = format!("libvirt-{}", uuid.trim());
    let label = bench.sh(&format!("cat {QEMU}/attr/current; cat /proc/$(cat /run/libvirtd.pid)/attr/current"))?;
    ensure!(label == format!("{profile} (enforce)\nlibvirtd (enforce)"), "{label}");
    let status = bench.json("aa-status --json")?;
    ensure!(status["profiles"][&profile] == "enforce", "aa-status: {status}");
    let user = bench.sh(&format!("stat -c '%U %G' {QEMU}; grep CapEff {QEMU}/status"))?;
    ensure!(user == "libvirt-qemu libvirt-qemu\nCapEff:\t0000000000000000", "{user}");
    bench.sh(&format!("test \"$(readlink {QEMU}/ns/mnt)\" != \"$(readlink /proc/1/ns/mnt)\""))?;
    bench.sh(&format!("grep -q '^0::/machine.slice/machine-qemu' {QEMU}/cgroup"))?;
    let words = bench.sh("grep -E '^ *[a-z]' /etc/libvirt/qemu.conf")?;
    ensure!(
        words == r#"capability_filters = [ "cpu-unavailable-features" ]"#,
        "beside that, the file is Debian's: {words}"
    );
    let models = bench.json("nearmetal inspect --format json")?["security_models"].clone();
    ensure!(models[0]["model"] == "apparmor" && models[1]["model"] == "dac", "{models}");
    Ok(Verdict::Holds(format!("{label}; {user}").replace(['\n', '\t'], " ")))
}

/// A machine that asks for it has guests that nothing confines.
fn unconfined() -> anyhow::Result<Verdict> {
    let append = Confinement::Unconfined.arguments().map(str::to_owned).to_vec();
    let bench = Bench::up("unconfined", &Boot { append, ..Boot::default() })?;
    bench.applied()?;
    let user = bench.sh(&format!("stat -c '%U %G' {QEMU}"))?;
    ensure!(user == "root root", "{user}");
    bench.sh(&format!("test \"$(readlink {QEMU}/ns/mnt)\" = \"$(readlink /proc/1/ns/mnt)\""))?;
    let modules = bench.sh("cat /sys/kernel/security/lsm 2>/dev/null; true")?;
    ensure!(!modules.contains("apparmor"), "{modules}");
    let models = bench.json("nearmetal inspect --format json")?["security_models"].clone();
    let named = |model: &str| models.as_array().into_iter().flatten().any(|one| one["model"] == model);
    ensure!(!named("apparmor"), "{models}");
    bench.lab.down()?;
    Ok(HOLDS)
}

/// Sets the count of a local APIC's timer to 0, as QEMU leaves it when it has lost the interrupt.
const LOSE: &str = "import mmap, os
apic = mmap.mmap(os.open('/dev/mem', os.O_RDWR | os.O_SYNC), 4096, offset=0xfee00000)
apic[0x380:0x384] = bytes(4)";

/// What sleeps on a processor whose timer emulation has lost wakes again, and only because the lab looks for such processors.
fn lost_timer() -> anyhow::Result<Verdict> {
    let bench = Bench::up("timer", &Boot { append: vec!["iomem=relaxed".into()], ..Boot::default() })?;
    bench.write("/root/lose.py", LOSE)?;
    // Stopped and not ended: what starts while a timer is lost waits for it. The brackets keep pkill from its own shell.
    let told = bench.sh("pkill -STOP -f nearmetal-lab/vigi[l]
         taskset -c 4 sh -c 'python3 /root/lose.py; exec sleep 1' & sleeper=$!
         taskset -c 6 sleep 8
         kill -0 $sleeper || { echo 'the timer was not lost'; exit 1; }
         pkill -CONT -f nearmetal-lab/vigi[l]
         wait $sleeper
         dmesg | grep 'lab: processor 4 got no interrupt'")?;
    bench.lab.down()?;
    Ok(Verdict::Holds(told.trim().to_owned()))
}

fn inspect_agrees(bench: &Bench) -> anyhow::Result<Verdict> {
    let document = bench.json("nearmetal inspect --format json")?;
    let host = &document["host"];
    let nodes = host["nodes"].as_array().context("no nodes")?;
    ensure!(nodes.len() == 4, "{} nodes", nodes.len());
    let cpus: Vec<String> =
        bench.sh("cat /sys/devices/system/node/node*/cpulist")?.lines().map(str::to_owned).collect();
    let read: Vec<&str> = nodes.iter().filter_map(|node| node["cpus"].as_str()).collect();
    ensure!(read == cpus, "{read:?} is not {cpus:?}");
    let numactl = bench
        .sh("numactl -H | awk '/^node distances/{t=1;next} t&&/^ *[0-9]+:/{$1=\"\"; print}' | tr -s ' \\n' ' '")?;
    let distances: Vec<String> = nodes
        .iter()
        .flat_map(|node| node["distances"].as_array().into_iter().flatten())
        .map(|pair| pair[1].to_string())
        .collect();
    ensure!(distances.join(" ") == numactl.trim(), "{distances:?} is not {numactl}");
    let node_of = |class: u64| {
        let devices = host["pci_devices"].as_array()?;
        devices.iter().find(|device| device["class"] == class).map(|device| device["node"].clone())
    };
    ensure!(node_of(0x01_0802) == Some(Value::from(2)), "NVMe on {:?}", node_of(0x01_0802));
    ensure!(node_of(0x02_0000).is_some(), "no network card");
    let functions = host["pci_devices"].as_array().map_or(0, Vec::len);
    let lspci: usize = bench.sh("lspci | wc -l")?.trim().parse()?;
    ensure!(functions == lspci, "{functions} PCI functions, lspci shows {lspci}");
    Ok(Verdict::Holds(format!("4 nodes, {functions} PCI functions")))
}

/// libvirt.so hidden in a mount namespace of its own.
fn without_libvirt(bench: &Bench) -> anyhow::Result<Verdict> {
    let hidden = |script: &str| {
        format!(
            "unshare --mount sh -c 'for f in /usr/lib/x86_64-linux-gnu/libvirt*.so.0; do mount --bind /dev/null $f; done; {script}'"
        )
    };
    bench.sh("virsh -q dominfo web1 >/dev/null 2>&1 || virsh -q define /root/found.xml; virsh dumpxml --inactive web1 > /root/web1.xml")?;
    bench.sh(&hidden("nearmetal inspect >/dev/null"))?;
    // A tree with what planning reads, standing for a capture.
    bench.sh("rm -rf /root/tree; mkdir -p /root/tree/proc/sys /root/tree/sys/devices/system /root/tree/sys/bus
         cp -r /sys/devices/system/node /sys/devices/system/cpu /root/tree/sys/devices/system/ 2>/dev/null
         cp /proc/meminfo /proc/cpuinfo /proc/version /root/tree/proc/ 2>/dev/null; true")?;
    let text = bench.ends_with(0, &hidden("nearmetal plan --capture /root/tree --domain-xml /root/web1.xml"))?;
    ensure!(text.contains("web1"), "{text}");
    let text = bench.ends_with(3, &hidden("nearmetal plan web1"))?;
    ensure!(text.contains("libvirt") && text.contains("install"), "the error says what to install: {text}");
    bench.sh(&hidden("nearmetal plan --domain-xml /root/web1.xml -o /root/p.json"))?;
    let text = bench.ends_with(3, &hidden("nearmetal verify --plan /root/p.json"))?;
    ensure!(text.contains("libvirt"), "{text}");
    bench.ends_with(1, "ldd /usr/local/bin/nearmetal | grep libvirt")?;
    Ok(HOLDS)
}

fn two_labs() -> anyhow::Result<Verdict> {
    // The smallest machine boots soonest.
    let boot = |append| Boot { machine: Some("peer"), append, ..Boot::default() };
    let one = Bench::up("cases-one", &boot(Vec::new()))?;
    let two = Bench::up("cases-two", &boot(vec!["nearmetal.marker=two".into()]))?;
    let markers = (one.sh("grep -c marker=two /proc/cmdline || true")?, two.sh("grep -c marker=two /proc/cmdline")?);
    one.lab.down()?;
    two.lab.down()?;
    ensure!(markers == ("0".to_owned(), "1".to_owned()), "{markers:?}");
    let left = std::process::Command::new("pgrep").args(["-f", "cases-(one|two)"]).output()?;
    ensure!(left.stdout.is_empty(), "processes are left: {}", String::from_utf8_lossy(&left.stdout));
    Ok(HOLDS)
}
