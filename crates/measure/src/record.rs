//! What is written down beside the figures: what each arm really was, and on what it ran.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nearmetal_host::{GuestProcess, Host, ThreadRole};
use nearmetal_hypervisor::{Definition, Versions};
use nearmetal_load::Workload;
use nearmetal_results::{Arm, ArmName, Slice};

use crate::engine::{Session, failed};
use crate::error::MeasureError;

/// Versions, kernel and arguments: name to value, `unknown` where it cannot be read.
pub(crate) fn provenance<'w>(
    host: &Host,
    versions: Option<&Versions>,
    seed: u64,
    workloads: impl IntoIterator<Item = &'w Workload>,
) -> BTreeMap<String, String> {
    let mut provenance = BTreeMap::new();
    let mut note = |name: &str, value: Option<String>| {
        provenance.insert(name.to_owned(), value.unwrap_or_else(|| "unknown".to_owned()));
    };
    note("host kernel", host.system.kernel.clone());
    note("host kernel command line", host.system.command_line.clone());
    note("processor", host.system.processor_model.clone());
    note("transparent huge pages", host.system.transparent_hugepage.clone());
    note("libvirt", versions.map(|versions| versions.libvirt.clone()));
    note("hypervisor", versions.map(|v| format!("{} {}", v.hypervisor_kind, v.hypervisor)));
    note("seed", Some(seed.to_string()));
    for (name, value) in workloads.into_iter().filter_map(|workload| workload.load().provenance()) {
        // The first of a kind stands for all of them: they differ in their sizes alone.
        if name.starts_with("fio") && !provenance.contains_key("fio") {
            let version = crate::program::run(Command::new("fio").arg("--version"));
            provenance.insert("fio".to_owned(), version.map_or_else(|_| "unknown".to_owned(), |v| v.trim().to_owned()));
        }
        provenance.entry(name).or_insert(value);
    }
    provenance
}

/// The SHA-256 of an image, by the host's own sha256sum: two measurements with the same hash ran the same programs.
pub(crate) fn hash_of(image: &Path) -> String {
    let printed = crate::program::run(Command::new("sha256sum").arg("--").arg(image)).unwrap_or_default();
    let hash = printed.split_whitespace().next().map(|hash| hash.trim_start_matches('\\'));
    hash.map_or_else(|| "unknown".to_owned(), |hash| format!("sha256:{hash}"))
}

/// What an arm really is, read from the kernel and libvirt once it runs: in the guest `clone`, or on the slice.
pub(crate) fn record(
    session: &mut Session<'_>,
    name: &ArmName,
    description: &str,
    region: &str,
    clone: Option<&str>,
    slice: &Slice,
) -> Result<Arm, MeasureError> {
    let mut record = Arm {
        name: name.clone(),
        description: description.to_owned(),
        region: region.to_owned(),
        xml: None,
        command_line: None,
        placement: Vec::new(),
    };
    let Some(clone) = clone else {
        record.placement.push(format!("PUs {}, node {}", slice.cpus, slice.nodes));
        return Ok(record);
    };
    record.xml = Some(session.hypervisor.domain_xml(clone, Definition::Live).map_err(failed(clone))?);
    let uuid = session.hypervisor.domain(clone).map_err(failed(clone))?.uuid;
    if let Ok(Some(process)) = nearmetal_host::guests::find(session.fs, &uuid) {
        let words = session.fs.read(&format!("/proc/{}/cmdline", process.pid)).ok();
        record.command_line = words.map(|text| text.trim_end_matches('\0').replace('\0', " "));
        record.placement = placement_lines(&process);
    }
    Ok(record)
}

fn placement_lines(process: &GuestProcess) -> Vec<String> {
    let role = |role: &ThreadRole| match role {
        ThreadRole::Vcpu(number) => format!("vCPU {number}"),
        ThreadRole::Emulator => "emulator thread".to_owned(),
        ThreadRole::Iothread(number) => format!("iothread {number}"),
        ThreadRole::Vhost => "vhost worker".to_owned(),
        ThreadRole::Worker => "worker".to_owned(),
        ThreadRole::Other => "other".to_owned(),
    };
    process
        .threads
        .iter()
        .filter(|thread| !matches!(thread.role, ThreadRole::Other | ThreadRole::Worker))
        .map(|thread| {
            let cpus = thread.affinity.as_ref().map_or_else(|| "unknown".to_owned(), |cpus| format!("PUs {cpus}"));
            format!("{} (thread {}): {cpus}", role(&thread.role), thread.id)
        })
        .collect()
}
