//! RT host: pause-loop exits and periodic kvmclock sync off.

use nearmetal_domain::DomainFacts;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-rt-module-params",
    layer: Layer::HostKernel,
    title: "RT host: pause-loop exits and periodic kvmclock sync off",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/sys/module/kvm_intel/parameters/ple_gap",
        "/sys/module/kvm/parameters/kvmclock_periodic_sync",
        "domain <vcpusched>",
    ],
    good: "ple_gap == 0 and kvmclock_periodic_sync == N",
    applies: "1:1 pinned RT/NFV hosts only",
    not_applies: "overcommitted hosts (PLE is what makes spinning vCPUs yield)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-rvh"],
    fix: Fix {
        live: None,
        persistent: "/etc/modprobe.d/kvm.rt.tuned.conf as written by tuned realtime-virtual-host",
        needs: &[Need::ModuleReload, Need::HostReboot],
        undo: "with overcommit, ple_gap=0 causes lock-holder-preemption stalls; undo by deleting the file",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    if context.host.is_none() {
        return Outcome::no_host();
    }
    let in_force = || context.domains.iter().filter_map(Domain::in_force);
    let real_time = |facts: &DomainFacts| {
        facts.scheduling.schedulers.iter().any(|entry| entry.threads == "vcpu" && entry.is_real_time())
    };
    if !in_force().any(real_time) {
        return Outcome::NotApplicable;
    }
    // Where vCPUs outnumber PUs, one that spins must make room for the one it waits for.
    let vcpus: u64 = context.running().map(|facts| u64::from(facts.vcpus.current)).sum();
    if vcpus > context.online.len() as u64 {
        return Outcome::NotApplicable;
    }
    let wanted = [("kvm_intel", "ple_gap", "0"), ("kvm", "kvmclock_periodic_sync", "N")];
    let object = |(module, parameter, value): (&str, &str, &str)| {
        let name = format!("{module}.{parameter}");
        let found = context.module_parameter(&name).filter(|found| *found != value)?;
        let (module, parameter) = (module.to_owned(), parameter.to_owned());
        let cure = Cure::ModuleParameter { module, parameter, value: value.to_owned() };
        Some(Object::new(name, found, format!("{value}, for real-time vCPUs that share no PU")).cured_by(cure))
    };
    Outcome::of(wanted.into_iter().filter_map(object).collect())
}
