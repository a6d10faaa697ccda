//! The doctor on real libvirt: classes in the metadata, and the inside of a guest through its agent.

use anyhow::ensure;

use super::{Case, HOLDS, Verdict, shared};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![shared("doctor/class-is-set-and-cleared", class), shared("doctor/looks-inside-through-the-agent", inside)]
}

fn class(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    bench.sh("nearmetal class web1 throughput")?;
    let domain = bench.json("nearmetal doctor --fail-on never --format json")?["domains"][0].clone();
    let cleared =
        bench.sh("virsh dumpxml web1 | grep -c throughput; nearmetal class web1; nearmetal class web1 --clear");
    let found = (domain["class"].as_str(), domain["class_reason"].as_str());
    ensure!(found == (Some("throughput"), Some("its metadata")), "{domain}");
    ensure!(cleared?.contains("throughput"), "the class is not in the running definition, or not shown");
    let left = bench.sh("for which in '' --inactive; do virsh dumpxml web1 $which | grep throughput; done; true")?;
    ensure!(left.is_empty(), "left after --clear: {left}");
    Ok(HOLDS)
}

fn inside(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let huge_pages = |word: &str| {
        bench.sh(&format!(
            "virsh -q qemu-agent-command web1 '{{\"execute\":\"guest-exec\",\"arguments\":{{\"path\":\"/bin/sh\",\"arg\":\
             [\"-c\",\"echo {word} > /sys/kernel/mm/transparent_hugepage/enabled\"]}}}}'; sleep 1"
        ))
    };
    let look = || bench.sh("nearmetal doctor --guests --fail-on never");
    huge_pages("madvise")?;
    let clean = look()?;
    ensure!(!clean.contains("the inside of web1") && !clean.contains("guest-thp"), "{clean}");
    huge_pages("never")?;
    let found = look()?;
    huge_pages("madvise")?;
    ensure!(found.contains("guest-thp"), "{found}");
    Ok(HOLDS)
}
