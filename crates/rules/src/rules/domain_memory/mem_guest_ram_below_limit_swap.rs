//! cgroup limits do not force guest reclaim.

use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "mem-guest-ram-below-limit-swap",
    layer: Layer::DomainMemory,
    title: "cgroup limits do not force guest reclaim",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["/proc/PID/cgroup", "/sys/fs/cgroup/**/{memory.events,memory.swap.current}"],
    good: "events high/max/oom do not grow; memory.swap.current == 0 for performance guests",
    applies: "all",
    not_applies: "density by policy",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "k-cgv2"],
    fix: Fix {
        live: Some("virsh memtune DOM --hard-limit -1 --soft-limit -1 --live"),
        persistent: "virsh memtune --config",
        needs: &[Need::Live],
        undo: "neighbours lose protection; undo old value",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };
    let Some(process) = subject.process else { return Outcome::NotApplicable };

    let Some(group) = host.memory_groups.iter().find(|group| group.pid == process.pid) else {
        return Outcome::unknown(format!("/proc/{}/cgroup, memory.events", process.pid));
    };
    let hits = [
        ("memory.high", group.high),
        ("memory.max", group.max),
        (
            "memory.max, with nothing left to \
            reclaim",
            group.oom,
        ),
    ];
    let hits = hits.into_iter().filter_map(|(limit, times)| Some((limit, times.filter(|times| *times > 0)?)));
    let mut objects: Vec<Object> = hits
        .map(|(limit, times)| {
            Object::new(format!("control group {limit}"), format!("hit {times} times since the start"), "never reached")
        })
        .collect();
    if let Some(swap) = group.swap.filter(|swap| *swap > 0) {
        objects.push(Object::new("control group memory", format!("{} in swap", Bytes::new(swap)), "none in swap"));
    }
    Outcome::of(objects)
}
