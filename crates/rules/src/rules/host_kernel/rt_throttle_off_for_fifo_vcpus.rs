//! RT throttling does not cut SCHED_FIFO vCPUs.

use nearmetal_host::Sysctl;
use nearmetal_units::CpuSet;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "rt-throttle-off-for-fifo-vcpus",
    layer: Layer::HostKernel,
    title: "RT throttling does not cut SCHED_FIFO vCPUs",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &[
        "/proc/sys/kernel/sched_rt_runtime_us",
        "/sys/devices/system/cpu/isolated",
        "/sys/fs/cgroup/**/cpuset.cpus.partition",
        "domain <cputune><vcpusched scheduler='fifo'>",
    ],
    good: "-1 when any vCPU is fifo/rr on isolated CPUs; else default 950000",
    applies: "RT guests",
    not_applies: "hosts without isolation: a spinning FIFO vCPU hangs the CPU",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-rt", "kv-numa", "lv-rt"],
    fix: Fix {
        live: Some("sysctl kernel.sched_rt_runtime_us=-1"),
        persistent: "tuned realtime profile",
        needs: &[Need::Live],
        undo: "a runaway guest can starve the host CPU; undo =950000",
    },
    check: Check::Host(check),
};

const NAME: &str = "kernel.sched_rt_runtime_us";
/// The kernel's default, in µs of each second.
const DEFAULT: i64 = 950_000;

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let mut cpus: Vec<CpuSet> = Vec::new();
    for domain in context.domains {
        let which = if domain.running.is_some() { Which::Running } else { Which::Defined };
        let Some(facts) = domain.in_force() else { continue };
        let subject = Subject::new(context, domain, facts, which);
        let real_time = |vcpu: &u32| {
            let mut entries = facts.scheduling.schedulers.iter().filter(|entry| entry.threads == "vcpu");
            entries.any(|entry| entry.is_real_time() && entry.numbers.contains(*vcpu))
        };
        cpus.extend((0..facts.vcpus.current).filter(real_time).map(|vcpu| {
            // A vCPU without pins may run anywhere.
            subject.vcpus.get(&vcpu).unwrap_or(&context.online).clone()
        }));
    }
    if cpus.is_empty() {
        return Outcome::NotApplicable;
    }
    let isolated = host.isolated_cpus();
    let alone = cpus.iter().all(|cpus| cpus.is_subset(&isolated));
    if !alone && host.system.isolated.is_none() {
        return Outcome::unknown("/sys/devices/system/cpu/isolated");
    }
    let Some(runtime) = host.system.sysctl(NAME) else { return Outcome::unknown(Sysctl::path_of(NAME)) };
    let (found, wanted) = match (alone, runtime) {
        (true, 0..) => (format!("{runtime}: real-time vCPUs stop for the rest of each period"), -1),
        (false, ..0) => (format!("{runtime}: a real-time vCPU can keep a PU from the host forever"), DEFAULT),
        _ => return Outcome::Clean,
    };
    let cure = Cure::kernel_file(Sysctl::path_of(NAME), wanted.to_string());
    Outcome::one(Some(Object::new(NAME, found, wanted.to_string()).cured_by(cure)))
}
