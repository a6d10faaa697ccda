//! Stylesheets for Terraform's libvirt provider. What xsltproc makes of them is checked by `./dev check-exports`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeSet;

use common::*;
use nearmetal_interchange::{Engine, Options, export};
use nearmetal_units::CpuSet;
use roxmltree::Document;

#[test]
fn a_guest_with_a_node_of_its_own_is_written_as_in_the_golden() {
    let exported = export(&fleet_plan(), Engine::Terraform, &Options::default()).unwrap();
    let sheet = exported.files.iter().find(|file| file.path == "alpha/web1.xsl").unwrap();
    let limits: String = exported.limits.iter().map(|limit| format!("{}\n", limit.line())).collect();
    golden("terraform.txt", &format!("{}--- limits\n{limits}", sheet.text));
}

#[test]
fn a_stylesheet_has_every_planned_pu_and_no_other() {
    for (_, plan) in plans() {
        let exported = export(&plan, Engine::Terraform, &Options::default()).unwrap();
        for placement in parts(&plan).into_iter().flat_map(|part| &part.plan.placements) {
            let sheet = exported.files.iter().find(|file| is_of(&file.text, &placement.guest)).unwrap();
            let document = Document::parse(&sheet.text).unwrap();
            let sets = |name: &str| -> BTreeSet<(String, String)> {
                let nodes = document.descendants().filter(|node| node.has_tag_name(name));
                let pair = |node: roxmltree::Node<'_, '_>| {
                    let key = node.attribute("vcpu").or(node.attribute("iothread")).unwrap_or_default();
                    (key.to_owned(), node.attribute("cpuset").unwrap().to_owned())
                };
                nodes.map(pair).collect()
            };
            let wanted = placement.vcpus.iter().map(|pin| (pin.vcpu.to_string(), pin.cpus.to_string())).collect();
            assert_eq!(sets("vcpupin"), wanted, "{}", placement.guest);
            let mut slice = placement.iothreads.iter().fold(placement.emulator.clone(), |all, set| all.union(set));
            slice = placement.vcpus.iter().fold(slice, |all, pin| all.union(&pin.cpus));
            for (_, set) in ["vcpupin", "emulatorpin", "iothreadpin"].iter().flat_map(|name| sets(name)) {
                assert!(set.parse::<CpuSet>().unwrap().is_subset(&slice), "{}: {set}", placement.guest);
            }
        }
    }
}

/// Whether a stylesheet asks for this name.
fn is_of(sheet: &str, name: &str) -> bool {
    let document = Document::parse(sheet).unwrap();
    let tests = document.descendants().filter_map(|node| node.attribute("test"));
    let literal = match name.contains('\'') {
        false => format!("'{name}'"),
        true => format!("concat('{}')", name.replace('\'', "', \"'\", '")),
    };
    tests.into_iter().any(|test| test == format!("string(name) != {literal}"))
}

#[test]
fn hostile_names_are_texts_in_a_stylesheet_and_in_its_path() {
    let exported = export(&hostile_plan(), Engine::Terraform, &Options::default()).unwrap();
    for name in hostile_names() {
        assert!(exported.files.iter().any(|file| is_of(&file.text, &name)), "{name}");
    }
    let mut paths = BTreeSet::new();
    for file in &exported.files {
        Document::parse(&file.text).unwrap();
        assert!(file.path.split('/').all(|part| !part.starts_with(['.', '-']) && part.len() <= 104), "{}", file.path);
        assert!(paths.insert(&file.path), "{}", file.path);
    }
}

#[test]
fn iothreads_that_share_a_disk_come_with_it_and_polling_is_told() {
    let exported = export(&tuned(), Engine::Terraform, &Options::default()).unwrap();
    let sheet = &exported.files[0].text;
    for part in ["<xsl:if test=\"$wanted0 and $behind0 = ''\"><iothreads>", "@*[not(name()='", "<iothread id=\"2\"/>"] {
        assert!(sheet.contains(part) || sheet.replace('\'', "\"").contains(part), "{part}: {sheet}");
    }
    let limits: Vec<String> = exported.limits.iter().map(|limit| limit.line()).collect();
    assert!(limits.iter().any(|line| line.contains("halt polling")), "{limits:?}");
}
