//! `nearmetal verify --all` as a timer runs it: what it says where nothing is in force, and where something did not end.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "tests build the files that the program reads")]

#[path = "../../../crates/interchange/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};

/// A transaction that has begun: two virtual functions.
const HEADER: &str = r#"{"record":"header","schema":"nearmetal.journal/1","transaction":1,"started":"2026-01-01T00:00:00Z","boot_id":"00000000-0000-4000-8000-000000000000","nearmetal":"0.1.0","host":{"hostname":"a","fingerprint":"0"},"devices":{"schema":"nearmetal.devices/1","task":"2 virtual functions"}}"#;

fn command(state: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
    command.args(["verify", "--all", "--no-load", "--state"]).arg(state);
    command.arg("--textfile").arg(state.join("nearmetal.prom")).args(more);
    command
}

fn run(mut command: Command, state: &Path) -> (Output, String) {
    let output = command.output().unwrap();
    (output, std::fs::read_to_string(state.join("nearmetal.prom")).unwrap_or_default())
}

fn verify(state: &Path, more: &[&str]) -> (Output, String) {
    run(command(state, more), state)
}

#[test]
fn nothing_in_force_is_a_whole_answer_and_a_json_one() {
    let state = tempfile::tempdir().unwrap();
    let (output, metrics) = verify(state.path(), &["--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]");
    assert!(metrics.contains("\nnearmetal_verify_completed 1\n"), "{metrics}");
}

#[test]
fn a_transaction_that_did_not_end_is_no_success() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("journal")).unwrap();
    std::fs::write(state.path().join("journal/0001.jsonl"), format!("{HEADER}\n")).unwrap();
    let (output, metrics) = verify(state.path(), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("transaction 1") && words.contains("rollback --restart"), "{words}");
    assert!(metrics.contains("\nnearmetal_verify_completed 0\n"), "{metrics}");
}

#[test]
fn a_libvirt_that_does_not_answer_is_no_success() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("journal")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&common::json(&common::host_plan())).unwrap();
    let mut header: serde_json::Value = serde_json::from_str(HEADER).unwrap();
    header.as_object_mut().unwrap().remove("devices");
    header["plan"] = plan;
    let committed = r#"{"record":"committed","at":"2026-01-01T00:00:01Z","mismatches":0}"#;
    std::fs::write(state.path().join("journal/0001.jsonl"), format!("{header}\n{committed}\n")).unwrap();
    // It greets, and ends with the first request. A helper's one argument is the URI, so that a shell reads it.
    let helper = state.path().join("helper");
    let greeting = format!("{{\"protocol\":{}}}", nearmetal_hypervisor::protocol::PROTOCOL);
    std::fs::write(&helper, format!("read -r hello\necho '{greeting}'\nread -r request\n")).unwrap();
    let mut verify = command(state.path(), &["--agent-timeout", "0"]);
    verify.env("NEARMETAL_LIBVIRT", "/bin/sh").env("LIBVIRT_DEFAULT_URI", &helper);
    let (output, metrics) = run(verify, state.path());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(metrics.contains("\nnearmetal_verify_completed 0\n"), "{metrics}");
}

#[test]
fn metrics_that_cannot_be_written_are_an_error_of_their_own() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("nearmetal.prom")).unwrap();
    let (output, _) = verify(state.path(), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("nearmetal.prom"), "{output:?}");
}

#[test]
fn while_another_measures_nothing_is_checked_and_the_figures_stay_as_they_are() {
    let state = tempfile::tempdir().unwrap();
    let (_, before) = verify(state.path(), &[]);
    let measuring = nearmetal_change::Journal::at(state.path()).lock_to_measure().unwrap();
    let (output, during) = verify(state.path(), &["--format", "json"]);
    assert_eq!((output.status.code(), during == before), (Some(0), true), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is measuring on this machine"), "{output:?}");
    drop(measuring);
    assert!(verify(state.path(), &[]).1.contains("\nnearmetal_verify_completed 1\n"));
}

#[test]
fn what_did_not_end_is_told_without_all_too() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("journal")).unwrap();
    std::fs::write(state.path().join("journal/0001.jsonl"), format!("{HEADER}\n")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_nearmetal")).args(["verify", "--state"]).arg(state.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("transaction 1"), "{output:?}");
}
