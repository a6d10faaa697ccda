//! Every rule: nothing is found in the clean example, and one thing broken in it gives exactly the findings expected.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod breaks {
    pub(crate) mod domain_cpu;
    pub(crate) mod domain_devices;
    pub(crate) mod host;
    pub(crate) mod host_cures;
    pub(crate) mod kernel;
}
mod common;

use common::Example;
use nearmetal_rules::{Answer, Layer, RULES, Severity, rule};

/// One thing broken in the clean example.
pub(crate) struct Break {
    /// The rule it is for.
    pub(crate) rule: &'static str,
    /// What is broken.
    pub(crate) change: fn(&mut Example),
    /// All that is found then, as `rule place: object`.
    pub(crate) expected: &'static [&'static str],
}

fn all() -> impl Iterator<Item = Break> {
    breaks::domain_cpu::BREAKS
        .into_iter()
        .chain(breaks::domain_devices::BREAKS)
        .chain(breaks::host::BREAKS)
        .chain(breaks::kernel::BREAKS)
}

#[test]
fn nothing_is_found_in_the_clean_example_and_every_rule_looked() {
    let example = Example::clean();
    assert_eq!(example.findings(), Vec::<String>::new());
    let idle: Vec<&str> = RULES
        .iter()
        .filter(|rule| !example.examine([*rule]).answers.contains_key(&Answer::Clean))
        .map(|rule| rule.id)
        .collect();
    assert!(idle.is_empty(), "no clean example: {idle:?}");
    assert_eq!(example.examine(RULES).cannot_tell, []);
}

#[test]
fn one_thing_broken_gives_exactly_the_findings_expected() {
    let mut wrong = Vec::new();
    for broken in all() {
        let mut example = Example::clean();
        (broken.change)(&mut example);
        let mut expected: Vec<String> = broken.expected.iter().map(|line| (*line).to_owned()).collect();
        expected.sort();
        let found = example.findings();
        if found != expected || !found.iter().any(|line| line.starts_with(&format!("{} ", broken.rule))) {
            wrong.push(format!("{}: found {found:#?}, expected {expected:#?}", broken.rule));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_rule_without_a_break() {
    let without: Vec<&str> =
        RULES.iter().map(|rule| rule.id).filter(|id| !all().any(|broken| broken.rule == *id)).collect();
    assert!(without.is_empty(), "no break: {without:?}");
}

/// Cures of what a rule finds, as lines; one with its number for files that each PU has.
fn cures(example: &Example, id: &str) -> Vec<String> {
    let findings = example.examine([rule(id).unwrap()]).findings;
    let objects = findings.iter().flat_map(|finding| &finding.objects);
    let mut lines: Vec<(String, usize)> = Vec::new();
    for line in objects.flat_map(|object| &object.cures).map(ToString::to_string) {
        let line = match line.strip_prefix("/sys/devices/system/cpu/cpu").and_then(|rest| rest.split_once('/')) {
            Some((_, rest)) => format!("/sys/devices/system/cpu/cpu*/{rest}"),
            None => line,
        };
        match lines.last_mut().filter(|(last, _)| *last == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    lines.into_iter().map(|(line, count)| if count > 1 { format!("{count} × {line}") } else { line }).collect()
}

#[test]
fn breaks_of_the_host_have_exactly_the_cures_expected() {
    let of_host = |id: &str| {
        let layer = rule(id).unwrap().layer;
        matches!(layer, Layer::HostKernel | Layer::HostCpu | Layer::Memory | Layer::Block | Layer::Net)
    };
    let mut wrong = Vec::new();
    let mut seen: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for broken in all().filter(|broken| of_host(broken.rule)) {
        let nth = seen.entry(broken.rule).or_default();
        let mut example = Example::clean();
        (broken.change)(&mut example);
        let found = cures(&example, broken.rule);
        let table = breaks::host_cures::CURES.iter().filter(|(id, _)| *id == broken.rule);
        if table.map(|(_, cures)| *cures).nth(*nth).is_none_or(|expected| found != expected) {
            wrong.push(format!("{}, break {}: {found:#?}", broken.rule, *nth + 1));
        }
        *nth += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(breaks::host_cures::CURES.len(), seen.values().sum::<usize>(), "the table has a line for each break");
}

#[test]
fn cures_depend_on_what_is_known() {
    let mut wrong = Vec::new();
    for (what, change, id, expected) in breaks::host_cures::OTHERS {
        let mut example = Example::clean();
        change(&mut example);
        let found = cures(&example, id);
        let broken = !example.examine([rule(id).unwrap()]).findings.is_empty();
        if found != expected || !broken {
            wrong.push(format!("{what}: {found:#?}, broken: {broken}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_person_decides_has_no_cure() {
    for broken in all().filter(|broken| rule(broken.rule).unwrap().severity == Severity::Decide) {
        let mut example = Example::clean();
        (broken.change)(&mut example);
        assert_eq!(cures(&example, broken.rule), Vec::<String>::new(), "{}", broken.rule);
    }
}
