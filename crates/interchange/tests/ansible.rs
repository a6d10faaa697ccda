//! Ansible's role, and what of a plan goes with it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::*;
use nearmetal_change::PlanFile;
use nearmetal_change::verify::{Check, CheckKind, Outcome, VERIFICATION_SCHEMA, Verification};
use nearmetal_interchange::{Engine, Options, export};

#[test]
fn each_host_has_its_whole_plan_for_its_owner_alone() {
    for (_, plan) in plans() {
        let exported = export(&plan, Engine::Ansible, &Options::default()).unwrap();
        let files: Vec<_> = exported.files.iter().filter(|file| file.path.starts_with("plans/")).collect();
        let parts = parts(&plan);
        assert_eq!(files.len(), parts.len());
        for file in files {
            assert!(file.private, "{}: definitions may hold passwords", file.path);
            let read = PlanFile::parse(&file.text, &file.path).unwrap();
            assert!(parts.contains(&&read), "{}", file.path);
        }
    }
}

#[test]
fn the_inventory_has_the_hosts_in_the_order_of_the_plan() {
    let exported = export(&fleet_plan(), Engine::Ansible, &Options::default()).unwrap();
    let inventory = exported.files.iter().find(|file| file.path == "inventory.json").unwrap();
    serde_json::from_str::<serde_json::Value>(&inventory.text).unwrap();
    golden("ansible-inventory.json", &inventory.text);
}

#[test]
fn the_role_looks_for_the_words_that_verify_has_for_what_waits_for_a_start() {
    let check = Check {
        subject: "disk vda".to_owned(),
        kind: CheckKind::DiskCache,
        planned: "cache none".to_owned(),
        found: Some("cache writeback".to_owned()),
        outcome: Outcome::Mismatch,
        place: None,
    };
    let (schema, guest, taken) = (VERIFICATION_SCHEMA.to_owned(), "web1".to_owned(), String::new());
    let mut verification = Verification { schema, guest, taken, checks: vec![check], guest_view: None };
    verification.await_restart(&["disk vda".to_owned()]);
    let exported = export(&host_plan(), Engine::Ansible, &Options::default()).unwrap();
    let tasks = exported.files.iter().find(|file| file.path == "roles/nearmetal/tasks/prepare.yml").unwrap();
    let condition = tasks.text.lines().find(|line| line.contains("in nearmetal_before.stdout")).unwrap();
    let words = condition.split('"').nth(1).unwrap();
    assert!(verification.to_string().contains(words), "{words}: {verification}");
    assert_eq!(verification.waiting(), 1);
}

#[test]
fn no_name_of_a_plan_is_in_a_file_that_ansible_reads_as_code() {
    let exported = export(&hostile_plan(), Engine::Ansible, &Options::default()).unwrap();
    for file in exported.files.iter().filter(|file| !file.path.starts_with("plans/")) {
        assert!(!file.text.contains("7*7") && !file.text.contains("reboot") && file.text.is_ascii(), "{}", file.path);
    }
    for file in &exported.files {
        assert!(file.path.split('/').all(|part| !part.starts_with(['.', '-'])), "{}", file.path);
    }
}
