//! Measuring in the user's own guest as it runs, through its agent: its kernel, its disk, its memory.
//!
//! Nothing is cloned and nothing is written. The disk is read at random on both sides: by the guest, and, while the guest
//! is paused, by the host from the same device confined to the same slice. The probe is put into the guest for the
//! memory figures and removed afterwards; fio must be there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearmetal_domain::{DiskFacts, DomainXml};
use nearmetal_host::{Host, HostFs, ThreadRole, files};
use nearmetal_hypervisor::{Definition, DomainState, Hypervisor, HypervisorError, agent};
use nearmetal_place::Placement;
use nearmetal_units::Bytes;

use crate::bench::{Event, slice, stay_off};
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::experiment::perform;
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::record::{provenance, record};
use crate::results::{ArmKind, Environment, Purpose, Results, SCHEMA};
use crate::schedule::{Design, Step, schedule};
use crate::workload::Workload;

/// Where the probe lies in the guest while it is measured.
const PROBE: &str = "/tmp/nearmetal-probe";
/// How long the agent of a running guest may take to answer, and any small command in it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone)]
pub struct OwnGuestRequest {
    /// Domain; it must run as its plan says.
    pub guest: String,
    /// Where the plan puts it: the slice.
    pub placement: Placement,
    /// What to run; jobs that write are refused.
    pub design: Design,
    /// Memory workloads, run once on each side.
    pub memory: Vec<Workload>,
    /// Seed of order and bootstrap.
    pub seed: u64,
    /// The probe, a static program.
    pub probe: PathBuf,
    /// State directory, for the record of what must be put back.
    pub state: PathBuf,
    /// Lab or silicon.
    pub environment: Environment,
}

/// Compares a running guest with the bare slice and leaves it running. See the module for what that means.
///
/// # Errors
/// The guest does not run, does not run as planned, has no agent, no fio or no virtio disk; or a run fails four times
/// in a row. What was changed until then is put back.
pub fn bench_own_guest(
    request: &OwnGuestRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Results, MeasureError> {
    let result = leaving_nothing(&request.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
        measure(request, fs, host, hypervisor, leftovers, tell)
    });
    // The guest may have been stopped meanwhile; a probe left in its /tmp is no reason to lose the figures.
    let _ = agent::exec(hypervisor, &request.guest, &["rm", "-f", PROBE], None, PATIENCE);
    result
}

