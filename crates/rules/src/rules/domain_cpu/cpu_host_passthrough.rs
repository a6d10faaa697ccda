//! CPU model exposes the host's features.

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "cpu-host-passthrough",
    layer: Layer::DomainCpu,
    title: "CPU model exposes the host's features",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <cpu mode> (host-passthrough|host-model|custom|maximum) and <feature>"],
    good: "host-passthrough (migratable='on' unless pinned for good) on uniform or single hosts; host-model or a named recent model for mixed clusters; never the unset default",
    applies: "all x86 KVM guests",
    not_applies: "clusters with mixed CPUs: named baseline",
    effect: "unquantified; QEMU doc: host passthrough is the recommended choice when live migration is not required",
    evidence: Evidence::B,
    sources: &["q-cpu", "lv-dom", "rh-rhel10cpu"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <cpu mode='host-passthrough' check='none' migratable='on'/>",
        needs: &[Need::VmRestart],
        undo: "migration only between equal hosts; Windows may re-license; undo host-model",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if !subject.is_kvm() || !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    let cpu = &subject.facts.cpu;
    let poor = ["qemu64", "kvm64", "qemu32", "kvm32", "486", "pentium", "pentium2", "pentium3", "coreduo"];
    let found = match (cpu.mode.as_deref(), cpu.model.as_deref()) {
        (None | Some("custom"), None) => "not set, so QEMU uses qemu64".to_owned(),
        (None | Some("custom"), Some(model)) if poor.contains(&model) => model.to_owned(),
        _ => return Outcome::Clean,
    };
    // What a model of its own has beside it means nothing to the host's.
    let without = ["cpu/model", "cpu/vendor"].map(Cure::no_element);
    let cures = [("mode", "host-passthrough"), ("check", "none"), ("migratable", "on")];
    let cures = cures.map(|(name, value)| Cure::attribute("cpu", name, value));
    let object = Object::new("CPU model", found, "host-passthrough, host-model or a recent named model");
    let object = object.cured_by_all(without).cured_by_all(cures).cured_by(Cure::no_attribute("cpu", "match"));
    Outcome::one(Some(object))
}
