//! docs/reference/results.md and races.md name exactly the fields of the documents they describe.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod races;
mod results;

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_results::{
    MATRIX_SCHEMA, MatrixResults, NET_MATRIX_SCHEMA, NetMatrixResults, PATHS_SCHEMA, Results, SCHEMA,
};
use serde::Serialize;
use serde_json::Value;

const RESULTS: Tables<'_> = Tables(include_str!("../../../../docs/reference/results.md"));
const RACES: Tables<'_> = Tables(include_str!("../../../../docs/reference/races.md"));

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap()
}

#[test]
fn results_have_exactly_the_fields_of_their_page() {
    let document = value(&results::full());
    let fields = Fields::of(&document);
    let elsewhere = ["tenants[].slice", "tenants[].load", "runs", "provenance", "tune", "tiles"];
    RESULTS.have(&fields.clone().without(&elsewhere), "## Fields");
    RESULTS.have(&fields.below(&["tenants[].slice"]), "## Slice");
    RESULTS.have(&fields.below(&["runs"]).without(&["workload"]), "## Run");
    RESULTS.have(&fields.below(&["runs[].workload"]), "## Workload");
    RESULTS.have(&fields.below(&["tiles"]), "## Tiles");
    let tuning = Fields::of(&document["tune"]);
    let fresh = ["to_found", "to_rule", "to_bare", "rule_to_found", "rule_to_bare"];
    let ratios = [&["arms[].to_found", "effects[].ratio", "alone[].ratio"][..], &fresh[..]].concat();
    RESULTS.have(&tuning.clone().without(&ratios).without(&["arms[].fate"]), "## Tune");
    ratios.iter().for_each(|ratio| RACES.have(&tuning.below(&[ratio]), "## Ratio"));
    assert!(RESULTS.0.contains(SCHEMA));
}

#[test]
fn every_word_of_results_is_explained() {
    let document = value(&results::full());
    RESULTS.explain(&document, "arms[].role", 4, "## Fields");
    RESULTS.explain(&document, "runs[].purpose", 8, "## Run");
    RESULTS.explain(&document, "runs[].outcome.outcome", 2, "## Run");
    RESULTS.explain(&document, "tune.verdict.do", 1, "## Tune");
    RESULTS.explain(&document, "runs[].outcome.metrics[].unit", 20, "## Units");
    for (field, many) in
        [("kind", 13), ("engine", 2), ("order", 1), ("file_system", 2), ("pages", 5), ("pattern", 2), ("test", 6)]
    {
        RESULTS.explain(&document, &format!("runs[].workload.{field}"), many, "## Workload");
    }
}

#[test]
fn a_disk_race_has_exactly_the_fields_of_its_page() {
    let fields = Fields::of(&value(&races::disk()));
    let ratios = ["arms[].to_default", "confirmation.to_default", "confirmation.to_bare"];
    let elsewhere = [
        "environment",
        "ground",
        "slice",
        "workload",
        "arms[].path",
        "arms[].effect",
        "arms[].fate",
        "turns",
        "confirmation.runs",
        "provenance",
    ];
    RACES.have(&fields.clone().without(&elsewhere).without(&ratios), "## Disk race");
    RACES.have(&fields.below(&["ground"]), "## Ground");
    RACES.have(&fields.below(&["arms[].path"]), "## Disk path");
    RACES.have(&fields.below(&["arms[].effect"]), "## Effect");
    RACES.have(&fields.below(&["arms[].fate"]), "## Fate");
    RACES.have(&fields.below(&["turns"]).without(&["outcome"]), "## Turn");
    ratios.iter().for_each(|ratio| RACES.have(&fields.below(&[ratio]), "## Ratio"));
    assert!(RACES.0.contains(MATRIX_SCHEMA));
}

#[test]
fn a_network_race_has_exactly_the_fields_of_its_page() {
    let fields = Fields::of(&value(&races::net()));
    let ratios = [
        "arms[].to_default",
        "arms[].to_bare",
        "confirmation.figures[].to_default",
        "confirmation.figures[].to_bare",
        "confirmation.figures[].default_to_bare",
    ];
    let elsewhere = [
        "environment",
        "ground",
        "slice",
        "arms[].path",
        "arms[].medians",
        "arms[].effect",
        "arms[].fate",
        "turns",
        "confirmation.turns",
        "provenance",
    ];
    RACES.have(&fields.clone().without(&elsewhere).without(&ratios), "## Network race");
    RACES.have(&fields.below(&["arms[].path"]), "## Network path");
    RACES.have(&fields.below(&["turns", "confirmation.turns"]).without(&["outcome"]), "## Turn");
    ratios.iter().for_each(|ratio| RACES.have(&fields.below(&[ratio]), "## Ratio"));
    assert!(RACES.0.contains(NET_MATRIX_SCHEMA));
}

#[test]
fn paths_read_back_have_exactly_the_fields_of_their_page() {
    let fields = Fields::of(&value(&races::paths()));
    let elsewhere = ["environment", "ground", "rows[].path"];
    RACES.have(&fields.clone().without(&elsewhere), "## Paths read back");
    RACES.have(&fields.below(&["rows[].path"]), "## Disk path");
    assert!(RACES.0.contains(PATHS_SCHEMA));
}

#[test]
fn every_word_of_races_is_explained() {
    let (disk, net) = (value(&races::disk()), value(&races::net()));
    for (field, many) in [("container", 9), ("cache", 5), ("engine", 3), ("bus", 2), ("scheduler", 4)] {
        RACES.explain(&disk, &format!("arms[].path.{field}"), many, "## Disk path");
    }
    for (field, many) in [("link", 7), ("backend", 2)] {
        RACES.explain(&net, &format!("arms[].path.{field}"), many, "## Network path");
    }
    RACES.explain(&disk, "arms[].effect.effect", 2, "## Effect");
    RACES.explain(&disk, "arms[].fate.fate", 4, "## Fate");
}

#[test]
fn the_examples_are_documents_that_this_version_reads() {
    Results::parse(&value(&results::full()).to_string()).unwrap();
    MatrixResults::parse(&value(&races::disk()).to_string()).unwrap();
    NetMatrixResults::parse(&value(&races::net()).to_string()).unwrap();
}
