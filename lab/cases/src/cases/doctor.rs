//! The doctor on real libvirt: classes in the metadata, and the inside of a guest through its agent.

use anyhow::ensure;
use serde_json::Value;

use super::{Case, HOLDS, Verdict, shared, shared_long};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("doctor/class-is-set-and-cleared", class),
        shared_long("doctor/looks-inside-through-the-agent", inside),
        shared_long("doctor/finds-no-loss-in-a-planned-guest-that-the-plan-does-not-list", agrees),
    ]
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

/// After `apply`: what the doctor finds in the guest is what plan.json says it leaves.
fn agrees(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let plan = bench.json("cat /root/plan.json")?;
    let report = bench.json("nearmetal doctor --fail-on never --format json")?;
    let pairs = |list: &Value, rule: Option<&str>| -> Vec<(String, String)> {
        let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|entry| (rule.map_or_else(|| word(entry, "rule"), str::to_owned), word(entry, "what"))).collect()
    };
    let mut left = pairs(&plan["domains"][0]["left"], None);
    let set = pairs(&plan["domains"][0]["followed"], None);
    ensure!(set.iter().any(|(rule, _)| rule == "timers-hpet-off"), "the plan does not set the timer: {set:?}");
    let host = pairs(&plan["left"], None);
    left.extend(host.iter().cloned());
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    for finding in findings {
        let severe = matches!(finding["severity"].as_str(), Some("fault" | "loss"));
        let rule = finding["rule"].as_str().unwrap_or_default();
        // Of the host, what it is like without the guest is no business of the plan's.
        if severe && (finding["scope"]["kind"] == "domain" || host.iter().any(|(own, _)| own == rule)) {
            for object in pairs(&finding["objects"], Some(rule)) {
                ensure!(left.contains(&object), "the doctor finds {object:?}, and the plan lists {left:?}: {finding}");
            }
        }
    }
    let balancing = findings.iter().any(|finding| finding["rule"] == "numa-autobalancing-off-when-pinned");
    let listed = host.iter().any(|(rule, _)| rule == "numa-autobalancing-off-when-pinned");
    ensure!(balancing == listed, "automatic NUMA balancing: found {balancing}, listed {listed}");
    Ok(Verdict::Holds(format!("set {}, left {}", set.len(), left.len())))
}
