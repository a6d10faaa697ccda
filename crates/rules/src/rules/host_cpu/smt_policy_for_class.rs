//! SMT state fits the class and siblings are known.

use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::finding::{Object, Outcome};
use crate::isolation::partitioned;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "smt-policy-for-class",
    layer: Layer::HostCpu,
    title: "SMT state fits the class and siblings are known",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &[
        "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
        "/sys/devices/system/cpu/isolated",
        "/sys/fs/cgroup/**/cpuset.cpus.partition",
        "domain <vcpupin>",
    ],
    good: "throughput/consolidation: on; RT: off or siblings left idle; untrusted tenants: off or core scheduling",
    applies: "all x86 with SMT",
    not_applies: "-",
    effect: "SPECjbb2005 +10..11% with HT on, KVM and native (SGI UV); IOzone in KVM 1-17% worse with HT on; Nova doc cites up to 30% for some workloads",
    evidence: Evidence::A,
    sources: &["paper-sgi-uv", "nova-cpu", "lv-rt", "k-l1tf"],
    fix: Fix {
        live: Some("echo off > /sys/devices/system/cpu/smt/control (migrates tasks)"),
        persistent: "firmware or nosmt",
        needs: &[Need::Live, Need::HostReboot],
        undo: "halves logical CPUs: re-plan pinning first; undo echo on",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let pins: CpuSet = subject.single_pins().values().copied().collect();
    if pins.is_empty() {
        return Outcome::NotApplicable;
    }
    let Some(isolated) = host.system.isolated.as_ref() else {
        return Outcome::unknown("/sys/devices/system/cpu/isolated");
    };
    let idle = isolated.union(&partitioned(host)).union(&pins);
    let siblings = pins.iter().filter_map(|pu| host.processor(pu)?.siblings.as_ref());
    let busy = siblings.fold(CpuSet::new(), |all, cpus| all.union(cpus)).difference(&idle);
    let found = format!("share cores with PUs {busy}, which other work can use");
    Outcome::one((!busy.is_empty()).then(|| {
        Object::new(
            "vCPUs",
            found,
            "idle siblings, siblings of the same guest, \
        or SMT off",
        )
    }))
}
