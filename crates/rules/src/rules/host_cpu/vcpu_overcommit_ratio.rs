//! vCPU:pCPU ratio is within the class limit.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "vcpu-overcommit-ratio",
    layer: Layer::HostCpu,
    title: "vCPU:pCPU ratio is within the class limit",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/devices/system/cpu/online", "domain <vcpu>"],
    good: "dedicated classes 1:1 and no shared pin; general <= 5:1 at load < 100%; never > 10 vCPU per physical core",
    applies: "all",
    not_applies: "-",
    effect: "unquantified; ratios from vendor doc",
    evidence: Evidence::B,
    sources: &["rh-rhel10cpu", "rh-rhel6limits"],
    fix: Fix {
        live: Some("virsh setvcpus --live lower; migrate"),
        persistent: "capacity planning",
        needs: &[Need::Live],
        undo: "removing vCPUs can break guests; undo raise",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(_) = context.host else { return Outcome::no_host() };
    let online = context.online.len();
    if online == 0 {
        return Outcome::unknown("/sys/devices/system/cpu/online");
    }
    let vcpus: u64 = context.running().map(|facts| u64::from(facts.vcpus.current)).sum();
    let most = context.settings.vcpus_per_pu;
    let ratio = vcpus as f64 / online as f64;
    let found = format!("{vcpus} vCPUs on {online} PUs, {ratio:.1} each");
    Outcome::one((ratio > most).then(|| Object::new("running domains", found, format!("at most {most} each"))))
}
