//! Every rule: nothing is found in the clean example, and one thing broken in it gives exactly the findings expected.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;

mod breaks {
    pub(crate) mod domain_cpu;
    pub(crate) mod domain_devices;
    pub(crate) mod host;
    pub(crate) mod host_cures;
    pub(crate) mod inside;
    pub(crate) mod kernel;
    pub(crate) mod layers;
    pub(crate) mod narrower;
    pub(crate) mod uncured;
}
mod common;

use common::Example;
use nearmetal_domain::DomainXml;
use nearmetal_rules::{
    Answer, Cure, Domain, Finding, Input, Layer, RULES, Scope, Settings, Severity, Which, examine, rule,
};

/// One thing broken in the clean example.
#[derive(Clone, Copy)]
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
        .chain(breaks::inside::BREAKS)
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
    // Those of the layers have a table of their own.
    let breaks = [breaks::domain_devices::BREAKS.as_slice(), &breaks::host::BREAKS, &breaks::kernel::BREAKS].concat();
    for broken in breaks.into_iter().filter(|broken| of_host(broken.rule)) {
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

/// Objects as `rule domain: object`, whichever definition they were found in.
fn places(example: &Example) -> BTreeSet<String> {
    let findings = example.examine(RULES).findings;
    findings.iter().flat_map(|finding| finding.objects.iter().map(|object| named(finding, &object.what))).collect()
}

fn named(finding: &Finding, what: &str) -> String {
    match &finding.scope {
        Scope::Host => format!("{} host: {what}", finding.rule),
        Scope::Domain { name, .. } => format!("{} {name}: {what}", finding.rule),
    }
}

/// Makes the edits of a finding in the example's texts; the objects that had any.
fn edit(example: &mut Example, finding: &Finding) -> Vec<String> {
    let Scope::Domain { name, .. } = &finding.scope else { return Vec::new() };
    let text = &mut example.texts.iter_mut().find(|(known, ..)| known == name).unwrap().1;
    let mut xml = DomainXml::parse(text).unwrap();
    let mut objects = Vec::new();
    for object in &finding.objects {
        let edits = object.cures.iter().filter_map(|cure| match cure {
            Cure::Definition(edit) => Some(edit),
            _ => None,
        });
        let mut any = false;
        for edit in edits {
            xml.edit(edit).unwrap_or_else(|error| panic!("{}: {edit}: {error}", finding.rule));
            any = true;
        }
        if any {
            objects.push(named(finding, &object.what));
        }
    }
    *text = xml.to_string();
    objects
}

#[test]
fn edits_of_a_definition_make_the_finding_go_away_and_bring_no_other() {
    let (mut wrong, mut cured) = (Vec::new(), 0);
    for broken in all() {
        let mut example = Example::clean();
        (broken.change)(&mut example);
        let before = places(&example);
        for finding in example.examine(RULES).findings {
            // What only runs otherwise is cured by a restart, not by an edit.
            if matches!(finding.scope, Scope::Domain { which: Which::Running, .. }) {
                continue;
            }
            let mut example = Example::clean();
            (broken.change)(&mut example);
            let objects = edit(&mut example, &finding);
            if objects.is_empty() {
                continue;
            }
            cured += 1;
            let after = places(&example);
            let left: Vec<_> = objects.iter().filter(|object| after.contains(*object)).collect();
            // What was seen inside a guest is of its last start, before the edit.
            let new: Vec<_> = after.difference(&before).filter(|line| !line.starts_with("guest-")).collect();
            if !left.is_empty() || !new.is_empty() {
                wrong.push(format!("{} ({}): still {left:?}, new {new:?}", finding.rule, broken.rule));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cured > 40, "only {cured} findings have edits");
}

#[test]
fn every_rule_has_cures_or_a_reason_to_have_none() {
    let mut with = BTreeSet::new();
    let changes = all().map(|broken| broken.change).chain(breaks::host_cures::OTHERS.iter().map(|other| other.1));
    for change in changes {
        let mut example = Example::clean();
        change(&mut example);
        let findings = example.examine(RULES).findings;
        let cured = findings.iter().filter(|finding| finding.objects.iter().any(|object| !object.cures.is_empty()));
        with.extend(cured.map(|finding| finding.rule.clone()));
    }
    let without: BTreeSet<&str> = RULES
        .iter()
        .filter(|rule| rule.severity != Severity::Decide && !with.contains(rule.id))
        .map(|rule| rule.id)
        .collect();
    let listed: BTreeSet<&str> = breaks::uncured::UNCURED.iter().map(|(id, _)| *id).collect();
    let missing: Vec<_> = without.difference(&listed).collect();
    let outdated: Vec<_> = listed.difference(&without).collect();
    assert!(
        missing.is_empty() && outdated.is_empty(),
        "no cure and no reason: {missing:?}; cured by now: {outdated:?}"
    );
    assert!(breaks::uncured::UNCURED.iter().all(|(_, reason)| reason.len() > 20));
}

#[test]
fn threads_are_moved_where_no_vcpu_and_no_quiet_pu_is() {
    let mut example = Example::clean();
    example.replace("db", "<emulatorpin cpuset='0,16'/>", "<emulatorpin cpuset='8'/>");
    example.replace("db", "<iothreadpin iothread='1' cpuset='3'/>", "<iothreadpin iothread='1' cpuset='1'/>");
    // vCPUs of `db` and `rt` are on 1-2, 4-5 and 17-18; 4-5 and 20-21 are isolated; the node has 0-7 and 16-23.
    let spare = "0,3,6-7,16,19,22-23";
    let emulator = [format!("emulator thread on PUs {spare}"), format!("cputune/emulatorpin/@cpuset = {spare}")];
    assert_eq!(cures(&example, "emulator-pin-separate"), emulator);
    let iothread =
        [format!("iothread 1 on PUs {spare}"), format!("cputune/iothreadpin[@iothread='1']/@cpuset = {spare}")];
    assert_eq!(cures(&example, "iothread-pin"), iothread);
    // Which PUs are to be kept quiet is unknown: nothing is chosen.
    example.host.system.isolated = None;
    assert_eq!(cures(&example, "emulator-pin-separate"), Vec::<String>::new());
    assert_eq!(cures(&example, "iothread-pin"), Vec::<String>::new());
}

#[test]
fn a_running_thread_goes_where_its_stored_definition_has_it() {
    let example = Example::clean();
    let text = &example.texts.iter().find(|(name, ..)| name == "db").unwrap().1;
    let facts = |text: &str| DomainXml::parse(text).unwrap().facts().unwrap();
    let live = facts(&text.replace("<emulatorpin cpuset='0,16'/>", "<emulatorpin cpuset='1'/>"));
    let domains = [Domain::new(Some(facts(text)), Some(live), None).unwrap()];
    let settings = Settings::default();
    let input = Input { host: Some(&example.host), domains: &domains, settings: &settings };
    let findings = examine(&input, [rule("emulator-pin-separate").unwrap()]).findings;
    let cures: Vec<String> = findings[0].objects[0].cures.iter().map(ToString::to_string).collect();
    assert_eq!((findings.len(), cures), (1, vec!["emulator thread on PUs 0,16".to_owned()]));
}

#[test]
fn breaks_of_the_layers_have_exactly_the_cures_expected() {
    let mut found = Vec::new();
    for broken in breaks::layers::BREAKS {
        let mut example = Example::clean();
        (broken.change)(&mut example);
        let findings = example.examine([rule(broken.rule).unwrap()]).findings;
        let objects = findings.iter().flat_map(|finding| &finding.objects);
        let mut cures: Vec<String> = objects.flat_map(|object| &object.cures).map(ToString::to_string).collect();
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
