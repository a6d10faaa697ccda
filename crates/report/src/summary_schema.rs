//! Whether a `summary.json` keeps its published schema.

use serde_json::Value;

/// docs/reference/summary.schema.json.
const SCHEMA: &str = include_str!("../../../docs/reference/summary.schema.json");

/// Where a text differs from the schema of `summary.json`, one sentence each; none if it keeps it.
///
/// Checks the keywords of JSON Schema that the file uses. One it does not know is a violation, so that nothing passes unread.
pub fn summary_violations(text: &str) -> Vec<String> {
    let parsed: Result<(Value, Value), _> =
        serde_json::from_str(SCHEMA).and_then(|schema| Ok((schema, serde_json::from_str(text)?)));
    match parsed {
        Ok((schema, summary)) => {
            let mut found = Vec::new();
            compare(&summary, &schema, "summary", &mut found);
            found
        }
        Err(error) => vec![format!("it is not JSON: {error}")],
    }
}

fn compare(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        let fine = match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "properties" | "items" => true,
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind)),
                kind => is(value, kind),
            },
            "const" => value == rule,
            "enum" => rule.as_array().is_some_and(|choice| choice.contains(value)),
            "minimum" => value.as_f64() >= rule.as_f64(),
            "required" => rule.as_array().is_some_and(|names| {
                names.iter().all(|name| name.as_str().is_some_and(|name| value.get(name).is_some()))
            }),
            _ => false,
        };
        if !fine {
            found.push(format!("{path}: {value} breaks {keyword} {rule}"));
        }
    }
    if let (Some(properties), Some(fields)) = (schema.get("properties"), value.as_object()) {
        for (name, field) in fields {
            match properties.get(name) {
                Some(schema) => compare(field, schema, &format!("{path}.{name}"), found),
                None => found.push(format!("{path}.{name} is not in the schema")),
            }
        }
    }
    if let (Some(schema), Some(items)) = (schema.get("items"), value.as_array()) {
        for (index, item) in items.iter().enumerate() {
            compare(item, schema, &format!("{path}[{index}]"), found);
        }
    }
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_the_schema_is_named_with_its_place() {
        for (schema, value, words) in [
            (r#"{"type": "integer"}"#, "1.5", "breaks type"),
            (r#"{"minimum": 1}"#, "0", "breaks minimum"),
            (r#"{"enum": ["a", null]}"#, "\"b\"", "breaks enum"),
            (r#"{"const": 1}"#, "2", "breaks const"),
            (r#"{"required": ["a"]}"#, "{}", "breaks required"),
            (r#"{"items": {"type": "null"}}"#, "[null, 1]", "it[1]: 1 breaks"),
            (r#"{"properties": {}}"#, r#"{"b": 1}"#, "it.b is not in"),
            (r#"{"maximum": 1}"#, "0", "breaks maximum"),
        ] {
            let parse = |text| serde_json::from_str::<Value>(text).unwrap_or_default();
            let mut found = Vec::new();
            compare(&parse(value), &parse(schema), "it", &mut found);
            assert!(found.len() == 1 && found[0].contains(words), "{schema} {value}: {found:?}");
        }
        assert!(summary_violations("{").iter().any(|line| line.contains("not JSON")));
        assert!(summary_violations("{}").iter().any(|line| line.contains("breaks required")));
    }
}
