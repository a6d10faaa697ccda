//! Measuring in the user's own guest as it runs, through its agent: its kernel, its disk, its memory.
//!
//! Nothing is cloned and nothing is written. The disk is read at random on both sides: by the guest, and, while the guest
//! is paused, by the host from the same device confined to the same slice. The probe is put into the guest for the
//! memory figures and removed afterwards; fio must be there.

use std::time::Duration;

use nearmetal_domain::{DiskFacts, DomainXml};
use nearmetal_host::{HostFs, ThreadRole, files};
use nearmetal_hypervisor::{Definition, DomainState, Hypervisor, agent};
use nearmetal_place::Placement;
use nearmetal_results::{ArmName, Results};
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::engine::{Fresh, Path, Seat, Session, Tenant, failed, slice_of};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request, lab_caveat};
use crate::pairing::Pairing;
use crate::record::record;
use crate::scratch::device_behind;

/// Where the probe lies in the guest while it is measured.
const PROBE: &str = "/tmp/nearmetal-probe";
/// How long the agent of a running guest may take to answer, and any small command in it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsideRequest {
    /// Domain; it must run as its plan says.
    pub guest: String,
    /// Where the plan puts it: the slice.
    pub placement: Placement,
    /// What to run; jobs that write are refused.
    pub pairing: Pairing,
    /// Under what; no appliance is needed.
    pub conditions: Conditions,
}

/// The guest itself, and what both sides read.
struct Inside {
    guest: String,
    /// Its disk, as its kernel calls it.
    device: String,
    /// What lies behind that, links followed.
    source: String,
}

impl Path for Inside {
    fn seat(&self, arm: usize, _: usize) -> Seat {
        match arm {
            0 => Seat::bare(&self.source),
            _ => Seat { probe: PROBE.to_owned(), ..Seat::guest(&self.guest, &self.device) },
        }
    }
}

impl Request for InsideRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.guest.clone()]
    }

    fn afterwards(&self, hypervisor: &mut dyn Hypervisor) {
        // The guest may have been stopped meanwhile; a probe left in its /tmp is no reason to lose the figures.
        let _ = agent::exec(hypervisor, &self.guest, &["rm", "-f", PROBE], None, PATIENCE);
    }

    /// Compares a running guest with the bare slice and leaves it running. See the module for what that means.
    ///
    /// # Errors
    /// The guest does not run, does not run as planned, has no agent, no fio or no virtio disk; or four runs in a row failed.
    /// What was changed until then is put back.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        measure(self, session)
    }
}

fn measure(request: &InsideRequest, session: &mut Session<'_>) -> Result<Results, MeasureError> {
    only_reads(&request.pairing)?;
    let name = &request.guest;
    let summary = session.hypervisor.domain(name).map_err(failed(name))?;
    if summary.state != DomainState::Running {
        return Err(MeasureError::Unfit(format!("`{name}` is {}: start it first", summary.state)));
    }
    runs_as_planned(request, session.fs, &summary.uuid)?;
    session.stage("preparing the guest");
    agent::wait(session.hypervisor, name, PATIENCE).map_err(failed(name))?;
    let xml = session.hypervisor.domain_xml(name, Definition::Live).map_err(failed(name))?;
    let disk = disk_of(&xml, name)?;
    let source = disk.source.clone().ok_or_else(|| unfit(name, "its virtio disk has no file or device behind it"))?;
    let behind = device_behind(session.fs, &source).map_or_else(|_| source.clone(), |path| path.display().to_string());
    let size = size_of(session, &behind, name)?;
    let device = device_in_guest(session, name, &disk.target, size)?;
    let guest_fio = session
        .ask(name, &["fio", "--version"], PATIENCE)
        .map_err(|_| unfit(name, "it has no fio; install it there"))?;
    let probe = files::read(&request.conditions.probe)?;
    agent::push_executable(session.hypervisor, name, PROBE, &probe).map_err(failed(name))?;

    let slice = slice_of(&request.placement, &source, size);
    session.stay_off(std::slice::from_ref(&slice))?;
    session.pause_original(name)?;

    let names = [ArmName::bare_slice(), ArmName::planned()];
    let bare = "the host itself, bound to the vCPUs' PUs and the guest's node by system calls";
    let arms = vec![
        record(session, &names[0], bare, &source, None, &slice)?,
        record(session, &names[1], "the domain itself, as it runs", &source, Some(name), &slice)?,
    ];
    let mut design = request.pairing.design(&names, vec![1], &[&[0, 1]], Fresh::No, session);
    let mut path = Inside { guest: name.clone(), device, source: behind };
    let mut caveats = vec![format!(
        "measured in `{name}` itself, as it runs, by reading its own disk: nothing was written, so writes are not compared"
    )];
    caveats.extend(lab_caveat(&request.conditions.environment));
    let mut experiment = Experiment {
        experiment: "inside",
        quick: true,
        arms,
        tenants: vec![Tenant::new(name, slice)],
        least_overlap: None,
        caveats,
        workloads: request.pairing.all().cloned().collect(),
        facts: vec![("fio in the guest".to_owned(), guest_fio.trim().to_owned())],
        path: &mut path,
    };
    let runs = experiment.runs(&mut design, session)?;
    let provenance = session.provenance(&experiment.workloads);
    let host_fio = provenance.get("fio").map_or("unknown", String::as_str);
    if host_fio != guest_fio.trim() {
        experiment
            .caveats
            .push(format!("the guest has {}, the host {host_fio}: not the same program", guest_fio.trim()));
    }
    experiment.document(runs, session)
}

