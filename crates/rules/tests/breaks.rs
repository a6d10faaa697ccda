//! Every rule: nothing is found in the clean example, and one thing broken in it gives exactly the findings expected.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod breaks {
    pub(crate) mod domain_cpu;
    pub(crate) mod domain_devices;
    pub(crate) mod host;
    pub(crate) mod kernel;
    pub(crate) mod layers;
    pub(crate) mod narrower;
}
mod common;

use common::Example;
use nearmetal_rules::{Answer, Cure, RULES, rule};

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
        .chain(breaks::layers::BREAKS)
        .chain(breaks::narrower::BREAKS)
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

#[test]
fn breaks_of_the_layers_have_exactly_the_cures_expected() {
    let line = |cure: &Cure| match cure {
        Cure::KernelFile { path, value } => format!("{path} = {value}"),
        Cure::KernelArgument { name, value } => format!("kernel argument {name}={}", value.as_deref().unwrap_or("")),
        other => format!("{other:?}"),
    };
    let mut found = Vec::new();
    for broken in breaks::layers::BREAKS {
        let mut example = Example::clean();
        (broken.change)(&mut example);
        let findings = example.examine([rule(broken.rule).unwrap()]).findings;
        let objects = findings.iter().flat_map(|finding| &finding.objects);
        let mut cures: Vec<String> = objects.flat_map(|object| &object.cures).map(line).collect();
        cures.dedup();
        if !cures.is_empty() {
            found.push((broken.rule, cures));
        }
    }
    found.sort_by_key(|(rule, _)| *rule);
    let expected =
        breaks::layers::CURES.map(|(rule, cures)| (rule, cures.iter().map(|cure| (*cure).to_owned()).collect()));
    assert_eq!(found, expected.to_vec());
}
