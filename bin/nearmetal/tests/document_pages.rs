//! docs/reference/documents.md names exactly the fields of the small documents.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

// The program's own types: they need nothing else of it.
#[allow(dead_code)]
#[path = "../src/job/manifest.rs"]
mod manifest;
#[allow(dead_code)]
#[path = "../src/job/outputs.rs"]
mod outputs;

use std::process::Command;

use manifest::{JOB_SCHEMA, Manifest};
use nearmetal_change::{FLEET_PLAN_SCHEMA, FleetPlanFile, HostIdentity, HostPart, PLAN_SCHEMA, PlanFile, Reach};
use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_fleet::{Fleet, Options};
use nearmetal_host::assignable::{Assignable, GroupMember, Obstacle, VirtualFunctions};
use nearmetal_host::files;
use nearmetal_host::ledger::Owner;
use nearmetal_host::{PciLink, tree_text::unpack};
use nearmetal_lab::{BootTimes, LabState, LabStatus};
use nearmetal_report::view::{CheckOutcome, CheckRow, StageSeconds};
use nearmetal_results::Environment;
use outputs::*;
use serde_json::{Value, json};

const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/documents.md"));

fn same(document: &Value, heading: &str, elsewhere: &[&str]) {
    PAGE.have(&Fields::of(document).without(elsewhere), heading);
    let schema = document["schema"].as_str().unwrap();
    assert!(PAGE.section(heading).contains(&format!("Schema `{schema}`")), "{schema}");
}

fn printed(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_nearmetal")).args(arguments).output().unwrap();
    let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{remarks}"))
}

fn member() -> GroupMember {
    GroupMember { function: "0000:30:00.1".parse().unwrap(), driver: Some("xhci_hcd".into()) }
}

fn obstacles() -> Vec<Obstacle> {
    let text = || "test".to_owned();
    vec![
        Obstacle::NoIommu,
        Obstacle::GroupShared { group: 1, with: vec![member()] },
        Obstacle::Mounted { device: text(), point: text() },
        Obstacle::Swap { device: text() },
        Obstacle::Stacked { device: text(), holder: text() },
        Obstacle::Disk { device: text(), guest: text() },
        Obstacle::DefaultRoute { interface: text(), through: Some(text()) },
        Obstacle::Member { interface: text(), master: text() },
        Obstacle::InterfaceUp { interface: text() },
        Obstacle::Used { by: text() },
        Obstacle::Console,
        Obstacle::HasVirtualFunctions { count: 1 },
        Obstacle::NoReset,
        Obstacle::Held { device: text() },
    ]
}

/// A function of which everything is known.
fn function() -> Value {
    let function = Assignable {
        function: "0000:30:00.0".parse().unwrap(),
        kind: "network".into(),
        names: vec!["eth0".into()],
        id: (Some(0x8086), Some(0x10c9)),
        node: Some(0),
        driver: Some("igb".into()),
        group: Some(1),
        group_members: vec![member()],
        dma_domain: Some("DMA".into()),
        resets: Some(vec!["flr".into()]),
        link: Some(PciLink { speed: Some(8000), width: Some(4), max_speed: Some(8000), max_width: Some(4) }),
        virtual_of: Some(("0000:30:00.0".parse().unwrap(), 0)),
        virtual_functions: Some(VirtualFunctions { total: 7, made: 1, used: 0 }),
        guest: Some(Owner { name: "web1".into(), pid: 1 }),
        obstacles: obstacles(),
    };
    serde_json::to_value(function).unwrap()
}

#[test]
fn the_list_of_devices_has_the_fields_of_the_page() {
    let tree = "[/sys/bus/pci/devices]\n0000:10:00.0 -> ../../../devices/pci0000:10/0000:10:00.0\n\
                [/sys/devices/pci0000:10/0000:10:00.0]\nclass = 0x020000\n";
    let directory = tempfile::tempdir().unwrap();
    unpack(tree, directory.path()).unwrap();
    let mut document =
        printed(&["device", "list", "--format", "json", "--capture", directory.path().to_str().unwrap()]);
    // What the command adds to a function stays, beside a function of which everything is known.
    let listed = document["devices"].as_array_mut().unwrap();
    assert_eq!(listed.len(), 1);
    listed.push(function());
    same(&document, "## Devices", &[]);
    PAGE.explain(&document, "devices[].obstacles[].kind", obstacles().len(), "## Devices");
}

