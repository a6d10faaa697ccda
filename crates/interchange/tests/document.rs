//! docs/reference/documents.md names exactly the fields of an export.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::*;
use nearmetal_change::AnyPlan;
use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_interchange::{EXPORT_SCHEMA, Engine, Options, export};
use proptest::prelude::*;

const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/documents.md"));
const ENGINES: [Engine; 5] = [Engine::Kubevirt, Engine::Terraform, Engine::Proxmox, Engine::Nova, Engine::Ansible];

#[test]
fn the_page_names_exactly_the_fields_of_an_export_and_every_engine() {
    let document = export(&host_plan(), Engine::Kubevirt, &Options::default()).unwrap().document(Engine::Kubevirt);
    PAGE.have(&Fields::of(&document), "## Export");
    assert!(PAGE.section("## Export").contains(&format!("Schema `{EXPORT_SCHEMA}`")));
    for engine in ENGINES {
        let word = serde_json::to_value(engine).unwrap();
        assert!(PAGE.section("## Export").contains(&format!("`{}`", word.as_str().unwrap())));
    }
}

#[test]
fn the_same_plan_gives_the_same_files_in_the_order_of_their_paths() {
    for engine in ENGINES {
        for (_, plan) in plans() {
            let one = export(&plan, engine, &Options::default()).unwrap();
            assert_eq!(one, export(&plan, engine, &Options::default()).unwrap());
            assert!(one.files.windows(2).all(|pair| pair[0].path < pair[1].path), "{engine:?}");
        }
    }
}

#[test]
fn a_limit_says_why_and_what_to_do() {
    for engine in ENGINES {
        for (_, plan) in plans() {
            for limit in export(&plan, engine, &Options::default()).unwrap().limits {
                assert!(!limit.what.is_empty() && !limit.why.is_empty() && !limit.by_hand.is_empty(), "{limit:?}");
                assert!(!limit.line().chars().any(char::is_control), "{limit:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_name_that_libvirt_takes_is_exported_and_ends_no_text(name in "\\PC{1,80}", host in "\\PC{0,80}") {
        let guest = pinned(&name, 1, &[2, 3], "6", 0);
        prop_assume!(guest.0.to_xml().is_ok());
        let plan = AnyPlan::Host(Box::new(plan(&host, vec![guest])));
        for engine in ENGINES {
            let exported = export(&plan, engine, &Options::default()).unwrap();
            for file in &exported.files {
                let plain = |part: &str| !part.is_empty() && !part.starts_with(['.', '-']) && part.is_ascii();
                prop_assert!(file.path.split('/').all(plain), "{}", file.path);
                match file.path.rsplit('.').next() {
                    Some("json") => drop(serde_json::from_str::<serde_json::Value>(&file.text).unwrap()),
                    Some("xsl") => drop(roxmltree::Document::parse(&file.text).unwrap()),
                    _ => prop_assert!(file.text.lines().all(|line| line.starts_with('#') || line.is_ascii()), "{}", file.text),
                }
            }
        }
    }
}