fn unfit(name: &str, why: &str) -> MeasureError {
    MeasureError::Unfit(format!("`{name}` cannot be measured from inside: {why}"))
}

/// The disk holds the user's data: a job that writes must never reach it, whoever made the request.
fn only_reads(pairing: &Pairing) -> Result<(), MeasureError> {
    match pairing.all().find(|workload| workload.load().writes()) {
        Some(job) => Err(MeasureError::Unfit(format!("{} would write to the guest's own disk", job.label()))),
        None => Ok(()),
    }
}

/// A guest that floats would be compared with a slice it does not have.
fn runs_as_planned(request: &InsideRequest, fs: &HostFs, uuid: &str) -> Result<(), MeasureError> {
    let name = &request.guest;
    if request.placement.is_floating() {
        return Err(unfit(name, "its plan pins nothing, so there is no slice to compare it with"));
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

/// Size of the block device behind the disk, links followed.
fn size_of(session: &Session<'_>, source: &str, name: &str) -> Result<Bytes, MeasureError> {
    let file = source.rsplit('/').next().unwrap_or_default();
    session.host.block_device(file).and_then(|device| device.size).ok_or_else(|| {
        unfit(name, &format!("`{source}` behind its disk is not a block device that both sides can read"))
    })
}

/// The device in the guest. Guests name disks in their own order, so the name counts only with the right size.
fn device_in_guest(session: &mut Session<'_>, name: &str, target: &str, size: Bytes) -> Result<String, MeasureError> {
    let listed = session.ask(name, &["sh", "-c", "grep -H . /sys/block/*/size"], PATIENCE)?;
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

#[cfg(test)]
mod tests {
    use nearmetal_load::{FileJob, FileSystem, FioJob};

    use super::*;

    #[test]
    fn a_job_that_writes_is_refused() {
        let mut job = FioJob::first_seed(Bytes::from_kib(4), 1, 0);
        let pairing = |workload| Pairing {
            paired: vec![workload],
            rounds: 2,
            resolve: None,
            same_arm_pairs: 0,
            single_shot: vec![],
            memory: vec![],
            quick: true,
            accesses: true,
            reasons: true,
        };
        assert!(only_reads(&pairing(job.clone().into())).unwrap_err().to_string().contains("would write"));
        let set = FileJob::fourth_seed(FileSystem::Ext4, Bytes::from_kib(64), Bytes::from_mib(64));
        assert!(only_reads(&pairing(set.into())).unwrap_err().to_string().contains("would write"));
        job.read_percent = 100;
        assert!(only_reads(&pairing(job.into())).is_ok());
    }
}
