//! SARIF 2.1.0 (OASIS): what code-scanning views read.

use nearmetal_rules::{RULES, Rule, Scope, Severity};
use serde_json::{Value, json};

use super::Report;

/// The log of one run.
///
/// # Errors
/// None in practice: everything in it is a text or a number.
pub(crate) fn sarif(report: &Report<'_>) -> serde_json::Result<String> {
    let rules: Vec<Value> = RULES.iter().map(rule).collect();
    let results: Vec<Value> = report
        .examination
        .findings
        .iter()
        .map(|finding| {
            let (name, qualified) = match &finding.scope {
                Scope::Host => ("host".to_owned(), "host".to_owned()),
                Scope::Domain { name, which } => (name.clone(), format!("domain/{name}/{}", which.as_str())),
            };
            json!({
                "ruleId": finding.rule,
                "ruleIndex": RULES.iter().position(|rule| rule.id == finding.rule),
                "level": level(finding.severity),
                "message": { "text": format!("{}: {}", finding.place(), finding.evidence()) },
                "locations": [{ "logicalLocations": [
                    { "name": name, "fullyQualifiedName": qualified, "kind": "resource" },
                ] }],
            })
        })
        .collect();
    let problems = report.gathered.problems().into_iter();
    let mut notifications: Vec<Value> =
        problems.map(|problem| json!({ "level": "error", "message": { "text": problem } })).collect();
    let successful = notifications.is_empty();
    // Views show no count without it: no result in a domain that nobody looked at is no good news.
    if report.unchecked().is_some() {
        notifications.push(json!({ "level": "warning", "message": { "text": report.summary() } }));
    }
    serde_json::to_string_pretty(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "nearmetal", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "invocations": [{
                "executionSuccessful": successful,
                "toolExecutionNotifications": notifications,
            }],
            "results": results,
        }],
    }))
}

fn rule(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "shortDescription": { "text": rule.title },
        "fullDescription": { "text": format!("Good: {}", rule.good) },
        "help": { "text": format!("Fix: {}. Undo: {}", rule.fix.persistent, rule.fix.undo) },
        "defaultConfiguration": { "level": level(rule.severity) },
        "properties": { "layer": rule.layer.as_str(), "severity": rule.severity.as_str(), "evidence": rule.evidence },
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Fault => "error",
        Severity::Loss => "warning",
        Severity::Decide | Severity::Note => "note",
    }
}
