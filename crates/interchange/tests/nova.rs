//! Nova's flavors, both ways.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::*;
use nearmetal_fleet::file::FleetFile;
use nearmetal_fleet::{CpuSharing, GuestNuma, SmtPolicy};
use nearmetal_interchange::{Engine, Exported, Options, export, fleet_from_flavors};
use nearmetal_units::{Bytes, CpuSet, PageSize};
use proptest::prelude::*;

fn exported(plan: &nearmetal_change::AnyPlan) -> Exported {
    export(plan, Engine::Nova, &Options::default()).unwrap()
}

fn text_of(exported: &Exported, path: &str) -> String {
    exported.files.iter().find(|file| file.path == path).unwrap().text.clone()
}

#[test]
fn a_guest_of_each_kind_is_written_as_in_the_golden() {
    let exported = exported(&host_plan());
    golden("nova.txt", &whole(&exported));
}

#[test]
fn a_host_dedicates_every_planned_pu_and_shares_no_other_of_the_slice() {
    for (_, plan) in plans() {
        let exported = exported(&plan);
        let confs = exported.files.iter().filter(|file| file.path.ends_with("/nova.conf"));
        let parts = parts(&plan);
        assert_eq!(confs.clone().count(), parts.len());
        for (conf, part) in confs.zip(parts) {
            let set = |key: &str| -> CpuSet {
                let line = conf.text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
                line.map(|set| set.parse().unwrap()).unwrap_or_default()
            };
            let (mut vcpus, mut helpers) = (CpuSet::new(), CpuSet::new());
            for placement in &part.plan.placements {
                vcpus = placement.vcpus.iter().fold(vcpus, |all, pin| all.union(&pin.cpus));
                let sets = placement.iothreads.iter().chain(&placement.vhost).chain([&placement.emulator]);
                helpers = sets.fold(helpers, |all, set| all.union(set));
            }
            assert_eq!(set("cpu_dedicated_set"), vcpus);
            assert_eq!(set("cpu_shared_set"), helpers.difference(&vcpus));
        }
    }
}

#[test]
fn vms_of_one_shape_have_one_flavor() {
    let flavors: serde_json::Value = serde_json::from_str(&text_of(&exported(&fleet_plan()), "flavors.json")).unwrap();
    assert_eq!(flavors.as_array().unwrap().len(), 1);
}

#[test]
fn hostile_names_are_quoted_words_in_comments() {
    let script = text_of(&exported(&hostile_plan()), "create.sh");
    for line in script.lines().filter(|line| line.contains("reboot")) {
        let quoted = line.trim_end().ends_with("'$(reboot)`reboot`;reboot'");
        assert!(line.starts_with("# ") && quoted, "{line}");
    }
    assert!(script.lines().filter(|line| !line.starts_with('#')).all(str::is_ascii));
}

#[test]
fn groups_of_the_fleet_file_become_server_groups() {
    let text = "[[host]]\nname = \"alpha\"\nlocal = true\n\n[defaults]\nvcpus = 4\nmemory = \"4 GiB\"\n\n[[vm]]\nname = \"web1\"\n\n[[vm]]\nname = \"web2\"\n\n\
                [[group]]\nname = \"it's\"\nscope = \"host\"\nrule = \"apart\"\nmembers = [\"web1\", \"web2\"]\n";
    let fleet = FleetFile::parse("", text).unwrap();
    let options = Options { fleet: Some(fleet), ..Options::default() };
    let exported = export(&fleet_plan(), Engine::Nova, &options).unwrap();
    let script = text_of(&exported, "create.sh");
    assert!(script.contains("openstack server group create --policy anti-affinity 'it'\\''s'\n"), "{script}");
}

