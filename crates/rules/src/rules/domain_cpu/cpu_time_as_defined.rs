//! Control groups of a running guest deal out the processor time that its definition gives it.

use crate::finding::Outcome;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::scheduling;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "cpu-time-as-defined",
    layer: Layer::DomainCpu,
    title: "Control groups of a guest have the weight and the quota of its definition",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/proc/PID/task/*/cgroup; cpu.weight, cpu.max (cgroup v2) or cpu.shares, cpu.cfs_quota_us (v1) of those groups and all above",
        "domain <shares>, <quota>, <emulator_quota>, <iothread_quota>, <global_quota> and their periods, stored",
    ],
    good: "the default weight (100, v1: 1024) and no quota, or what the stored definition asks for; no quota on a group above",
    applies: "running guests whose groups have the CPU controller",
    not_applies: "weights above the guest: they share between guests and the host",
    effect: "a quota stops all threads of its group for the rest of each period, up to 100 ms; a lower weight costs in proportion when PUs are busy",
    evidence: Evidence::B,
    sources: &["k-cgv2", "lv-dom"],
    fix: Fix {
        live: Some(
            "virsh schedinfo DOM --live vcpu_quota=-1 emulator_quota=-1 iothread_quota=-1 global_quota=-1 cpu_shares=100",
        ),
        persistent: "where it is meant: virsh schedinfo DOM --config",
        needs: &[Need::Live],
        undo: "virsh schedinfo with the old values",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(process) = subject.process else { return Outcome::NotApplicable };
    scheduling::outcome(scheduling::of_groups(subject.stored_or_own(), process))
}
