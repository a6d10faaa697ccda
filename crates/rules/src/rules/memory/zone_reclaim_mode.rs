//! zone_reclaim_mode is 0 unless every VM fits its node.

use nearmetal_domain::DomainFacts;
use nearmetal_units::{Bytes, NodeSet};
use std::collections::BTreeSet;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::some_of;

pub(crate) const RULE: Rule = Rule {
    id: "zone-reclaim-mode",
    layer: Layer::Memory,
    title: "zone_reclaim_mode is 0 unless every VM fits its node",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/sys/vm/zone_reclaim_mode", "domain <numatune>"],
    good: "0; 1 only when all VMs are strictly node-bound",
    applies: "NUMA",
    not_applies: "-",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-sysctl"],
    fix: Fix {
        live: Some("sysctl vm.zone_reclaim_mode=0"),
        persistent: "/etc/sysctl.d",
        needs: &[Need::Live],
        undo: "1 causes reclaim stalls with free remote memory; undo 0",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    const PATH: &str = "/proc/sys/vm/zone_reclaim_mode";
    let Some(host) = context.host else { return Outcome::no_host() };

    if host.nodes.iter().filter(|node| node.memory_total.is_some_and(|total| total > Bytes::ZERO)).count() < 2 {
        return Outcome::NotApplicable;
    }
    let Some(mode) = host.system.zone_reclaim_mode else { return Outcome::unknown(PATH) };
    let bound = |facts: &DomainFacts| {
        // `strict` is libvirt's word for no word.
        let strict = |mode: &Option<String>| matches!(mode.as_deref(), None | Some("strict" | "restrictive"));
        let one = |nodes: &Option<NodeSet>| nodes.as_ref().is_some_and(|nodes| nodes.len() == 1);
        facts.numatune.as_ref().is_some_and(|tune| match tune.cells.as_slice() {
            [] => strict(&tune.mode) && one(&tune.nodes),
            cells => cells.iter().all(|cell| strict(&cell.mode) && one(&cell.nodes)),
        })
    };
    let loose = context.domains.iter().filter_map(Domain::in_force).filter(|facts| !bound(facts));
    let loose: BTreeSet<&str> = loose.map(|facts| facts.name.as_str()).collect();
    Outcome::one((mode != 0 && !loose.is_empty()).then(|| {
        let found = format!("{mode}, and {} may use memory of other nodes", some_of(&loose));
        Object::new("zone_reclaim_mode", found, "0").cured_by(Cure::kernel_file(PATH, "0"))
    }))
}
