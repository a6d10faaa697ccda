//! docs/reference/fleet-plan.md names exactly the fields a plan has.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod fleets;

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_fleet::{DeviceSelector, FleetPlan};

const DOCUMENT: &str = include_str!("../../../docs/reference/fleet-plan.md");

/// A plan in which every list has an element, every option a value somewhere, and every form of a choice is there.
fn full() -> FleetPlan {
    let mut plan = fleets::told().plan;
    let grant = plan.placements[0].devices[0].clone();
    for selector in [DeviceSelector::Id { vendor: 0x10de, device: 0x20b5 }, DeviceSelector::Class { class: 0x0302 }] {
        plan.placements[0].devices.push(nearmetal_fleet::DeviceGrant { selector, ..grant.clone() });
    }
    plan
}

#[test]
fn the_document_names_exactly_the_fields_of_a_plan() {
    let fields = Fields::of(&serde_json::to_value(full()).unwrap());
    Tables(DOCUMENT).have(&fields, "## Fields");
}

#[test]
fn the_document_names_every_word_a_field_can_hold() {
    let plan = serde_json::to_value(full()).unwrap();
    let levels = plan["objective"]["levels"].as_array().unwrap();
    let levels = levels.iter().filter_map(|level| level["level"].as_str());
    let floating = plan["placements"].as_array().unwrap().iter().filter_map(|placement| placement["floating"].as_str());
    let words: Vec<&str> = levels.chain(floating).collect();
    assert_eq!(words.len(), 7 + 3, "the example has all of them");
    for word in words {
        assert!(DOCUMENT.contains(&format!("`{word}`")), "`{word}` is not in the document");
    }
}

#[test]
fn a_plan_reads_back_from_its_json() {
    let plan = full();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<FleetPlan>(&text).unwrap(), plan);
}
