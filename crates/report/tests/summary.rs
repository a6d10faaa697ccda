//! `summary.json` holds what its published schema promises.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::summary_json;
use serde_json::Value;

/// What of JSON Schema the published file uses; anything else in it fails the test rather than passing unread.
fn violations(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().unwrap() {
        let fine = match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "properties" | "items" => true,
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind.as_str().unwrap())),
                kind => is(value, kind.as_str().unwrap()),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64() >= rule.as_f64(),
            "required" => rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            other => panic!("the schema uses `{other}`, which this test cannot check"),
        };
        if !fine {
            found.push(format!("{path}: {value} breaks {keyword} {rule}"));
        }
    }
    if let (Some(properties), Some(fields)) = (schema.get("properties"), value.as_object()) {
        for (name, field) in fields {
            match properties.get(name) {
                Some(schema) => violations(field, schema, &format!("{path}.{name}"), found),
                None => found.push(format!("{path}.{name} is not in the schema")),
            }
        }
    }
    if let (Some(schema), Some(items)) = (schema.get("items"), value.as_array()) {
        for (index, item) in items.iter().enumerate() {
            violations(item, schema, &format!("{path}[{index}]"), found);
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("the schema uses the type `{other}`"),
    }
}

fn check(view: &nearmetal_report::view::JobReport) -> Value {
    let schema: Value = serde_json::from_str(include_str!("../../../docs/reference/summary.schema.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary_json(view).unwrap()).unwrap();
    let mut found = vec![];
    violations(&summary, &schema, "summary", &mut found);
    assert!(found.is_empty(), "{found:#?}");
    summary
}

#[test]
fn the_summary_keeps_its_schema() {
    let summary = check(&sample::sample());
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["rolled_back"], true);
    assert_eq!(summary["lab"], true);
    assert_eq!(summary["environment"], "lab: emulated time");
    let planned = &summary["arms"][2];
    assert_eq!(
        (&planned["arm"], &planned["n"], &planned["low"], &planned["high"]),
        (&"planned".into(), &6.into(), &0.58.into(), &0.66.into())
    );
}

#[test]
fn what_is_not_known_is_null() {
    let mut view = sample::sample();
    view.verification.clear();
    view.rolled_back = None;
    view.comparisons[0].ratio = Some(f64::NAN);
    view.comparisons[0].interval = None;
    view.comparisons[0].metric = "a metric nobody listed".to_owned();
    view.stages[0].seconds = f64::INFINITY;
    let summary = check(&view);
    for value in [&summary["verified"], &summary["rolled_back"], &summary["stages"][0]["seconds"]] {
        assert!(value.is_null());
    }
    for field in ["ratio", "low", "high", "unit", "higher_is_better"] {
        assert!(summary["arms"][0][field].is_null(), "{field}");
    }
}

#[test]
fn a_read_back_that_cannot_tell_is_no_proof() {
    let mut view = sample::sample();
    view.verification[0].outcome = nearmetal_report::view::CheckOutcome::CannotTell;
    assert_eq!(check(&view)["verified"], false);
}
