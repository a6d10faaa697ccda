//! Every path made and read back, without a race: what this machine can hold, with the evidence for each.

use std::time::Instant;

use nearmetal_host::HostFs;
use nearmetal_hypervisor::Hypervisor;
use nearmetal_results::{PATHS_SCHEMA, PathRow, PathTable, Proof};

use super::disks::{ArmDisk, serial};
use super::effect::seen;
use super::flushes::Flush;
use super::rig::Rig;
use super::run::{MatrixRequest, ground, ground_key, prepared};
use super::space::Space;
use crate::engine::{Session, Site, chain};
use crate::error::MeasureError;
use crate::event::Event;

/// Disks of one guest: QEMU gives each a port of its own, and a boot scans them all.
const BATCH: usize = 16;

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
    Session::run(&request.conditions, Site { fs, hypervisor, tell }, |session| survey(request, session))
}

fn survey(request: &MatrixRequest, session: &mut Session<'_>) -> Result<PathTable, MeasureError> {
    let began = Instant::now();
    let versions = session.versions();
    let mut ground = ground(request, session.fs, &session.host, versions.as_ref());
    ground.every = true;
    session.pause_original(&request.guest)?;
    session.stage("filling the scratch space");
    let Space { paths, left_out, sources, device, span, .. } = Space::prepare(request, session, &mut ground)?;
    let rig = prepared(request, &paths, &device, span, 1, session)?;
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
        session.stage(&format!("guest {} of {}", number + 1, disks.len().div_ceil(BATCH)));
        let proofs = of_batch(&rig, batch, &device, session).unwrap_or_else(|error| {
            let amiss = Some(format!("the guest with this disk did not come up: {}", chain(&error)));
            batch.iter().map(|_| Proof { amiss: amiss.clone(), ..Proof::default() }).collect()
        });
        session.goes_on()?;
        rows.extend(batch.iter().zip(proofs).map(|(disk, proof)| PathRow {
            path: disk.path,
            id: disk.path.id(),
            source: disk.source.clone(),
            proof,
        }));
        session.end(&rig.name())?;
    }
    Ok(PathTable {
        schema: PATHS_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        environment: request.conditions.environment.clone(),
        ground: ground_key(&device, versions.as_ref(), session),
        guest: request.guest.clone(),
        took: began.elapsed().as_secs_f64(),
        rows,
        left_out,
    })
}

fn of_batch(
    rig: &Rig<'_>,
    disks: &[ArmDisk],
    device: &str,
    session: &mut Session<'_>,
) -> Result<Vec<Proof>, MeasureError> {
    let (guest, pid) = rig.boot(disks, session)?;
    let name = guest.name;
    let found = seen(session.hypervisor, &name)?;
    let mut one = |disk: &ArmDisk| {
        let Some(seen) = found.get(&disk.serial) else {
            let amiss = Some(format!("the guest has no disk with serial number {}", disk.serial));
            return Proof { amiss, ..Proof::default() };
        };
        let mut proof = rig.read_back_one(&name, pid, disk, seen, session);
        if proof.amiss.is_none() {
            proof.flush = rig.flushed(&name, disk, seen, device, session).map(|flush| match flush {
                Flush::Seen(words) => words,
                Flush::Missed(words) => format!("NOT FLUSHED: {words}"),
                Flush::Unknown(why) => format!("whether its writes are flushed: unknown, {why}"),
            });
        }
        match &proof.amiss {
            None => session.stage(&format!("read back: {}", disk.path.title())),
            Some(why) => session.stage(&format!("did not take effect: {}: {why}", disk.path.title())),
        }
        proof
    };
    Ok(disks.iter().map(&mut one).collect())
}
