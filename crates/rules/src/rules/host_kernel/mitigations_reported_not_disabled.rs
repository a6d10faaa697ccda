//! CPU-vulnerability mitigations are recorded and never turned off silently.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "mitigations-reported-not-disabled",
    layer: Layer::HostKernel,
    title: "CPU-vulnerability mitigations are recorded and never turned off silently",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/proc/cmdline"],
    good: "recorded in the report; mitigations=off flagged as a policy exception, not as good",
    applies: "all",
    not_applies: "isolated lab hosts with an owner's waiver",
    effect: "workload dependent; unquantified here",
    evidence: Evidence::B,
    sources: &["k-params", "k-l1tf"],
    fix: Fix {
        live: None,
        persistent: "kernel command line mitigations=auto",
        needs: &[Need::HostReboot],
        undo: "turning mitigations off exposes host memory to guests",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(line) = context.host.map(|host| host.system.command_line.as_deref()) else {
        return Outcome::NotApplicable;
    };
    let Some(line) = line else { return Outcome::unknown("/proc/cmdline") };
    let off = [
        "mitigations=off",
        "spectre_v2=off",
        "nospectre_v2",
        "nospectre_v1",
        "retbleed=off",
        "l1tf=off",
        "mds=off",
        "nopti",
        "pti=off",
        "tsx_async_abort=off",
        "spec_store_bypass_disable=off",
    ];
    let words = line.split_ascii_whitespace().filter(|word| off.contains(word));
    Outcome::of(
        words
            .map(|word| Object::new("kernel command line", word, "mitigations=auto, unless a waiver says so"))
            .collect(),
    )
}
