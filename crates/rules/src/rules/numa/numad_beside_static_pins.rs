//! numad does not place guests with static pins.

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "numad-beside-static-pins",
    layer: Layer::Numa,
    title: "numad does not place guests with static pins",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain <vcpu placement>, <numatune><memory placement>, <vcpupin>"],
    good: "placement='static' together with pins",
    applies: "pinned guests",
    not_applies: "-",
    effect: "vCPUs stay where they are pinned, but memory goes where numad says",
    evidence: Evidence::B,
    sources: &["lv-dom", "rh-numa"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <vcpu placement='static'>, <numatune><memory mode='strict' nodeset='N'/>",
        needs: &[Need::VmRestart],
        undo: "placement='auto'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    if facts.vcpu_pins.is_empty() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    if facts.vcpus.placement.as_deref() == Some("auto") {
        let object = Object::new("<vcpu>", "placement='auto' together with static pins", "placement='static'");
        objects.push(object.cured_by(Cure::attribute("vcpu", "placement", "static")));
    }
    if facts.numatune.as_ref().is_some_and(|tune| tune.placement.as_deref() == Some("auto")) {
        let nodes = subject.context.host.map(|host| subject.vcpu_nodes(host)).filter(|nodes| !nodes.is_empty());
        let cures = nodes.into_iter().flat_map(|nodes| {
            let nodeset = Cure::attribute("numatune/memory", "nodeset", nodes.to_string());
            [nodeset, Cure::no_attribute("numatune/memory", "placement")]
        });
        objects.push(
            Object::new(
                "<numatune>",
                "placement='auto' together with static pins",
                "a \
            nodeset",
            )
            .cured_by_all(cures),
        );
    }
    Outcome::of(objects)
}
