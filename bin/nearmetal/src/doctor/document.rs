//! For programs: one document, described by docs/reference/doctor.schema.json.

use nearmetal_rules::{Finding, rule, source};
use serde_json::{Value, json};

use super::Report;

/// The document.
///
/// # Errors
/// None in practice: everything in it is a text or a number.
pub(crate) fn json(report: &Report<'_>) -> serde_json::Result<String> {
    let gathered = report.gathered;
    let domains: Vec<Value> = gathered
        .domains
        .iter()
        .map(|domain| {
            json!({
                "name": domain.name, "class": domain.class.word(), "class_reason": domain.class_reason,
                "running": domain.running.is_some(), "defined": domain.defined.is_some(),
                "inside": domain.inside.is_some(),
            })
        })
        .collect();
    let findings: Vec<Value> = report
        .examination
        .findings
        .iter()
        .map(|found| {
            let mut value = finding(found)?;
            let left = gathered.left_by_plan(found).into_iter();
            value["left_by_plan"] = left.map(|left| json!({"what": left.what, "why": left.why})).collect();
            Ok(value)
        })
        .collect::<serde_json::Result<_>>()?;
    serde_json::to_string_pretty(&json!({
        "schema": "nearmetal.doctor/1",
        "nearmetal_version": env!("CARGO_PKG_VERSION"),
        "host": gathered.host.source,
        "domains": domains,
        "domains_unknown": gathered.domains_unknown,
        "summary": report.summary(),
        "findings": findings,
        "cannot_tell": report.examination.cannot_tell,
        "answers": report.examination.answers,
        "fail_on": report.fail_on,
        "failed": report.fails(),
        "errors": gathered.problems(),
        "denied": gathered.host.denied,
    }))
}

fn finding(finding: &Finding) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(finding)?;
    value["evidence"] = finding.evidence().into();
    if let Some(rule) = rule(&finding.rule) {
        value["title"] = rule.title.into();
        value["layer"] = rule.layer.as_str().into();
        value["grade"] = serde_json::to_value(rule.evidence)?;
        value["worth"] = rule.effect.into();
        value["fix"] = json!({
            "live": rule.fix.live, "persistent": rule.fix.persistent, "needs": rule.fix.needs, "undo": rule.fix.undo,
        });
        let sources = rule.sources.iter().filter_map(|key| source(key));
        value["sources"] = sources.map(|source| format!("{} ({})", source.title, source.site)).collect();
    }
    Ok(value)
}
