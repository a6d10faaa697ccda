//! KubeVirt's manifests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the golden is written where the tests are")]

mod common;

use common::*;
use nearmetal_change::AnyPlan;
use nearmetal_domain::{Firmware, NewInterfaceSource};
use nearmetal_interchange::{Engine, Exported, Options, export};
use serde_json::Value;

fn exported(plan: &AnyPlan) -> Exported {
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
fn no_two_vms_have_one_claim_and_no_two_networks_one_definition() {
    let long = "n".repeat(62);
    let mut guests = Vec::new();
    for (number, (ending, bridge)) in (1u32..).zip([("a", "br_0"), ("b", "br-0"), ("c", "br_0")]) {
        let (mut new, placement) = pinned(&format!("{long}{ending}"), number, &[number], "31", 0);
        new.interfaces[0].source = NewInterfaceSource::Bridge(bridge.to_owned());
        guests.push((new, placement));
    }
    let exported = exported(&AnyPlan::Host(Box::new(plan("kvm7", guests))));
    let (mut claims, mut networks) = (Vec::new(), Vec::new());
    for file in &exported.files {
        let manifest: Value = serde_json::from_str(&file.text).unwrap();
        let spec = &manifest["spec"]["template"]["spec"];
        claims.push(spec["volumes"][0]["persistentVolumeClaim"]["claimName"].as_str().unwrap().to_owned());
        networks.push(spec["networks"][0]["multus"]["networkName"].as_str().unwrap().to_owned());
    }
    let claim = format!("{}-vda", &long[..57]);
    assert_eq!(claims, [claim.clone(), format!("{claim}-2"), format!("{claim}-3")]);
    assert_eq!(networks, ["br-0", "br-0-2", "br-0"]);
}

#[test]
fn what_a_manifest_does_not_say_of_memory_and_firmware_has_a_line() {
    let (mut new, mut placement) = pinned("web1", 1, &[2, 3], "4", 0);
    placement.vcpus.iter_mut().for_each(|pin| pin.cpus = set("2-3"));
    new.firmware = Firmware::Efi;
    let exported = exported(&AnyPlan::Host(Box::new(plan("kvm7", vec![(new, placement)]))));
    let line = |what: &str| exported.limits.iter().find(|limit| limit.what == what).unwrap().line();
    assert!(line("memory nodes").contains("memory nodes 0: guestMappingPassthrough needs a PU for each vCPU"));
    assert!(line("UEFI").contains("without secure boot"));
}

#[test]
fn nothing_starts_because_a_manifest_was_applied() {
    for file in exported(&host_plan()).files {
        let manifest: Value = serde_json::from_str(&file.text).unwrap();
        assert_eq!(manifest["spec"]["runStrategy"], "Halted");
    }
}
