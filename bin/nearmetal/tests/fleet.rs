//! `nearmetal fleet`: what reaches the user, and the exit codes.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use nearmetal_fleet::file::{FleetFile, HostReach};
use nearmetal_host::files;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

fn fleet(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("nearmetal").unwrap().arg("fleet").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_example_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.toml");
    let (code, example, _) = fleet(&["example"]);
    assert_eq!(code, 0);
    files::write(&path, example).unwrap();
    let (code, shown, said) = fleet(&["check", path.to_str().unwrap()]);
    assert_eq!((code, said), (0, format!("to plan it: nearmetal plan --fleet {}\n", path.display())));
    assert!(shown.contains("db-1 to db-3") && shown.contains("25 VMs, 4 hosts"), "{shown}");
    let (code, json, _) = fleet(&["check", path.to_str().unwrap(), "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, document["schema"].as_str()), (0, Some("nearmetal.fleet-file/1")));
    assert_eq!(document["vms"].as_array().unwrap().len(), 25);
}

#[test]
fn mistakes_are_wrong_use_and_all_told() {
    let path = fixture("fleets/bad/148-several-mistakes-at-once.toml");
    let (code, shown, said) = fleet(&["check", path.to_str().unwrap()]);
    assert_eq!((code, shown.as_str()), (2, ""));
    assert!(said.contains(":9:10: VM `web`: `memory` is \"2 GB\"") && said.contains(".toml` has 5 mistakes"), "{said}");
    assert_eq!(fleet(&["check", "/no/such/fleet.toml"]).0, 2);
}

#[test]
fn definitions_become_a_fleet_file_that_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("fleet.toml");
    let capture = fixture("hwloc/24p-24n-8c-2t-uv2000.xml");
    let mut arguments = vec!["init", "--name", "big", "--capture", capture.to_str().unwrap()];
    let definitions: Vec<PathBuf> =
        ["rules/web.xml", "rules/gpu.xml", "rules/db.xml", "domains/virt-install.xml"].map(fixture).to_vec();
    definitions.iter().for_each(|path| arguments.extend(["--domain-xml", path.to_str().unwrap()]));
    arguments.extend(["-o", output.to_str().unwrap()]);
    let (code, shown, said) = fleet(&arguments);
    assert_eq!((code, shown.as_str()), (0, ""), "{said}");
    let file = FleetFile::parse("", &files::read_to_string(&output).unwrap()).unwrap();
    assert_eq!((file.hosts[0].name.as_str(), file.vms.len()), ("big", 4));
    assert!(matches!(&file.hosts[0].reach, HostReach::Capture(path) if path.is_absolute()));
    assert!(file.vms.iter().all(|entry| entry.on.as_deref() == Some("big")));
    let (code, _, said) = fleet(&arguments);
    assert_eq!(code, 2, "a file that exists is not overwritten");
    assert!(said.contains("does not overwrite it"), "{said}");
}
