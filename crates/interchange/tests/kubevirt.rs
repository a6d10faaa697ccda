//! KubeVirt's manifests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the golden is written where the tests are")]

mod common;

use common::*;
use nearmetal_interchange::{Engine, Exported, Options, export};
use serde_json::Value;

fn exported(plan: &nearmetal_change::AnyPlan) -> Exported {
    export(plan, Engine::Kubevirt, &Options::default()).unwrap()
}

#[test]
fn a_guest_of_each_kind_is_written_as_in_the_golden() {
    let exported = exported(&host_plan());
    golden("kubevirt.txt", &whole(&exported));
}

#[test]
fn a_manifest_has_every_planned_pu_and_no_other() {
    for (_, plan) in plans() {
        let exported = exported(&plan);
        for placement in parts(&plan).into_iter().flat_map(|part| &part.plan.placements) {
            let manifest = exported.files.iter().map(|file| serde_json::from_str::<Value>(&file.text).unwrap());
            let manifest = manifest
                .into_iter()
                .find(|one| one["metadata"]["annotations"]["nearmetal/domain"] == placement.guest.as_str())
                .unwrap();
            let pins = manifest["metadata"]["annotations"]["nearmetal/vcpu-pins"].as_str().unwrap_or_default();
            let wanted: Vec<String> = placement.vcpus.iter().map(|pin| format!("{}={}", pin.vcpu, pin.cpus)).collect();
            assert_eq!(pins, wanted.join(" "));
            let cpu = &manifest["spec"]["template"]["spec"]["domain"]["cpu"];
            assert_eq!(cpu["dedicatedCpuPlacement"] == true, !placement.vcpus.is_empty(), "{}", placement.guest);
        }
    }
}

#[test]
fn hostile_names_become_dns_labels_and_are_kept_beside() {
    let plan = hostile_plan();
    let exported = exported(&plan);
    let mut seen = std::collections::BTreeSet::new();
    let mut domains = Vec::new();
    for file in &exported.files {
        let manifest: Value = serde_json::from_str(&file.text).unwrap();
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(
            name.len() <= 63 && name.chars().all(plain) && !name.starts_with('-') && !name.ends_with('-'),
            "{name}"
        );
        assert!(seen.insert(name), "each name once");
        domains.push(manifest["metadata"]["annotations"]["nearmetal/domain"].as_str().unwrap().to_owned());
        assert!(manifest["spec"]["template"]["spec"].get("nodeSelector").is_none(), "no label has such a value");
    }
    let mut names = hostile_names();
    domains.sort();
    names.sort();
    assert_eq!(domains, names);
    let told = exported.limits.iter().filter(|limit| limit.what == "name").count();
    assert_eq!(told, hostile_names().len(), "each change of a name is told");
}

#[test]
fn nothing_starts_because_a_manifest_was_applied() {
    for file in exported(&host_plan()).files {
        let manifest: Value = serde_json::from_str(&file.text).unwrap();
        assert_eq!(manifest["spec"]["runStrategy"], "Halted");
    }
}
