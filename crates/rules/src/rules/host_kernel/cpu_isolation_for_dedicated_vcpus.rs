//! CPUs that carry pinned vCPUs are isolated from host tasks.

use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::finding::{Object, Outcome};
use crate::isolation::{isolate, partitioned};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "cpu-isolation-for-dedicated-vcpus",
    layer: Layer::HostKernel,
    title: "CPUs that carry pinned vCPUs are isolated from host tasks",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &["/sys/devices/system/cpu/isolated", "/sys/fs/cgroup/**/cpuset.cpus.partition", "domain <vcpupin>"],
    good: "vCPU pin set is a subset of isolated set (partition root 'isolated' or isolcpus), and no foreign user task may run there; at least one full core per NUMA node left for the host",
    applies: "latency, RT, NFV, licensed-core databases",
    not_applies: "consolidated/overcommitted hosts; OVS docs note minimal advantage in some cases",
    effect: "unquantified (direction: tail latency, not mean)",
    evidence: Evidence::B,
    sources: &["k-params", "k-cgv2", "lv-rt", "ovs-dpdk", "t-cp", "rocky-kvm"],
    fix: Fix {
        live: Some(
            "systemctl set-property --runtime system.slice AllowedCPUs=<hk>; same for user.slice, init.scope; or echo isolated > <cgroup>/cpuset.cpus.partition",
        ),
        persistent: "prefer cgroup v2 cpuset partition or tuned cpu-partitioning; isolcpus=managed_irq,domain,<list> on the command line for RT",
        needs: &[Need::Live, Need::HostReboot],
        undo: "isolated CPUs get no load balancing: 2+ runnable tasks on one CPU starve; undo set AllowedCPUs=all / partition=member",
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
    let open = pins.difference(&isolated.union(&partitioned(host)));
    let found = format!("PUs {open} are open to the host's own tasks");
    Outcome::one((!open.is_empty()).then(|| {
        Object::new("vCPUs", found, "an isolated cpuset partition, or isolcpus=").cured_by_all(isolate(subject.context))
    }))
}