#[test]
fn a_rollback_has_the_fields_of_the_page() {
    let check = CheckRow {
        subject: "test".into(),
        planned: "test".into(),
        found: None,
        outcome: CheckOutcome::CannotTell,
        detail: None,
    };
    let output = RollbackOutput {
        schema: ROLLBACK_SCHEMA.into(),
        ok: true,
        transaction: Some(1),
        notes: vec!["test".into()],
        left: vec!["`web1` keeps running".to_owned()],
        checks: vec![check],
    };
    same(&serde_json::to_value(output).unwrap(), "## Rollback", &["checks"]);
}

#[test]
fn what_apply_would_change_has_the_fields_of_the_page() {
    let line = nearmetal_domain::DiffLine {
        kind: nearmetal_domain::DiffKind::Context,
        text: "test".into(),
        before: Some(1),
        after: Some(1),
    };
    let change = ChangeOutput { what: "test".into(), domain: Some("web1".into()), diff: vec![line] };
    let output = ChangesOutput { schema: CHANGES_SCHEMA.into(), changes: vec![change] };
    same(&serde_json::to_value(output).unwrap(), "## Changes", &[]);
}

#[test]
fn the_events_of_an_apply_have_the_fields_of_the_page() {
    let events = [
        Event::Begun { changes: vec!["test".into()] },
        Event::Change { number: 1, what: "test" },
        Event::Note { text: "test" },
        Event::Ended { transaction: Some(1), rolled_back: false, mismatches: 0, verifications: &[] },
    ];
    // All lines as one object: their fields have different names.
    let mut all = serde_json::Map::new();
    for event in events {
        let line = serde_json::to_value(ApplyEvent { schema: APPLY_EVENT_SCHEMA, event }).unwrap();
        let word = line["event"].as_str().unwrap().to_owned();
        assert!(PAGE.section("## Apply events").contains(&format!("`{word}`")), "{word}");
        all.extend(line.as_object().unwrap().clone());
    }
    same(&Value::Object(all), "## Apply events", &[]);
}

#[test]
fn what_is_in_force_has_the_fields_of_the_page() {
    let transaction = TransactionOutput {
        number: 1,
        started: "2026-01-01T00:00:00Z".into(),
        kind: "plan".into(),
        what: "plan of web1".into(),
        domains: vec!["web1".into()],
        unfinished: false,
        at_work: false,
    };
    let output = InForceOutput { schema: IN_FORCE_SCHEMA.into(), transactions: vec![transaction] };
    same(&serde_json::to_value(output).unwrap(), "## In force", &[]);
    let state = tempfile::tempdir().unwrap();
    let empty = printed(&["rollback", "--list", "--format", "json", "--state", state.path().to_str().unwrap()]);
    assert_eq!(empty, json!({"schema": IN_FORCE_SCHEMA, "transactions": []}));
}

#[test]
fn the_history_has_the_fields_of_the_page() {
    let ratio = RatioOutput {
        workload: "test".into(),
        count: 1,
        subject: "planned".into(),
        reference: "bare metal".into(),
        ratio: 0.97,
        low: Some(0.95),
        high: Some(0.99),
        pairs: 5,
        verdict: Some("slower".into()),
    };
    let measurement = MeasurementOutput {
        id: 1,
        experiment: "slice".into(),
        guests: vec!["web1".into()],
        created: "2026-01-01T00:00:00Z".into(),
        nearmetal: "0".into(),
        environment: Environment::Lab { machine: "quad".into() },
        kernel: "6.1".into(),
        qemu: "7.2".into(),
        device: Some("test".into()),
        plan: Some("2026-01-01T00:00:00Z".into()),
        state: "failed".into(),
        problem: Some("test".into()),
        winner: Some("test".into()),
        runs: 1,
        ratios: Some(vec![ratio]),
    };
    let output = HistoryOutput { schema: HISTORY_SCHEMA.into(), measurements: vec![measurement] };
    same(&serde_json::to_value(output).unwrap(), "## History", &[]);
    let state = tempfile::tempdir().unwrap();
    let empty = printed(&["bench", "history", "--format", "json", "--state", state.path().to_str().unwrap()]);
    assert_eq!(empty, json!({"schema": HISTORY_SCHEMA, "measurements": []}));
}

