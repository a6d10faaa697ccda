//! The catalogue itself: ids, sources, the reference page, classes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use nearmetal_domain::DomainXml;
use nearmetal_host::files;
use nearmetal_rules::{
    Domain, Input, NOT_COVERED, RULES, SETTINGS, Settings, WorkloadClass, class_of, examine, reference, rule, source,
};

#[test]
fn ids_are_unique_words_with_hyphens_and_every_source_is_known() {
    let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), RULES.len());
    for rule in RULES {
        assert!(rule.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", rule.id);
        assert!(!rule.classes.is_empty() && !rule.reads.is_empty() && !rule.fix.needs.is_empty(), "{}", rule.id);
        for key in rule.sources {
            assert!(source(key).is_some(), "{}: {key}", rule.id);
        }
    }
    assert!(rule("disk-cache-none").is_some() && rule("no-such-rule").is_none());
}

#[test]
fn what_is_not_covered_is_no_rule_and_names_rules_that_are() {
    for (id, reason) in NOT_COVERED {
        assert!(rule(id).is_none(), "{id}");
        for named in reason.split('`').skip(1).step_by(2) {
            assert!(rule(named).is_some(), "{id}: {named}");
        }
    }
}

#[test]
fn every_threshold_has_its_reason() {
    let defaults = serde_json::to_value(Settings::default()).unwrap();
    let names: BTreeSet<&str> = defaults.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, SETTINGS.iter().map(|setting| setting.name).collect());
}

#[test]
fn the_reference_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/rules.md");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        files::write(&path, reference()).unwrap();
    }
    assert!(
        files::read_to_string(&path).unwrap() == reference(),
        "UPDATE_GOLDENS=1 cargo test -p nearmetal-rules reference"
    );
}

#[test]
fn a_class_is_taken_from_the_metadata_else_guessed_with_a_reason() {
    let of = |name: &str, from: &str, to: &str| {
        let (_, text, _) = common::DOMAINS.iter().find(|(known, ..)| *known == name).unwrap();
        class_of(&DomainXml::parse(&text.replacen(from, to, 1)).unwrap().facts().unwrap())
    };
    assert_eq!(of("vdi", "", ""), (WorkloadClass::Density, "its metadata".to_owned()));
    for (name, word, class) in [
        ("web", ">general<", WorkloadClass::General),
        ("win", ">windows<", WorkloadClass::Windows),
        ("rt", ">latency<", WorkloadClass::Latency),
        ("gpu", ">passthrough<", WorkloadClass::Passthrough),
        ("db", ">throughput<", WorkloadClass::Throughput),
    ] {
        let (guess, reason) = of(name, word, ">nonsense<");
        assert_eq!(guess, class, "{name}");
        assert!(reason.starts_with("guessed: "), "{reason}");
    }
}

#[test]
fn without_a_host_rules_about_it_say_what_is_missing_and_nothing_is_found() {
    let settings = Settings::default();
    let (_, text, _) = common::DOMAINS[2];
    let domain = Domain::new(Some(DomainXml::parse(text).unwrap().facts().unwrap()), None, None).unwrap();
    let result = examine(&Input { host: None, domains: &[domain], settings: &settings }, RULES);
    assert_eq!(result.findings, []);
    let told = result.cannot_tell.iter().find(|entry| entry.rule == "numa-vm-fits-node").unwrap();
    assert_eq!(told.missing, ["a host (--capture)"]);
}
