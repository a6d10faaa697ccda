//! `nearmetal export` and `nearmetal fleet import`, from the command line to the files.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

#[path = "../../../crates/interchange/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};

use nearmetal_host::files;
use serde_json::Value;

fn nearmetal(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nearmetal")).args(arguments).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory with the plan of a fleet in it.
fn planned() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.json");
    files::write(&path, common::json(&common::fleet_plan())).unwrap();
    let path = path.display().to_string();
    (directory, path)
}

#[test]
fn every_engine_gets_its_files_and_the_list_of_what_it_cannot_say() {
    let (directory, plan) = planned();
    for (engine, file) in [
        ("kubevirt", "alpha/web1.json"),
        ("terraform", "beta/web2.xsl"),
        ("proxmox", "alpha/100.conf"),
        ("nova", "flavors.json"),
        ("ansible", "plans/beta.json"),
    ] {
        let into = directory.path().join(engine).display().to_string();
        // Twice: an export replaces an earlier one.
        for _ in 0..2 {
            let output = nearmetal(&["export", &plan, "--to", engine, "-o", &into, "--format", "json"]);
            assert_eq!(output.status.code(), Some(0), "{}", told(&output));
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(document["schema"], "nearmetal.export/1");
            assert!(document["files"].as_array().unwrap().iter().any(|one| one == file), "{engine}: {document}");
            assert!(Path::new(&into).join(file).is_file());
        }
    }
}

#[test]
fn an_export_writes_over_nothing_of_others() {
    let (directory, plan) = planned();
    let into = directory.path().display().to_string();
    let output = nearmetal(&["export", &plan, "--to", "kubevirt", "-o", &into]);
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("`plan.json`, which no export wrote"), "{}", told(&output));
}

#[test]
fn options_of_another_engine_and_numbers_of_no_vm_are_refused() {
    let (directory, plan) = planned();
    let into = directory.path().join("out").display().to_string();
    for (arguments, says) in [
        (["--to", "nova", "--vmid", "web1=100"], "--vmid is for --to proxmox: drop it"),
        (["--to", "kubevirt", "--groups", "fleet.toml"], "--groups is for --to nova: drop it"),
        (["--to", "proxmox", "--vmid", "other=100"], "the plan has no VM `other`"),
        (["--to", "proxmox", "--vmid", "web1"], "write the VM's name, `=`, and a number"),
    ] {
        let output = nearmetal(&[["export", &plan, "-o", &into].as_slice(), &arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(told(&output).contains(says), "{}", told(&output));
        assert!(!Path::new(&into).exists());
    }
}

#[test]
fn flavors_become_a_fleet_file_that_is_not_written_over() {
    let (directory, plan) = planned();
    let into = directory.path().join("nova").display().to_string();
    assert!(nearmetal(&["export", &plan, "--to", "nova", "-o", &into]).status.success());
    let flavors = format!("{into}/flavors.json");
    let fleet = directory.path().join("fleet.toml").display().to_string();
    let import = ["fleet", "import", "--from", "nova", &flavors, "-o", &fleet];
    assert_eq!(nearmetal(&import).status.code(), Some(0));
    assert_eq!(nearmetal(&["fleet", "check", &fleet]).status.code(), Some(0));
    let again = nearmetal(&import);
    assert_eq!(again.status.code(), Some(2));
    assert!(told(&again).contains("exists, and nearmetal does not overwrite it"), "{}", told(&again));
}