fn measure(
    request: &OwnGuestRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Results, MeasureError> {
    only_reads(&request.design)?;
    let name = &request.guest;
    let wrap = |source| MeasureError::Hypervisor { arm: name.clone(), source };
    let summary = hypervisor.domain(name).map_err(wrap)?;
    if summary.state != DomainState::Running {
        return Err(MeasureError::Unfit(format!("`{name}` is {}: start it first", summary.state)));
    }
    runs_as_planned(request, fs, &summary.uuid)?;
    tell(Event::Stage("preparing the guest"));
    agent::wait(hypervisor, name, PATIENCE).map_err(wrap)?;
    let xml = hypervisor.domain_xml(name, Definition::Live).map_err(wrap)?;
    let disk = disk_of(&xml, name)?;
    let source = disk.source.clone().ok_or_else(|| unfit(name, "its virtio disk has no file or device behind it"))?;
    let size = size_of(host, &source, name)?;
    let device = device_in_guest(hypervisor, name, &disk.target, size)?;
    let guest_fio =
        ask(hypervisor, name, &["fio", "--version"]).map_err(|_| unfit(name, "it has no fio; install it there"))?;
    agent::push_executable(hypervisor, name, PROBE, &files::read(&request.probe)?).map_err(wrap)?;

    let slice = slice(&request.placement, &source, size);
    stay_off(host, &slice)?;
    leftovers.paused.push(name.clone());
    leftovers.save()?;
    hypervisor.suspend(name).map_err(wrap)?;

    let versions = hypervisor.versions().ok();
    let arm = GuestArm { name: name.clone(), xml, device };
    let mut machine = Machine {
        hypervisor,
        fs,
        probe: request.probe.clone(),
        probe_in_guest: PROBE.to_owned(),
        slice: slice.clone(),
        bare_device: source.clone(),
        guests: BTreeMap::from([(ArmKind::Planned, arm)]),
        notes: Vec::new(),
        // The guest's own is said below, whatever it is.
        fio_compared: true,
    };
    let records = [ArmKind::BareSlice, ArmKind::Planned]
        .into_iter()
        .map(|arm| record(&mut machine, arm, &source))
        .collect::<Result<Vec<_>, _>>()?;
    let mut steps = schedule(&request.design, request.seed);
    steps.extend(memory_steps(request, steps.last().map_or(0, |step| step.round + 1)));
    let total = steps.len();
    let runs = perform(&steps, false, &mut machine, &mut |index, step| tell(Event::Step { index, total, step }))?;

    let mut provenance = provenance(host, versions.as_ref(), request.seed, &request.design);
    let host_fio = provenance.get("fio").cloned().unwrap_or_default();
    provenance.insert("fio in the guest".to_owned(), guest_fio.trim().to_owned());
    let mut caveats = vec![format!(
        "measured in `{name}` itself, as it runs, by reading its own disk: nothing was written, so writes are not compared"
    )];
    if let Environment::Lab { machine } = &request.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
        ));
    }
    if host_fio != guest_fio.trim() {
        caveats.push(format!("the guest has {}, the host {host_fio}: not the same program", guest_fio.trim()));
    }
    Ok(Results {
        schema: SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.environment.clone(),
        quick: true,
        seed: request.seed,
        guest: name.clone(),
        caveats,
        slice,
        arms: records,
        runs,
        provenance,
    })
}

fn unfit(name: &str, why: &str) -> MeasureError {
    MeasureError::Unfit(format!("`{name}` cannot be measured from inside: {why}"))
}

/// The disk holds the user's data: a job that writes must never reach it, whoever made the design.
fn only_reads(design: &Design) -> Result<(), MeasureError> {
    let writes = |workload: &&Workload| match workload {
        Workload::Fio(job) => job.read_percent != 100,
        Workload::FileSystem(_) => true,
        Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_) => false,
    };
    match design.paired.iter().chain(&design.single_shot).find(writes) {
        Some(job) => Err(MeasureError::Unfit(format!("{} would write to the guest's own disk", job.label()))),
        None => Ok(()),
    }
}

/// A guest that floats would be compared with a slice it does not have.
fn runs_as_planned(request: &OwnGuestRequest, fs: &HostFs, uuid: &str) -> Result<(), MeasureError> {
    let name = &request.guest;
    if request.placement.is_floating() {
        return Err(unfit(name, "its plan pins nothing, so that there is no slice to compare it with"));
    }
    let process = nearmetal_host::guests::find(fs, uuid)
        .map_err(|source| MeasureError::Kernel { what: format!("cannot read the threads of `{name}`"), source })?;
    let process = process.ok_or_else(|| unfit(name, "its QEMU process is not found in /proc"))?;
    for pin in &request.placement.vcpus {
        let thread = process.threads_of(&ThreadRole::Vcpu(pin.vcpu)).next();
        let found = thread.and_then(|thread| thread.affinity.clone());
        if found.as_ref() != Some(&pin.cpus) {
            let found = found.map_or_else(|| "unknown PUs".to_owned(), |cpus| format!("PUs {cpus}"));
            return Err(MeasureError::Unfit(format!(
                "`{name}` does not run as planned: vCPU {} may use {found}, planned {}; apply the plan, and see nearmetal verify {name}",
                pin.vcpu, pin.cpus
            )));
        }
    }
    Ok(())
}

