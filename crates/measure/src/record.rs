//! What is written down beside the figures: what each arm really was, and on what it ran.

use std::collections::BTreeMap;

use nearmetal_host::{GuestProcess, Host, ThreadRole};
use nearmetal_hypervisor::{Definition, Versions};

use crate::error::MeasureError;
use crate::executor::Machine;
use crate::results::{Arm, ArmKind};
use crate::schedule::Design;

/// Versions, kernel and arguments: name to value, `unknown` where it cannot be read.
pub(crate) fn provenance(
    host: &Host,
    versions: Option<&Versions>,
    seed: u64,
    design: &Design,
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
    note(
        "fio",
        crate::program::run(std::process::Command::new("fio").arg("--version")).ok().map(|v| v.trim().to_owned()),
    );
    note("seed", Some(seed.to_string()));
    note(
        "fio arguments",
        design.paired.iter().find_map(|workload| match workload {
            crate::workload::Workload::Fio(job) => Some(job.arguments("DEVICE", 1).join(" ")),
            crate::workload::Workload::FileSystem(job) => Some(job.arguments(1).join(" ")),
            _ => None,
        }),
    );
    provenance
}

/// What an arm really is, read from the kernel and libvirt once it runs.
pub(crate) fn record(machine: &mut Machine<'_>, arm: ArmKind, region: &str) -> Result<Arm, MeasureError> {
    let description = match arm {
        ArmKind::BareSlice => "the host itself, bound to the vCPUs' PUs and the guest's node by system calls",
        ArmKind::AsFound => "the domain as it was found",
        ArmKind::Planned => "the domain as planned",
        ArmKind::VirtInstall => "as found, with cache=none and io=native as virt-install writes them",
    };
    let mut record = Arm {
        kind: arm,
        description: description.to_owned(),
        region: region.to_owned(),
        xml: None,
        command_line: None,
        placement: Vec::new(),
    };
    let Some(guest) = machine.guests.get(&arm) else {
        record.placement.push(format!("PUs {}, node {}", machine.slice.cpus, machine.slice.nodes));
        return Ok(record);
    };
    let name = guest.name.clone();
    let wrap = |source| MeasureError::Hypervisor { arm: arm.id().to_owned(), source };
    record.xml = Some(machine.hypervisor.domain_xml(&name, Definition::Live).map_err(wrap)?);
    let uuid = machine.hypervisor.domain(&name).map_err(wrap)?.uuid;
    if let Ok(Some(process)) = nearmetal_host::guests::find(machine.fs, &uuid) {
        record.command_line = machine
            .fs
            .read(&format!("/proc/{}/cmdline", process.pid))
            .ok()
            .map(|text| text.trim_end_matches('\0').replace('\0', " "));
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
