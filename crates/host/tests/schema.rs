//! What `inspect --format json` prints is what docs/reference/host.schema.json says.
#![allow(clippy::unwrap_used, reason = "a document that cannot be parsed is a failed test")]

mod common;

use common::Tree;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{AccessControl, Document, Host, Interrupt, SCHEMA};
use serde_json::Value;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../docs/reference/host.schema.json")).unwrap()
}

/// The part of JSON Schema that the file uses; anything else in it fails the test. Gives what does not fit.
fn check(schema: &Value, root: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                wrong.extend(check(&root["$defs"][name], root, value, path));
            }
            "type" => {
                let fits = |kind: &Value| match kind.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                let kinds = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !kinds.iter().any(fits) {
                    wrong.push(format!("{path}: {value} is not {rule}"));
                }
            }
            "required" => {
                let missing =
                    rule.as_array().unwrap().iter().filter(|name| value[name.as_str().unwrap()] == Value::Null);
                let absent =
                    missing.filter(|name| !value.as_object().is_some_and(|o| o.contains_key(name.as_str().unwrap())));
                wrong.extend(absent.map(|name| format!("{path}: no {name}")));
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    match rule.get(name) {
                        Some(rule) => wrong.extend(check(rule, root, value, &format!("{path}.{name}"))),
                        None => wrong.push(format!("{path}.{name}: not in the schema")),
                    }
                }
            }
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                wrong.extend(items.flat_map(|(at, item)| check(rule, root, item, &format!("{path}[{at}]"))));
            }
            "prefixItems" => {
                let items = value.as_array().into_iter().flatten().zip(rule.as_array().unwrap());
                wrong.extend(items.flat_map(|(item, rule)| check(rule, root, item, path)));
            }
            "anyOf" => {
                let any = rule.as_array().unwrap().iter().any(|rule| check(rule, root, value, path).is_empty());
                wrong.extend((!any).then(|| format!("{path}: {value} fits none of {rule}")));
            }
            "enum" if !rule.as_array().unwrap().contains(value) => wrong.push(format!("{path}: {value} not in {rule}")),
            "const" if rule != value => wrong.push(format!("{path}: {value} is not {rule}")),
            "minimum" if value.as_i64().is_some_and(|value| value < rule.as_i64().unwrap()) => {
                wrong.push(format!("{path}: {value} is less than {rule}"));
            }
            "minItems" | "maxItems" if value.as_array().is_some_and(|v| v.len() as u64 != rule.as_u64().unwrap()) => {
                wrong.push(format!("{path}: not {rule} items"));
            }
            "enum"
            | "const"
            | "minimum"
            | "minItems"
            | "maxItems"
            | "description"
            | "additionalProperties"
            | "title"
            | "$schema"
            | "$id"
            | "$defs" => {}
            other => panic!("keyword {other} of the schema is not checked here"),
        }
    }
    wrong
}

fn wrong(host: &Host) -> Vec<String> {
    let document: Value = serde_json::from_str(&Document::new(host).to_json()).unwrap();
    check(&schema(), &schema(), &document, "")
}

#[test]
fn documents_of_real_machines_fit_the_schema() {
    assert_eq!(schema()["properties"]["schema"]["const"], SCHEMA);
    for name in
        ["2p-2n-8c-2t-vector-engines", "2p-11n-2c-1t-initiators", "1p-1n-20c-1t-two-kinds", "4p-1n-2c-2t-offline"]
    {
        assert_eq!(wrong(&Host::read(&Tree::of_fixture(name).fs())), [""; 0], "{name}");
    }
    // Guests, interrupts, control groups, disks, settings.
    let everything = Tree::of_text(include_str!("data/everything.txt"));
    assert_eq!(wrong(&Host::read(&everything.fs())), [""; 0]);
    let mut host = Synthetic::new().nvme_with_sriov(0, 4).network(0, 7, 2).build();
    host.pci_devices[0].access_control = Some(AccessControl::Present { able: 1, enabled: 0 });
    host.pci_devices[1].access_control = Some(AccessControl::Absent);
    host.interrupts.push(Interrupt::default());
    assert_eq!(wrong(&host), [""; 0]);
}

#[test]
fn the_check_notices_what_does_not_fit() {
    let document = |change: fn(&mut Value)| {
        let mut document: Value = serde_json::from_str(&Document::new(&Synthetic::new().build()).to_json()).unwrap();
        change(&mut document);
        check(&schema(), &schema(), &document, "")
    };
    assert_eq!(document(|_| ()), [""; 0]);
    assert_eq!(document(|document| document["host"]["new"] = Value::from(1)), [".host.new: not in the schema"]);
    assert_eq!(document(|document| document["summary"]["cores"] = Value::Null).len(), 1);
    let dropped = document(|document| drop(document["host"].as_object_mut().unwrap().remove("nodes")));
    assert_eq!(dropped, [".host: no \"nodes\""]);
}
