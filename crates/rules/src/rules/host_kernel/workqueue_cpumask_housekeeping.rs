//! Unbound kernel workqueues are confined to housekeeping CPUs.

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "workqueue-cpumask-housekeeping",
    layer: Layer::HostKernel,
    title: "Unbound kernel workqueues are confined to housekeeping CPUs",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/devices/system/cpu/isolated",
        "/sys/fs/cgroup/**/cpuset.cpus.partition",
    ],
    good: "mask has no isolated CPU",
    applies: "hosts with isolated CPUs",
    not_applies: "no isolation in use",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-cp", "k-params", "k-percpu"],
    fix: Fix {
        live: Some("echo <hexmask> > /sys/devices/virtual/workqueue/cpumask"),
        persistent: "tuned cpu-partitioning/realtime [sysfs] entries",
        needs: &[Need::Live],
        undo: "low; undo write all-ones mask",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    const PATH: &str = "/sys/devices/virtual/workqueue/cpumask";
    let Some(host) = context.host else { return Outcome::no_host() };

    let isolated = host.isolated_cpus().intersection(&context.online);
    if isolated.is_empty() {
        return Outcome::NotApplicable;
    }
    let Some(allowed) = &host.tuning.workqueue_cpus else { return Outcome::unknown(PATH) };
    let hit = allowed.intersection(&isolated);
    // Without a PU left there is no mask to write: the kernel refuses an empty one.
    let rest = allowed.difference(&isolated).intersection(&context.online);
    let cure = (!rest.is_empty()).then(|| Cure::kernel_file(PATH, rest.to_mask()));
    Outcome::one((!hit.is_empty()).then(|| {
        let object =
            Object::new("unbound kernel work", format!("may run on isolated PUs {hit}"), format!("PUs {rest}"));
        match cure {
            Some(cure) => object.cured_by(cure),
            None => object,
        }
    }))
}
