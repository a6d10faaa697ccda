//! JUnit XML: one suite for each layer, one case for each rule.

use std::fmt::Write;

use nearmetal_rules::{Check, Finding, Layer, RULES, Rule};

use super::Report;

/// The suites. A rule fails by findings at or above `--fail-on`; milder ones are in its output. One that lacks a fact,
/// and found nothing without it, is skipped, and so is a rule about domains where none was checked. What could not be read is an
/// error of a suite of its own.
pub(crate) fn junit(report: &Report<'_>) -> String {
    let mut layers: Vec<Layer> = RULES.iter().map(|rule| rule.layer).collect();
    layers.dedup();
    let mut suites = String::new();
    let (mut tests, mut failures) = (0, 0);
    for layer in layers {
        let rules: Vec<&Rule> = RULES.iter().filter(|rule| rule.layer == layer).collect();
        let cases: Vec<(bool, String)> = rules.iter().map(|rule| case(report, rule)).collect();
        let failed = cases.iter().filter(|(failed, _)| *failed).count();
        let name = layer.as_str();
        let _ = writeln!(suites, "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\">", cases.len());
        cases.iter().for_each(|(_, case)| suites.push_str(case));
        suites.push_str("  </testsuite>\n");
        tests += cases.len();
        failures += failed;
    }
    let problems = report.gathered.problems();
    let mut errors = String::new();
    if !problems.is_empty() {
        let count = problems.len();
        let _ =
            writeln!(suites, "  <testsuite name=\"definitions\" tests=\"{count}\" failures=\"0\" errors=\"{count}\">");
        for (number, problem) in (1..).zip(&problems) {
            let _ = writeln!(
                suites,
                "    <testcase classname=\"nearmetal.definitions\" name=\"unreadable-{number}\">\n      <error message=\"{}\"/>\n    </testcase>",
                escape(problem)
            );
        }
        suites.push_str("  </testsuite>\n");
        tests += count;
        errors = format!(" errors=\"{count}\"");
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"nearmetal doctor\" tests=\"{tests}\" failures=\"{failures}\"{errors}>\n{suites}</testsuites>\n"
    )
}

fn case(report: &Report<'_>, rule: &Rule) -> (bool, String) {
    let of_rule = report.examination.findings.iter().filter(|finding| finding.rule == rule.id);
    let (hard, mild): (Vec<&Finding>, Vec<&Finding>) = of_rule.partition(|found| report.is_failure(found.severity));
    let lines = |findings: &[&Finding]| -> String {
        let lines: Vec<String> =
            findings.iter().map(|found| format!("{}: {}", found.place(), found.evidence())).collect();
        escape(&lines.join("\n"))
    };
    let missing = report.examination.cannot_tell.iter().find(|entry| entry.rule == rule.id);
    let mut inner = String::new();
    if !hard.is_empty() {
        let message = escape(rule.title);
        let _ = writeln!(
            inner,
            "      <failure type=\"{}\" message=\"not kept: {message}\">{}</failure>",
            rule.severity.as_str(),
            lines(&hard)
        );
    } else if let (Some(unchecked), Check::Domain(_), true) = (report.unchecked(), &rule.check, mild.is_empty()) {
        let _ = writeln!(inner, "      <skipped message=\"{}\"/>", escape(&unchecked));
    } else if let (Some(entry), true) = (missing, mild.is_empty()) {
        let _ = writeln!(inner, "      <skipped message=\"cannot tell: {}\"/>", escape(&entry.missing.join(", ")));
    }
    if !mild.is_empty() {
        let _ = writeln!(inner, "      <system-out>{}</system-out>", lines(&mild));
    }
    let head = format!("    <testcase classname=\"nearmetal.{}\" name=\"{}\"", rule.layer.as_str(), rule.id);
    let case = if inner.is_empty() { format!("{head}/>\n") } else { format!("{head}>\n{inner}    </testcase>\n") };
    (!hard.is_empty(), case)
}

/// A text that can stand in an element or an attribute; characters XML forbids become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            _ if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}
