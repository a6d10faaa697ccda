//! Automatic NUMA balancing matches the placement method.

use nearmetal_domain::DomainFacts;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "numa-autobalancing-off-when-pinned",
    layer: Layer::Numa,
    title: "Automatic NUMA balancing matches the placement method",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/sys/kernel/numa_balancing", "domain <vcpupin>, <numatune>"],
    good: "0 when every guest has strict pins (hinting faults are pure cost); 1 when guests float",
    applies: "latency/RT/NFV with static pins",
    not_applies: "density/general hosts without pins",
    effect: "unquantified (sysctl doc: unmapping and faults are overhead that should be offset by locality)",
    evidence: Evidence::B,
    sources: &["k-sysctl", "t-nl", "rh-netlat", "rh-numa"],
    fix: Fix {
        live: Some("sysctl kernel.numa_balancing=0"),
        persistent: "/etc/sysctl.d; tuned network-latency / realtime set it",
        needs: &[Need::Live],
        undo: "floating guests lose locality; undo =1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    if host.nodes.len() < 2 {
        return Outcome::NotApplicable;
    }
    let Some(balancing) = host.system.numa_balancing else {
        return Outcome::unknown("/proc/sys/kernel/numa_balancing");
    };
    let strict = |facts: &DomainFacts| {
        let memory = facts
            .numatune
            .as_ref()
            .is_some_and(|tune| tune.nodes.is_some() && matches!(tune.mode.as_deref(), None | Some("strict")));
        let pinned = facts.vcpu_pins.len() >= facts.vcpus.current as usize;
        memory && pinned
    };
    let placed: Vec<bool> = context.running().map(strict).collect();
    let fights = balancing > 0 && !placed.is_empty() && placed.iter().all(|strict| *strict);
    // `plan` asks of the domains as they will be: the words hold before and after it is applied.
    let found = match placed.len() {
        1 => "on, and a domain with pinned vCPUs and strict memory gains nothing from it".to_owned(),
        several => format!("on, and {several} domains with pinned vCPUs and strict memory gain nothing from it"),
    };
    let cure = Cure::kernel_file("/proc/sys/kernel/numa_balancing", "0");
    Outcome::one(fights.then(|| Object::new("numa_balancing", found, "0").cured_by(cure)))
}