fn disk_of(xml: &str, name: &str) -> Result<DiskFacts, MeasureError> {
    let facts = DomainXml::parse(xml)
        .and_then(|xml| xml.facts())
        .map_err(|source| MeasureError::Xml { arm: name.to_owned(), source })?;
    let disk = facts.disks.into_iter().find(DiskFacts::is_virtio_blk);
    disk.ok_or_else(|| unfit(name, "it has no virtio disk"))
}

/// Size of the block device behind the disk.
fn size_of(host: &Host, source: &str, name: &str) -> Result<Bytes, MeasureError> {
    // A stable name under /dev/disk is a link to the kernel's.
    let path = Path::new(source).canonicalize().unwrap_or_else(|_| source.into());
    let device = path.file_name().and_then(|file| file.to_str()).and_then(|file| host.block_device(file));
    device
        .and_then(|device| device.size)
        .ok_or_else(|| unfit(name, &format!("`{source}` behind its disk is no block device that both sides can read")))
}

/// The device in the guest. Guests name disks in their own order, so the name counts only with the right size.
fn device_in_guest(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    target: &str,
    size: Bytes,
) -> Result<String, MeasureError> {
    let listed = ask(hypervisor, name, &["sh", "-c", "grep -H . /sys/block/*/size"])
        .map_err(|source| MeasureError::Hypervisor { arm: name.to_owned(), source })?;
    let of_size: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("/sys/block/")?.split_once("/size:"))
        .filter(|(_, sectors)| {
            sectors.trim().parse::<u64>().is_ok_and(|sectors| sectors.checked_mul(512) == Some(size.get()))
        })
        .map(|(disk, _)| disk)
        .filter(|disk| disk.chars().all(|letter| letter.is_ascii_alphanumeric()))
        .collect();
    match of_size.as_slice() {
        [only] => Ok(format!("/dev/{only}")),
        several if several.contains(&target) => Ok(format!("/dev/{target}")),
        _ => Err(unfit(name, &format!("none of its disks is surely `{target}`, {size} large"))),
    }
}

/// A small command in the guest that must succeed.
fn ask(hypervisor: &mut dyn Hypervisor, name: &str, command: &[&str]) -> Result<String, HypervisorError> {
    let output = agent::exec(hypervisor, name, command, None, PATIENCE)?;
    if output.status.is_success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(HypervisorError::AgentCommandFailed {
        name: name.to_owned(),
        command: command.join(" "),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn memory_steps(request: &OwnGuestRequest, first: u32) -> Vec<Step> {
    let arms = [ArmKind::BareSlice, ArmKind::Planned];
    let each = request.memory.iter().enumerate().flat_map(|(index, workload)| {
        arms.iter().enumerate().map(move |(position, arm)| Step {
            round: first + index as u32,
            position: position as u32,
            purpose: Purpose::SingleShot,
            arm: *arm,
            workload: workload.clone(),
            seed: request.seed,
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_set::{FileJob, FileSystem};
    use crate::workload::FioJob;

    #[test]
    fn a_job_that_writes_is_refused() {
        let mut job = FioJob::first_seed(Bytes::from_kib(4), 1, 0);
        let mut design = Design {
            arms: vec![ArmKind::BareSlice, ArmKind::Planned],
            paired: vec![Workload::Fio(job.clone())],
            rounds: 2,
            same_arm: vec![],
            same_arm_pairs: 0,
            single_shot: vec![],
        };
        assert!(only_reads(&design).unwrap_err().to_string().contains("would write"));
        let set = FileJob::fourth_seed(FileSystem::Ext4, Bytes::from_kib(64), Bytes::from_mib(64));
        let file_set = Design { paired: vec![Workload::FileSystem(set)], ..design.clone() };
        assert!(only_reads(&file_set).unwrap_err().to_string().contains("would write"));
        job.read_percent = 100;
        design.paired = vec![Workload::Fio(job)];
        assert!(only_reads(&design).is_ok());
    }
}
