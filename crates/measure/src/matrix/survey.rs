//! Every path made and read back, without a race: what this machine can hold, with the evidence for each.

use std::time::Instant;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Hypervisor;
use serde::{Deserialize, Serialize};

use super::arms::LeftOut;
use super::disks::{ArmDisk, serial};
use super::effect::{Proof, seen};
use super::flushes::{self, Flush, drive_under};
use super::path::DiskPath;
use super::results::GroundKey;
use super::rig::Rig;
use super::run::{MatrixRequest, device_model, ground, remember_scheduler, scheduler_setting};
use super::space::Space;
use crate::appliance::Appliance;
use crate::bench::{Event, grow_pools, pause_original, slice, stay_off};
use crate::error::MeasureError;
use crate::experiment::chain;
use crate::leftovers::{Leftovers, leaving_nothing_on_scratch};
use crate::results::Environment;
use crate::scratch::Scratch;
use crate::workload::FioJob;

/// Value of [`PathTable::schema`].
pub const PATHS_SCHEMA: &str = "nearmetal.paths/1";
/// Disks of one guest: QEMU gives each a port of its own, and a boot scans them all.
const BATCH: usize = 16;

/// Every path, with what shows that it took effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathTable {
    /// Always [`PATHS_SCHEMA`] for this version.
    pub schema: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// Where it was read.
    pub environment: Environment,
    /// Drive, kernel and QEMU.
    pub ground: GroundKey,
    /// Domain whose clones had the disks.
    pub guest: String,
    /// Seconds it took.
    pub took: f64,
    /// One row a path.
    pub rows: Vec<PathRow>,
    /// Paths that this machine cannot hold, and why.
    pub left_out: Vec<LeftOut>,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRow {
    /// The path.
    pub path: DiskPath,
    /// Its id.
    pub id: String,
    /// Device or file behind it.
    pub source: String,
    /// What was read back.
    pub proof: Proof,
}

/// Makes every path the scratch space allows, reads each back and removes all, whatever came of it.
///
/// # Errors
/// The scratch space cannot be used, or the slice is in use. A guest that does not come up is said in the rows of the
/// disks it had.
pub fn read_back_paths(
    request: &MatrixRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<PathTable, MeasureError> {
    leaving_nothing_on_scratch(
        &request.conditions.state,
        fs,
        hypervisor,
        tell,
        |host, hypervisor, leftovers, scratch, tell| survey(request, fs, host, hypervisor, leftovers, scratch, tell),
    )
}

fn survey(
    request: &MatrixRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    scratch_slot: &mut Option<Scratch>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<PathTable, MeasureError> {
    let began = Instant::now();
    let versions = hypervisor.versions().ok();
    let mut ground = ground(request, fs, host, versions.as_ref());
    ground.every = true;
    pause_original(&request.guest, request.conditions.pause, hypervisor, leftovers)?;
    tell(Event::Stage("filling the scratch space"));
    let Space { paths, left_out, sources, device, span, .. } =
        Space::prepare(request, fs, leftovers, scratch_slot, &mut ground)?;
    let slice = slice(&request.placement, &device, span);
    stay_off(host, &slice)?;
    grow_pools(&request.placement, 1, host, fs, leftovers)?;
    let setting = scheduler_setting(request, fs, host);
    remember_scheduler(setting.as_ref(), &paths, leftovers)?;
    let appliance = Appliance::with_probe(
        &request.conditions.appliance,
        &request.conditions.probe,
        &request.conditions.state.join("bench"),
    )?;
    let job = FioJob { span: Some(span), ..request.job.clone() };
    let mut rig = Rig { request, fs, hypervisor, appliance, slice, job, setting, notes: Vec::new() };
    leftovers.clones = vec![rig.name()];
    leftovers.save()?;
    let disks: Vec<ArmDisk> = paths
        .iter()
        .zip(sources)
        .enumerate()
        // Serial numbers are the guest's own: each batch begins anew.
        .map(|(arm, (path, source))| ArmDisk {
            path: *path,
            source: source.path,
            part: source.part,
            serial: serial(arm % BATCH),
        })
        .collect();
    let mut rows = Vec::new();
    for (number, batch) in disks.chunks(BATCH).enumerate() {
        tell(Event::Stage(&format!("guest {} of {}", number + 1, disks.len().div_ceil(BATCH))));
        let proofs = of_batch(&mut rig, batch, host, &device, tell).unwrap_or_else(|error| {
            let amiss = Some(format!("the guest with this disk did not come up: {}", chain(&error)));
            batch.iter().map(|_| Proof { amiss: amiss.clone(), ..Proof::default() }).collect()
        });
        rows.extend(batch.iter().zip(proofs).map(|(disk, proof)| PathRow {
            path: disk.path,
            id: disk.path.id(),
            source: disk.source.clone(),
            proof,
        }));
        let name = rig.name();
        match rig.hypervisor.destroy(&name) {
            Ok(()) | Err(nearmetal_hypervisor::HypervisorError::NoSuchDomain { .. }) => {}
            Err(source) => return Err(MeasureError::Hypervisor { arm: name, source }),
        }
    }
    Ok(PathTable {
        schema: PATHS_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        environment: request.conditions.environment.clone(),
        ground: GroundKey {
            device: device_model(fs, host, device.trim_start_matches("/dev/")),
            kernel: host.system.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
            qemu: versions.map_or_else(|| "unknown".to_owned(), |versions| versions.hypervisor),
        },
        guest: request.guest.clone(),
        took: began.elapsed().as_secs_f64(),
        rows,
        left_out,
    })
}

fn of_batch(
    rig: &mut Rig<'_>,
    disks: &[ArmDisk],
    host: &Host,
    device: &str,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Proof>, MeasureError> {
    let pid = rig.boot(disks)?;
    let name = rig.name();
    let found = seen(rig.hypervisor, &name)?;
    let mut one = |disk: &ArmDisk| {
        let Some(seen) = found.get(&disk.serial) else {
            let amiss = Some(format!("the guest has no disk with serial number {}", disk.serial));
            return Proof { amiss, ..Proof::default() };
        };
        let mut proof = rig.read_back_one(&name, pid, disk, seen);
        if proof.amiss.is_none() {
            let drive = if disk.path.container.is_file() {
                drive_under(host, &disk.source)
            } else {
                device.strip_prefix("/dev/").map(str::to_owned)
            };
            let in_guest = format!("/dev/{}", seen.name);
            let tried = flushes::tried(rig.fs, rig.hypervisor, &name, &disk.path, drive.as_deref(), &in_guest);
            proof.flush = tried.map(|flush| match flush {
                Flush::Seen(words) => words,
                Flush::Missed(words) => format!("NOT FLUSHED: {words}"),
                Flush::Unknown(why) => format!("whether its writes are flushed: unknown, {why}"),
            });
        }
        match &proof.amiss {
            None => tell(Event::Stage(&format!("read back: {}", disk.path.title()))),
            Some(why) => tell(Event::Stage(&format!("did not take effect: {}: {why}", disk.path.title()))),
        }
        proof
    };
    Ok(disks.iter().map(&mut one).collect())
}
