//! Guest RAM is not overcommitted in dedicated/passthrough classes.

use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "no-memory-overcommit-dedicated",
    layer: Layer::Memory,
    title: "Guest RAM is not overcommitted in dedicated/passthrough classes",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/devices/system/node/node*/meminfo", "domain <memory>"],
    good: "sum <= available; swap rate 0",
    applies: "dedicated, VFIO (RAM is pinned), RT",
    not_applies: "density class with KSM/balloon by design",
    effect: "unquantified; Red Hat: overcommit not supported with device assignment",
    evidence: Evidence::B,
    sources: &["rh-rhel6limits", "rh-rhel10cpu"],
    fix: Fix { live: Some("migrate/stop"), persistent: "scheduler policy", needs: &[Need::Live], undo: "-" },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    let total = host.nodes.iter().filter_map(|node| node.memory_total).fold(Bytes::ZERO, Bytes::plus);
    if total == Bytes::ZERO {
        return Outcome::unknown("/sys/devices/system/node/node*/meminfo");
    }
    let dedicated = |domain: &&Domain| domain.class != WorkloadClass::Density;
    let asked = context.domains.iter().filter(dedicated).filter_map(|domain| domain.running.as_ref());
    let asked = asked.fold(Bytes::ZERO, |sum, facts| sum.plus(facts.memory));
    let found = format!("{asked} for running domains outside the density class");
    Outcome::one((asked > total).then(|| Object::new("memory", found, format!("at most {total}, the host's memory"))))
}
