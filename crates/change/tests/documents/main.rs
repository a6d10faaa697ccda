//! docs/reference/plan.md and verification.md name exactly the fields of the documents they describe.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod plan;
mod verification;

use nearmetal_change::verify::VERIFICATION_SCHEMA;
use nearmetal_change::{PLAN_SCHEMA, PlanFile};
use nearmetal_cli_reference::{Fields, Tables};
use serde::Serialize;
use serde_json::Value;

const PLAN: Tables<'_> = Tables(include_str!("../../../../docs/reference/plan.md"));
const VERIFICATION: Tables<'_> = Tables(include_str!("../../../../docs/reference/verification.md"));

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap()
}

#[test]
fn a_plan_has_exactly_the_fields_of_its_page() {
    let fields = Fields::of(&value(&plan::full()));
    PLAN.have(&fields.clone().without(&["plan.placements"]), "## Fields");
    PLAN.have(&fields.below(&["plan.placements"]), "## Placement");
    assert!(PLAN.0.contains(PLAN_SCHEMA));
}

#[test]
fn every_word_of_a_plan_is_explained() {
    let document = value(&plan::full());
    for (field, many) in [("disks[].cache", 2), ("disks[].engine", 3), ("networks[].backend", 2)] {
        PLAN.explain(&document, &format!("plan.placements[].{field}"), many, "## Placement");
    }
    PLAN.explain(&document, "plan.placements[].devices[].kind", 3, "## Placement");
}

#[test]
fn the_plan_is_one_that_this_version_carries_out() {
    let full = plan::full();
    assert_eq!(PlanFile::parse(&full.to_json(), "the example").unwrap(), full);
}

#[test]
fn a_verification_has_exactly_the_fields_of_its_page() {
    VERIFICATION.have(&Fields::of(&value(&verification::full())), "## Fields");
    assert!(VERIFICATION.0.contains(VERIFICATION_SCHEMA));
}

#[test]
fn every_word_of_a_verification_is_explained() {
    let document = value(&verification::full());
    VERIFICATION.explain(&document, "checks[].outcome", 3, "## Fields");
    VERIFICATION.explain(&document, "checks[].kind", verification::KINDS.len(), "## Kinds of checks");
}
