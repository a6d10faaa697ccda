//! idle=poll is not used host-wide.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "idle-poll-not-global",
    layer: Layer::HostCpu,
    title: "idle=poll is not used host-wide",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/cmdline", "/sys/devices/system/cpu/cpu*/topology/core_cpus_list"],
    good: "absent",
    applies: "all",
    not_applies: "measured HFT hosts with SMT off",
    effect: "kernel doc: only slight gain, not recommended, runs hot",
    evidence: Evidence::B,
    sources: &["k-params"],
    fix: Fix {
        live: None,
        persistent: "remove idle=poll; use force_latency instead",
        needs: &[Need::HostReboot],
        undo: "undo re-add",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    if host.system.command_line.is_none() {
        return Outcome::unknown("/proc/cmdline");
    }
    let polls = context.kernel_parameter("idle") == Some("poll");
    // One thread a core, and nothing but guests that were promised the shortest answer.
    let alone = host.cores.iter().all(|core| core.cpus.len() < 2);
    let meant = alone
        && !context.domains.is_empty()
        && context.domains.iter().all(|domain| domain.class == WorkloadClass::Latency);
    let cure = Cure::NoKernelArgument { name: "idle".to_owned() };
    Outcome::one((polls && !meant).then(|| {
        let found = "idle=poll: idle threads slow their siblings and leave no power for others";
        Object::new("kernel command line", found, "no idle=poll").cured_by(cure)
    }))
}
