//! Host halt polling ceiling fits the workload class.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-halt-poll-ns-by-class",
    layer: Layer::HostKernel,
    title: "Host halt polling ceiling fits the workload class",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/sys/module/kvm/parameters/halt_poll_ns"],
    good: "general: 200000 (x86 default seen on a 6.18 host); overcommitted/density or power-capped: 0-50000; guest uses haltpoll or host CPUs idle=poll/dedicated polling: 0; latency-sensitive request/response: tune 50000-200000 and keep only if halt_poll_success_ns grows faster than halt_poll_fail_ns",
    applies: "guests with short sleeps (RPC, OLTP)",
    not_applies: "always-busy vCPUs (HPC, DPDK) gain nothing",
    effect: "small-packet ping-pong client/server (unit not stated): bare host 31.33; host polling halt_poll_ns=300000 33.40 (93.8% of host speed); guest polling guest_halt_poll_ns=300000 with host polling off 32.73 (95.7%); raising halt_poll_ns 200000 -> 800000 changed four SAP HANA tests by +1%, +1.8%, -3.7%, -5% time; IBM Z uperf: 80000 ns gave the best overall result (chart only)",
    evidence: Evidence::A,
    sources: &["k-halt", "k-haltpoll", "ibm-halt"],
    fix: Fix {
        live: Some("echo 80000 > /sys/module/kvm/parameters/halt_poll_ns"),
        persistent: "options kvm halt_poll_ns=80000 in /etc/modprobe.d/kvm.conf",
        needs: &[Need::Live],
        undo: "large values can drive an idle host to 100% CPU; undo by writing the old value",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    if context.host.is_none() {
        return Outcome::no_host();
    }
    let Some(polling) = context.module_parameter("kvm.halt_poll_ns").and_then(|value| value.parse::<u64>().ok()) else {
        return Outcome::unknown("/sys/module/kvm/parameters/halt_poll_ns");
    };
    let domains = context.domains;
    let dense = !domains.is_empty() && domains.iter().all(|domain| domain.class == WorkloadClass::Density);
    let most = if dense { 50_000 } else { 200_000 };
    let found = format!("{polling} ns");
    Outcome::one((polling > most).then(|| {
        Object::new("kvm.halt_poll_ns", found, format!("at most {most} ns for these classes"))
            .cured_by(Cure::kernel_file("/sys/module/kvm/parameters/halt_poll_ns", most.to_string()))
    }))
}
