//! What `./dev check-exports` asks of nearmetal:
//!
//! - `plans DIR` writes the plans of the tests;
//! - `resources PLAN DIR` writes the resource that Terraform's libvirt provider has for each VM of a plan, as JSON;
//! - `export ENGINE PLAN DIR` writes an export as the command does;
//! - `sheets PLAN` prints the stylesheet of each VM, in the order of the plan;
//! - `same PLAN VM BEFORE AFTER` compares a transformed definition with what our own editing makes of it.
#![allow(clippy::unwrap_used, reason = "a check that cannot go on fails")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a check tells what it found")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::ExitCode;

use nearmetal_change::{AnyPlan, edited};
use nearmetal_domain::{DomainFacts, DomainXml, first_difference};
use nearmetal_host::files;
use serde_json::{Value, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["plans", directory] => plans(Path::new(directory)),
        ["resources", plan, directory] => resources(Path::new(plan), Path::new(directory)),
        ["export", engine, plan, directory] => export(engine, Path::new(plan), Path::new(directory)),
        ["sheets", plan] => sheets(Path::new(plan)),
        ["same", plan, number, before, after] => return same(Path::new(plan), number.parse().unwrap(), before, after),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn plans(directory: &Path) {
    files::create_dir_all(directory).unwrap();
    for (name, plan) in common::plans() {
        files::write(&directory.join(format!("{name}.json")), common::json(&plan)).unwrap();
    }
}

/// One file a VM, by its place in the plan.
fn resources(plan: &Path, directory: &Path) {
    let plan = AnyPlan::load(plan).unwrap();
    files::create_dir_all(directory).unwrap();
    for (number, change) in common::parts(&plan).into_iter().flat_map(|part| &part.domains).enumerate() {
        let facts = DomainXml::parse(&change.xml_after).unwrap().facts().unwrap();
        files::write(&directory.join(format!("{number}.json")), resource(&facts).to_string()).unwrap();
    }
}

fn export(engine: &str, plan: &Path, directory: &Path) {
    let engine = serde_json::from_value(json!(engine)).unwrap();
    let options = nearmetal_interchange::Options::default();
    let exported = nearmetal_interchange::export(&AnyPlan::load(plan).unwrap(), engine, &options).unwrap();
    for file in &exported.files {
        let path = directory.join(&file.path);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write(&path, &file.text).unwrap();
    }
    exported.limits.iter().for_each(|limit| println!("{}", limit.line()));
}

/// Stylesheets are in the order of the plan while no option sorts them: found by the name that each asks for.
fn sheets(plan: &Path) {
    let plan = AnyPlan::load(plan).unwrap();
    let options = nearmetal_interchange::Options::default();
    let exported = nearmetal_interchange::export(&plan, nearmetal_interchange::Engine::Terraform, &options).unwrap();
    for change in common::parts(&plan).into_iter().flat_map(|part| &part.domains) {
        let sheet = exported.files.iter().find(|file| file.text.contains(&format!("plan of {} ", told(&change.name))));
        println!("{}", sheet.unwrap().path);
    }
}

/// A name as the comment of a stylesheet has it.
fn told(name: &str) -> String {
    name.replace('-', "\u{2010}")
}

fn resource(facts: &DomainFacts) -> Value {
    let disk = |disk: &nearmetal_domain::DiskFacts| {
        let key = if disk.kind == "block" { "block_device" } else { "file" };
        json!({ key: disk.source })
    };
    let nics = facts.interfaces.iter().filter(|interface| interface.kind == "bridge");
    json!({
        "name": facts.name,
        "type": "kvm",
        "arch": "x86_64",
        "machine": "q35",
        "memory": facts.memory.get() >> 20,
        "vcpu": facts.vcpus.maximum,
        "cpu": [{ "mode": "host-passthrough" }],
        "video": [{ "type": "virtio" }],
        "console": [{ "type": "pty", "target_port": "0", "target_type": "serial" }],
        "disk": facts.disks.iter().map(disk).collect::<Vec<_>>(),
        "network_interface": nics.map(|nic| json!({ "mac": nic.mac, "bridge": nic.source })).collect::<Vec<_>>(),
    })
}

fn same(plan: &Path, number: usize, before: &str, after: &str) -> ExitCode {
    let plan = AnyPlan::load(plan).unwrap();
    let placements: Vec<_> = common::parts(&plan).into_iter().flat_map(|part| &part.plan.placements).collect();
    let read = |path: &str| DomainXml::parse(&files::read_to_string(Path::new(path)).unwrap()).unwrap();
    let wanted = edited(&read(before), placements[number]).unwrap();
    match first_difference(&wanted, &read(after)).unwrap() {
        None => ExitCode::SUCCESS,
        Some(difference) => {
            eprintln!("{}: {difference:?}", placements[number].guest);
            ExitCode::FAILURE
        }
    }
}