#[test]
fn an_exported_flavor_comes_back_as_the_vm_it_is_of() {
    let flavors = text_of(&exported(&host_plan()), "flavors.json");
    let (text, _) = fleet_from_flavors(&flavors, "flavors.json").unwrap();
    let fleet = FleetFile::parse("fleet.toml", &text).unwrap();
    let db = &fleet.vm("nearmetal-db").unwrap().vm;
    assert_eq!((db.vcpus, db.memory), (8, Bytes::from_mib(8192)));
    assert_eq!((db.page_size, db.smt), (Some(PageSize::HUGE_1G), SmtPolicy::Require));
    assert_eq!((db.cpus, db.numa), (CpuSharing::Dedicated, GuestNuma::Cells(2)));
    let tiny = &fleet.vm("nearmetal-tiny").unwrap().vm;
    assert!(matches!(tiny.cpus, CpuSharing::Shared { .. }), "{:?}", tiny.cpus);
}

#[test]
fn flavors_are_read_as_each_client_prints_them() {
    let shown = r#"{"name": "a", "vcpus": 2, "ram": 2048, "disk": 0, "properties": {"hw:mem_page_size": "1GB", "quota:cpu_shares": "2048"}}"#;
    let listed = r#"[{"ID": "1", "Name": "b", "RAM": 1024, "Disk": 1, "VCPUs": 1, "Is Public": true,
        "Properties": "hw:cpu_policy='dedicated', hw:mem_page_size='any'"}]"#;
    let (text, limits) = fleet_from_flavors(shown, "x").unwrap();
    let a = FleetFile::parse("", &text).unwrap().vm("a").unwrap().vm.clone();
    assert_eq!(a.page_size, Some(PageSize::HUGE_1G));
    assert_eq!(limits.iter().map(|limit| limit.what.as_str()).collect::<Vec<_>>(), ["quota:cpu_shares"]);
    let (text, limits) = fleet_from_flavors(listed, "x").unwrap();
    let b = FleetFile::parse("", &text).unwrap().vm("b").unwrap().vm.clone();
    assert_eq!((b.vcpus, b.cpus, b.page_size), (1, CpuSharing::Dedicated, None));
    let left: Vec<&str> = limits.iter().map(|limit| limit.what.as_str()).collect();
    assert_eq!(left, ["hw:mem_page_size", "disk"], "a disk of 1 GiB is said, one of 0 is none");
}

#[test]
fn what_is_no_flavor_is_refused_with_its_place() {
    let table = [
        ("", "x: EOF while parsing"),
        ("3", "x: it is neither a flavor nor a list of flavors"),
        ("[3]", "x: flavor 1: it is not an object"),
        ("{}", "x: flavor 1: it has no `name`"),
        (r#"[{"name": "a"}]"#, "x: flavor 1: it has no `vcpus`"),
        (r#"[{"name": "a", "vcpus": -1, "ram": 1}]"#, "x: flavor 1: `vcpus` is -1: no whole number"),
        (
            r#"[{"name": "a", "vcpus": 1, "ram": 1, "properties": "x"}]"#,
            "x: flavor 1: its `properties` cannot be read at `x`",
        ),
    ];
    for (text, says) in table {
        let error = fleet_from_flavors(text, "x").unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

proptest! {
    #[test]
    fn any_flavor_becomes_a_fleet_file_that_parses(
        name in ".{0,300}", vcpus in any::<u32>(), ram in any::<u64>(), key in ".{0,40}", value in ".{0,40}",
        policy in prop::sample::select(vec!["dedicated", "shared", "mixed", "", "\n"]), pages in "[a-zA-Z0-9]{0,12}",
    ) {
        let flavor = serde_json::json!([{ "name": name, "vcpus": vcpus, "ram": ram, "properties": {
            key: value, "hw:cpu_policy": policy, "hw:mem_page_size": pages, "hw:numa_nodes": "3" } }]);
        let (text, _) = fleet_from_flavors(&flavor.to_string(), "x").unwrap();
        prop_assert!(FleetFile::parse("", &text).is_ok(), "{}", text);
    }

    #[test]
    fn damaged_text_is_an_error_and_no_panic(text in ".{0,200}") {
        let _ = fleet_from_flavors(&text, "x");
        let properties = serde_json::json!({ "name": "a", "vcpus": 1, "ram": 64, "properties": text });
        let _ = fleet_from_flavors(&properties.to_string(), "x");
    }
}
