//! What `doctor export` writes, put in place with the tools it is written for.

use anyhow::{Context, ensure};

use super::{Case, Verdict, alone};
use crate::context::{Bench, Boot, purge};

pub(super) fn cases() -> Vec<Case> {
    vec![alone("export/tuned-takes-the-profile-and-finds-it-in-force-after-a-reboot", tuned)]
}

const NAME: &str = "cases-export";
/// Settings as nobody should have them; a reboot undoes them all.
const FAULTS: &str = "set -e; echo never > /sys/kernel/mm/transparent_hugepage/enabled; echo 1 > /sys/kernel/mm/ksm/run
    echo 1000000 > /sys/module/kvm/parameters/halt_poll_ns
    for f in /sys/block/nvme*n*/queue/scheduler; do echo mq-deadline > $f; done";
/// What is found of them, and that nobody keeps the host off the PUs of pinned vCPUs.
const FOUND: [&str; 5] = [
    "blk-scheduler-none-fast",
    "cpu-isolation-for-dedicated-vcpus",
    "ksm-off-for-performance",
    "kvm-halt-poll-ns-by-class",
    "thp-host-enabled",
];

fn tuned() -> anyhow::Result<Verdict> {
    let boot = Boot { keep: true, ..Boot::default() };
    let bench = Bench::up(NAME, &boot)?;
    bench.sh(
        "virsh -q define /root/found.xml; virsh -q vcpupin web1 0 4 --config; virsh -q vcpupin web1 1 5 --config",
    )?;
    bench.sh(FAULTS)?;
    let before = findings(&bench)?;
    ensure!(FOUND.iter().all(|rule| before.contains(&(*rule).to_owned())), "found before: {before:?}");
    bench.sh("nearmetal doctor export /root/export --class latency")?;
    let lacking = lacking(&bench)?;
    bench.sh("cp -r /root/export/tuned/nearmetal /etc/tuned/profiles/ && sync")?;
    let arguments = bench.sh("sed -n 's/^+ //p' /root/export/kernel-arguments.txt")?;
    let append: Vec<String> = arguments.lines().map(str::to_owned).collect();
    ensure!(append.iter().any(|word| word == "isolcpus=managed_irq,domain,4-5"), "kernel arguments: {append:?}");
    bench.lab.down()?;
    let bench = Bench::up(NAME, &Boot { append, ..boot })?;
    bench.sh(FAULTS)?;
    bench.sh("systemctl -q unmask tuned && systemctl start tuned && tuned-adm profile nearmetal")?;
    let verified = bench.sh("tuned-adm verify || { cat /var/log/tuned/tuned.log; exit 1; }")?;
    let after = findings(&bench)?;
    ensure!(FOUND.iter().all(|rule| !after.contains(&(*rule).to_owned())), "found after: {after:?}");
    // Definitions are taken as they were written.
    bench.sh("for f in /root/export/domains/*.xml; do test ! -e $f || virsh -q define $f; done")?;
    bench.lab.down()?;
    purge(NAME)?;
    Ok(Verdict::Holds(format!("{verified}; {} found, {} after; {lacking}", before.len(), after.len())))
}

/// Ids of the rules that are broken.
fn findings(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let document = bench.json("nearmetal doctor --class latency --format json")?;
    let findings = document["findings"].as_array().context("no findings")?;
    Ok(findings.iter().filter_map(|finding| finding["rule"].as_str()).map(str::to_owned).collect())
}

/// What the lab has not got, as the export says: each path named must really not be there.
fn lacking(bench: &Bench) -> anyhow::Result<String> {
    let text =
        bench.sh("sed -n '/^LEFT OUT/,$p; /^NOT LOOKED AT/,$p' /root/export/README.txt | grep '^- ' | sort -u")?;
    for path in text.split([' ', ',']).filter(|word| word.starts_with("/sys/") || word.starts_with("/proc/")) {
        if !path.contains(['*', '{', '}']) {
            bench.ends_with(1, &format!("test -e {path}"))?;
        }
    }
    Ok(format!("the lab lacks: {}", text.lines().collect::<Vec<_>>().join("; ")))
}
