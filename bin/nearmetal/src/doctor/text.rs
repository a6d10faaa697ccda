//! For people: one line for each finding, worst first; one rule's whole story; all rules.

use std::collections::BTreeMap;
use std::fmt::Write;

use nearmetal_rules::{Answer, Finding, RULES, Rule, SETTINGS, Scope, Settings, Severity, Which, source};

use super::Report;

/// Objects of a finding shown in its line.
const SHOWN: usize = 2;
/// Missing facts of the same rules shown in a line: a thousand domains may lack the same one.
const SHOWN_MISSING: usize = 3;

/// The findings.
pub(crate) fn text(report: &Report<'_>) -> String {
    let mut page = String::new();
    let domains = &report.gathered.domains;
    let width = domains.iter().map(|domain| domain.name.chars().count()).max().unwrap_or(0);
    for domain in domains {
        let state = if domain.running.is_some() { "running" } else { "off" };
        let (name, class) = (&domain.name, domain.class.word());
        let _ = writeln!(page, "{name:width$}  {state:7}  {class} ({})", domain.class_reason);
    }
    if !domains.is_empty() {
        page.push('\n');
    }
    let findings = &report.examination.findings;
    let place = findings.iter().map(|finding| place_of(report, finding).chars().count()).max().unwrap_or(0);
    let rule = findings.iter().map(|finding| finding.rule.len()).max().unwrap_or(0);
    for finding in findings {
        let severity = finding.severity.as_str();
        let _ = writeln!(
            page,
            "{severity:6}  {:place$}  {:rule$}  {}",
            place_of(report, finding),
            finding.rule,
            line(finding)
        );
        if let Some(fix) = fix_line(finding) {
            let _ = writeln!(page, "{:6}  {fix}", "");
        }
        for left in report.gathered.left_by_plan(finding) {
            let _ = writeln!(page, "{:6}  left by the plan: {}: {}", "", left.what, left.why);
        }
    }
    if !findings.is_empty() {
        page.push('\n');
    }
    page.push_str(&summary(report));
    page
}

/// The host or the domain; which of its definitions only where it has two.
fn place_of(report: &Report<'_>, finding: &Finding) -> String {
    match &finding.scope {
        Scope::Domain { name, which: Which::Defined } => {
            let domain = report.gathered.domains.iter().find(|domain| domain.name == *name);
            let off = domain.is_some_and(|domain| domain.running.is_none());
            if off { name.clone() } else { finding.place() }
        }
        _ => finding.place(),
    }
}

fn line(finding: &Finding) -> String {
    let shown: Vec<String> = finding.objects.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = finding.objects.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    shown.join("; ") + &rest
}

/// Cures shown under a finding.
const CURES_SHOWN: usize = 3;

/// What would cure it, where a program may do that.
fn fix_line(finding: &Finding) -> Option<String> {
    let mut cures: Vec<String> = Vec::new();
    for cure in finding.objects.iter().flat_map(|object| &object.cures) {
        let words = format!("{}: {cure}", cure.when());
        if !cures.contains(&words) {
            cures.push(words);
        }
    }
    let more = cures.len().saturating_sub(CURES_SHOWN);
    cures.truncate(CURES_SHOWN);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!cures.is_empty()).then(|| format!("fix: {}{rest}", cures.join("; ")))
}

fn summary(report: &Report<'_>) -> String {
    let examination = report.examination;
    let count = |severity| examination.findings.iter().filter(|finding| finding.severity == severity).count();
    let counts: Vec<String> =
        Severity::ALL.iter().map(|severity| format!("{} {}", count(*severity), severity.as_str())).collect();
    let answers = |answer| examination.answers.get(&answer).copied().unwrap_or(0);
    // What was not looked at stands beside the count, or a reader takes silence for health.
    let found = match report.unchecked() {
        Some(unchecked) => format!("findings on the host: {}; {unchecked}\n", counts.join(", ")),
        None => format!("findings: {}; ", counts.join(", ")),
    };
    let mut text = format!(
        "{found}kept: {}, not applicable: {}, cannot tell: {}\n",
        answers(Answer::Clean),
        answers(Answer::NotApplicable),
        answers(Answer::CannotTell),
    );
    let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for entry in &examination.cannot_tell {
        missing.entry(entry.missing.join(", ")).or_default().push(&entry.rule);
    }
    let mut by_rules: BTreeMap<Vec<&str>, Vec<String>> = BTreeMap::new();
    for (path, rules) in missing {
        by_rules.entry(rules).or_default().push(path);
    }
    for (rules, paths) in by_rules {
        let shown: Vec<&str> = paths.iter().take(SHOWN_MISSING).map(String::as_str).collect();
        let more = match paths.len().saturating_sub(SHOWN_MISSING) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let _ = writeln!(text, "cannot tell: {}{more} ({})", shown.join("; "), rules.join(", "));
    }
    if let Some(first) = examination.findings.first() {
        if examination.findings.iter().any(|finding| finding.objects.iter().any(|object| !object.cures.is_empty())) {
            text.push_str("to see which of these nearmetal can fix: nearmetal doctor --fix --dry-run\n");
        }
        let _ = writeln!(text, "to learn more about a rule: nearmetal doctor --explain {}", first.rule);
    }
    text
}

/// One rule's whole story.
pub(crate) fn explain(rule: &Rule) -> String {
    let mut page = format!("{}: {}\n\n", rule.id, rule.title);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            let _ = writeln!(page, "{name:17}{value}");
        }
    };
    line("severity", &format!("{}: {}", rule.severity.as_str(), rule.severity.meaning()));
    line("layer", rule.layer.as_str());
    line("classes", &rule.class_names());
    for (index, read) in rule.reads.iter().enumerate() {
        line(if index == 0 { "reads" } else { "" }, read);
    }
    line("good", rule.good);
    line("applies", rule.applies);
    line("does not apply", rule.not_applies);
    line("worth", rule.effect);
    line("fix now", rule.fix.live.unwrap_or("none while it runs"));
    line("permanent fix", rule.fix.persistent);
    line("needs", &rule.needs());
    line("risk and undo", rule.fix.undo);
    line("evidence", rule.evidence.meaning());
    for (index, found) in rule.sources.iter().filter_map(|key| source(key)).enumerate() {
        line(if index == 0 { "sources" } else { "" }, &format!("{} ({})", found.title, found.site));
    }
    page
}

/// All rules and thresholds.
pub(crate) fn list() -> String {
    let width = RULES.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    let mut page = String::new();
    for rule in RULES {
        let (severity, layer) = (rule.severity.as_str(), rule.layer.as_str());
        let _ = writeln!(page, "{:width$}  {severity:6}  {layer:13}  {}", rule.id, rule.title);
    }
    page.push_str("\nthresholds (--set NAME=VALUE)\n");
    let defaults = serde_json::to_value(Settings::default()).unwrap_or_default();
    for setting in SETTINGS {
        let _ = writeln!(page, "{:width$}  {}  {}", setting.name, defaults[setting.name], setting.reason);
    }
    page
}
