//! KVM runs guest code on the processor.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-runs-on-processor",
    layer: Layer::HostKernel,
    title: "KVM runs guest code on the processor",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["a guest of a few dozen bytes (nearmetal-probe kvm), run once a boot on the machine itself"],
    good: "guest code runs at the processor's own speed",
    applies: "every host that runs guests, before the first of them too",
    not_applies: "-",
    effect: "unquantified here (orders of magnitude in practice): /dev/kvm exists, definitions say kvm, and guests are emulated all the same",
    evidence: Evidence::B,
    sources: &["q-cpu", "own"],
    fix: Fix {
        live: None,
        persistent: "use another machine, or enable nested virtualisation in the hypervisor below this one",
        needs: &[Need::Firmware],
        undo: "-",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let Some(accelerates) = host.system.kvm_accelerates else {
        return Outcome::unknown(
            "whether KVM runs guests on the processor (nearmetal-probe kvm, on the machine itself)",
        );
    };
    let found = "it emulates guests, more than ten times slower than the processor";
    Outcome::one((!accelerates).then(|| {
        Object::new(
            "KVM of this host",
            found,
            "KVM in hardware: use another machine, or enable nested virtualisation for this one",
        )
    }))
}