#[test]
fn a_job_has_the_fields_of_the_page() {
    let job = Manifest {
        schema: JOB_SCHEMA.into(),
        title: "web1 on quad".into(),
        created: "2026-01-01T00:00:00Z".into(),
        environment: Environment::Lab { machine: "quad".into() },
        quick: true,
        shortened: vec!["5 s samples".into()],
        stages: vec![StageSeconds { name: "boot the lab".into(), seconds: 41.5 }],
        reproduce: vec!["./dev demo".into()],
        caveats: vec!["test".into()],
        sample_data: true,
    };
    same(&serde_json::to_value(job).unwrap(), "## Job", &[]);
}

/// A host of a fleet that is reached by a program which ends like this.
fn host(name: &str, reach: Reach) -> HostPart {
    let plan = PlanFile {
        schema: PLAN_SCHEMA.into(),
        created: "2026-01-01T00:00:00Z".into(),
        nearmetal: "0".into(),
        host: HostIdentity::unread(),
        plan: nearmetal_place::Plan::default(),
        domains: vec![],
        left: vec![],
    };
    HostPart { name: name.into(), reach, plan }
}

#[test]
fn the_outcome_of_a_fleet_has_the_fields_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let by_script = |code: i32| {
        let script = directory.path().join(format!("ssh-{code}"));
        files::write(&script, format!("cat > /dev/null; echo '{{\"a\": 1}}'; exit {code}\n")).unwrap();
        let reach = Reach::Ssh { destination: "there".into(), command: Some(format!("sh {}", script.display())) };
        host(&format!("ended-with-{code}"), reach)
    };
    let nowhere = host("nowhere", Reach::Nowhere { known_by: "a capture".into() });
    let fleet = FleetPlanFile {
        schema: FLEET_PLAN_SCHEMA.into(),
        created: "2026-01-01T00:00:00Z".into(),
        nearmetal: "0".into(),
        fleet: nearmetal_fleet::plan(&Fleet::default(), &Options::default()).unwrap(),
        steps: vec![],
        hosts: vec![by_script(0), by_script(1), by_script(3), nowhere],
    };
    let path = directory.path().join("plan.json");
    fleet.save(&path).unwrap();
    let document = printed(&["verify", "--plan", path.to_str().unwrap(), "--format", "json"]);
    same(&document, "## Fleet outcome", &["hosts[].output"]);
    PAGE.explain(&document, "hosts[].outcome", 4, "## Fleet outcome");
    assert!(PAGE.section("## Fleet outcome").contains("`not-begun`"));
}

#[test]
fn a_fleet_file_as_json_has_the_fields_of_its_page() {
    const FLEET: Tables<'_> = Tables(include_str!("../../../docs/reference/fleet-check.md"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.toml");
    // It has every key, which a test of the fleet file holds.
    let example = Command::new(env!("CARGO_BIN_EXE_nearmetal")).args(["fleet", "example"]).output().unwrap();
    files::write(&path, example.stdout).unwrap();
    let document = printed(&["fleet", "check", path.to_str().unwrap(), "--format", "json"]);
    let fields = Fields::of(&document);
    FLEET.have(&fields.clone().without(&["hosts[].labels", "vms[].vm", "vms[].devices"]), "## Fields");
    FLEET.have(&fields.below(&["vms[].vm"]).without(&["devices", "hosts.labels"]), "## VM");
    FLEET.have(&fields.below(&["vms[].vm.devices", "vms[].devices"]), "## Device");
    assert!(FLEET.0.contains(document["schema"].as_str().unwrap()));
}

#[test]
fn the_status_of_labs_has_the_fields_of_the_page() {
    let lab = |state| LabStatus {
        name: "quad".parse().unwrap(),
        state,
        machine: Some("quad".into()),
        image: Some("0".into()),
        pid: Some(1),
        ssh_port: Some(2222),
        count: Some(nearmetal_lab::machine::Count::Work),
        keep: true,
        append: vec!["quiet".into()],
        boot: Some(BootTimes { ssh_seconds: 1.0, libvirt_seconds: 2.0, processor_seconds: 3.0 }),
        disk_bytes: 1,
    };
    let labs = [LabState::Booting, LabState::Up, LabState::Dead, LabState::Kept].map(lab);
    let document = json!({ "schema": "nearmetal.lab-status/1", "labs": labs });
    same(&document, "## Lab status", &[]);
    PAGE.explain(&document, "labs[].state", 4, "## Lab status");
}
