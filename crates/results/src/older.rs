//! Documents of earlier versions, made into today's form before they are read. Only their shape is known here.

use serde_json::{Map, Value, json};

use crate::arm::ArmName;
use crate::results::SCHEMA;

/// Today's form of a document; one of another schema is given back as it is, and refused by who reads it.
pub fn upgraded(document: Value) -> Value {
    let Value::Object(mut document) = document else { return document };
    match document.get("schema").and_then(Value::as_str) {
        Some("nearmetal.results/1") => results_1(&mut document),
        Some("nearmetal.together/3") => together_3(&mut document),
        _ => {}
    }
    Value::Object(document)
}

/// One guest at the top, and arms by the word `kind` alone.
fn results_1(document: &mut Map<String, Value>) {
    let take = |document: &mut Map<String, Value>, key: &str| document.remove(key).unwrap_or_default();
    let tenant = json!({ "guest": take(document, "guest"), "slice": take(document, "slice") });
    document.insert("tenants".to_owned(), json!([tenant]));
    document.insert("experiment".to_owned(), json!("slice"));
    document.insert("schema".to_owned(), json!(SCHEMA));
    for arm in document.get_mut("arms").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(arm) = arm.as_object_mut() {
            let kind = take(arm, "kind");
            arm.extend(named(kind.as_str().unwrap_or_default()));
        }
    }
}

/// An arm's name as members of an object.
fn named(id: &str) -> Map<String, Value> {
    match serde_json::to_value(ArmName::known(id)) {
        Ok(Value::Object(name)) => name,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Members and samples of two sides.
fn together_3(document: &mut Map<String, Value>) {
    let mut load = document.remove("load").unwrap_or_default();
    let workload = match load.get("kind").and_then(Value::as_str) {
        Some("net") => json!({ "kind": "net", "test": load["test"], "peer": load["peer"], "seconds": load["seconds"] }),
        _ => match load.get_mut("job").map(Value::take) {
            Some(Value::Object(mut job)) => {
                job.insert("kind".to_owned(), json!("fio"));
                Value::Object(job)
            }
            _ => Value::Null,
        },
    };
    let metric = |sample: &Value| {
        let parts = sample.get("members").and_then(Value::as_array);
        let rate: f64 = parts.into_iter().flatten().filter_map(|part| part.get("rate")?.as_f64()).sum();
        match (workload["kind"].as_str(), workload["test"].as_str()) {
            (Some("net"), Some(test)) => {
                let unit = if matches!(test, "tcp-stream" | "tcp-maerts") { "bit/s" } else { "trans/s" };
                json!({ "name": format!("{test}.rate"), "unit": unit, "value": rate })
            }
            _ => json!({ "name": "iops", "unit": "IOPS", "value": rate }),
        }
    };
    let run = |sample: &Value| {
        let costs = sample.get("costs").and_then(Value::as_array).cloned().unwrap_or_default();
        let outcome = match sample.get("thrown_away").and_then(Value::as_str) {
            Some(why) => json!({ "outcome": "failed", "why": why }),
            None => {
                let metrics: Vec<Value> = std::iter::once(metric(sample)).chain(costs).collect();
                json!({ "outcome": "measured", "metrics": metrics, "notes": sample.get("notes").cloned().unwrap_or_else(|| json!([])) })
            }
        };
        json!({
            "round": sample["round"], "position": 0, "purpose": "pair", "count": sample["count"],
            "arm": if sample["side"] == "bare" { "bare-slice" } else { "planned" },
            "workload": workload, "seed": 0, "started": sample["started"], "seconds": 0.0, "outcome": outcome,
            "together": { "parts": sample["members"], "overlap": sample["overlap"], "clocks_within": sample["clocks_within"] },
        })
    };
    let samples = document.remove("samples").unwrap_or_default();
    let runs: Vec<Value> = samples.as_array().into_iter().flatten().map(run).collect();
    let arm = |id: &str| {
        let mut arm = named(id);
        arm.extend(Map::from_iter(
            [("description", json!("")), ("region", json!("")), ("placement", json!([]))]
                .map(|(key, value)| (key.to_owned(), value)),
        ));
        Value::Object(arm)
    };
    let members = document.remove("members").unwrap_or_default();
    for (key, value) in [
        ("schema", json!(SCHEMA)),
        ("experiment", json!("together")),
        ("quick", json!(false)),
        ("tenants", members),
        ("arms", json!([arm("bare-slice"), arm("planned")])),
        ("runs", json!(runs)),
    ] {
        document.insert(key.to_owned(), value);
    }
    document.remove("ceiling");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;

    #[test]
    fn a_comparison_of_version_1_is_read() {
        let text = include_str!("../../../fixtures/results/job-sample/results.json");
        assert!(text.contains("nearmetal.results/1"), "the fixture is kept as that version wrote it");
        let results = Results::parse(text).unwrap();
        assert_eq!((results.guest(), results.experiment.as_str()), ("web1", "slice"));
        assert_eq!(results.title("as-found"), "as found");
        assert!(results.runs.iter().all(|run| run.count == 1 && results.arm(&run.arm).is_some()));
    }

    #[test]
    fn several_guests_of_version_3_are_read() {
        let slice = json!({ "cpus": "1", "nodes": "0", "page_size": null, "device": "/dev/x", "region": 1024, "cpus_on_top": "" });
        let member = |rate: f64| json!([{ "guest": "w0", "rate": rate, "window": { "began": 0.0, "ended": 9.0 } }]);
        let sample = |side: &str, rate: f64| json!({ "round": 0, "count": 1, "side": side, "started": "", "members": member(rate), "overlap": 1.0, "clocks_within": 0.5 });
        let job = serde_json::to_value(nearmetal_load::FioJob::first_seed(nearmetal_units::Bytes::from_kib(4), 5, 1))
            .unwrap();
        let document = json!({
            "schema": "nearmetal.together/3", "created": "", "version": "0", "environment": { "kind": "silicon" }, "seed": 1,
            "members": [{ "guest": "w0", "slice": slice, "placement": [] }], "load": { "kind": "disk", "job": job },
            "least_overlap": 0.8, "samples": [sample("bare", 100.0), sample("guests", 40.0)], "caveats": [], "provenance": {},
        });
        let results = Results::parse(&document.to_string()).unwrap();
        let values: Vec<f64> =
            results.runs.iter().filter_map(|run| run.value("iops")).map(|metric| metric.value).collect();
        assert_eq!(values, [100.0, 40.0]);
        assert_eq!(results.runs[1].arm, "planned");
    }

    #[test]
    fn another_schema_is_left_to_be_refused() {
        assert!(Results::parse("{\"schema\": \"nearmetal.results/9\"}").is_err());
        assert!(Results::parse("[]").is_err() && Results::parse("{}").is_err());
    }
}
