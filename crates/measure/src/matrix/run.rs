//! One whole matrix on this machine: scratch space, the guest, read-back, race, the winner again, everything put back.

use std::path::Path;
use std::time::Instant;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Versions;
use nearmetal_load::{FileJob, FioJob};
use nearmetal_place::{Placement, major_minor};
use nearmetal_results::{
    ArmResult, Confirmation, Container, DiskPath, GroundKey, MATRIX_SCHEMA, MatrixResults, Scheduler, Slice, Turn,
    to_default_and_median,
};
use nearmetal_stats::{Race, doubling_looks};
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use super::arms::{Ground, arms};
use super::disks::{ArmDisk, serial};
use super::rig::{Entrant, Rig, fresh_arms, shown};
use super::scheduler::Setting;
use super::space::Space;
use super::volumes;
use crate::appliance::Appliance;
use crate::clones::clone_name;
use crate::conditions::Conditions;
use crate::engine::{Session, slice_of};
use crate::error::MeasureError;
use crate::finish::{Request, lab_caveat, on_top_caveat};
use crate::leftovers::Leftovers;
use crate::scratch::device_behind;

/// A/A pairs of the winner.
pub(super) const SAME_ARM_PAIRS: u32 = 2;
/// Rounds before the first look. Ten arms and an error of 5 % make Student's factor 8 there; with 3 rounds it were 19, and
/// nothing could be said of an arm that is cut then.
pub const FIRST_LOOK: u32 = 4;
/// Looks: after 4, 8 and 16 rounds.
pub const LOOKS: u32 = 3;
/// Seconds of a run beyond its own: starting fio, flushing, dropping the page cache.
const BESIDE_A_RUN: u32 = 2;
/// Seconds to boot a guest, as an estimate before any was booted.
const BOOT: u32 = 30;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixRequest {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: the slice.
    pub placement: Placement,
    /// Its XML as planned: pins, memory and iothreads are the same for every arm.
    pub xml: String,
    /// Scratch devices and directories; contents of devices are lost.
    pub scratch: Vec<String>,
    /// Whether the user accepted that `unsafe` is measured.
    pub unsafe_allowed: bool,
    /// Words whose arms are not wanted.
    pub without: Vec<String>,
    /// What every run runs, unless `files` is given; its span is how much of each arm's storage is worked on.
    pub job: FioJob,
    /// The set over a file system that every run runs instead.
    pub files: Option<FileJob>,
    /// Seconds for all of it.
    pub budget: u32,
    /// Probability with which the best arm may be lost.
    pub error: f64,
    /// Fresh rounds of the winner.
    pub pairs: u32,
    /// Under what.
    pub conditions: Conditions,
}

/// Containers that scratch space allows: the device's own blocks, a directory's files.
pub fn containers_of(scratch: &[String]) -> Vec<Container> {
    let has = |directory: bool| scratch.iter().any(|path| Path::new(path).is_dir() == directory);
    Container::ALL.into_iter().filter(|container| has(container.is_file())).collect()
}

/// What decides which arms there are.
pub fn ground(request: &MatrixRequest, fs: &HostFs, host: &Host, versions: Option<&Versions>) -> Ground {
    let setting = scheduler_setting(request, fs, host);
    Ground {
        containers: containers_of(&request.scratch),
        vcpus: request.placement.vcpus.len() as u32,
        io_uring_disabled: host.system.io_uring_disabled,
        files_direct: None,
        qemu: versions.and_then(|versions| major_minor(&versions.hypervisor)),
        libvirt: versions.and_then(|versions| major_minor(&versions.libvirt)),
        unsafe_allowed: request.unsafe_allowed,
        without: request.without.clone(),
        lvm: Some(volumes::available()),
        scheduler: setting.as_ref().and_then(|setting| Scheduler::named(&setting.found)),
        schedulers: setting.map(|setting| setting.known()).unwrap_or_default(),
        every: false,
    }
}

/// The scheduler setting of the scratch device, if one is named and it has one.
pub(super) fn scheduler_setting(request: &MatrixRequest, fs: &HostFs, host: &Host) -> Option<Setting> {
    let device = request.scratch.iter().find(|path| !Path::new(path).is_dir())?;
    let resolved = device_behind(fs, device).ok()?;
    Setting::of(fs, host, resolved.file_name()?.to_str()?)
}

/// Seconds without which there is no answer: every arm in the first rung, the winner's fresh rounds, three boots.
pub fn least_seconds(request: &MatrixRequest, arms: usize) -> u32 {
    let run = request.job.seconds + request.job.ramp_seconds + BESIDE_A_RUN;
    (arms as u32 * FIRST_LOOK * run).saturating_add(confirming(request)).saturating_add(BOOT)
}

/// Seconds of the winner's fresh rounds.
pub(super) fn confirming(request: &MatrixRequest) -> u32 {
    let run = request.job.seconds + request.job.ramp_seconds + BESIDE_A_RUN;
    (request.pairs.saturating_mul(3) + 2 * SAME_ARM_PAIRS).saturating_mul(run) + 2 * BOOT
}

/// The model of the drive behind a block device or a file, as the kernel has it; `unknown` where it says nothing.
pub fn device_model(fs: &HostFs, host: &Host, name: &str) -> String {
    let whole = host.block_device(name).and_then(|device| device.partition_of.clone());
    let whole = whole.unwrap_or_else(|| name.to_owned());
    let model = fs.read(&format!("/sys/class/block/{whole}/device/model"));
    model
        .map(|text| text.trim().to_owned())
        .ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

impl Request for MatrixRequest {
    type Outcome = MatrixResults;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.guest.clone()]
    }

    fn device(&self, session: &Session<'_>) -> Option<String> {
        Some(model_of(self, session))
    }

    fn winner(results: &MatrixResults) -> Option<&str> {
        results.winner.and_then(|winner| results.arms.get(winner)).map(|arm| arm.id.as_str())
    }

    /// Runs a matrix and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The scratch space cannot be used, the budget is less than [`least_seconds`], the guest does not come up, or four runs
    /// in a row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<MatrixResults, MeasureError> {
        measure(self, session)
    }
}

/// The model of the drive behind the scratch space.
fn model_of(request: &MatrixRequest, session: &Session<'_>) -> String {
    let named = request.scratch.iter().find(|path| !Path::new(path).is_dir()).or(request.scratch.first());
    let resolved = named.and_then(|path| device_behind(session.fs, path).ok());
    let name = resolved.as_ref().and_then(|path| path.file_name()?.to_str()).unwrap_or_default();
    device_model(session.fs, &session.host, name)
}

fn measure(request: &MatrixRequest, session: &mut Session<'_>) -> Result<MatrixResults, MeasureError> {
    let began = Instant::now();
    let versions = session.versions();
    let mut ground = ground(request, session.fs, &session.host, versions.as_ref());
    affordable(request, arms(&ground).0.len())?;
    if let (Some(files), Some(span)) = (&request.files, request.job.span) {
        if files.room() > span {
            return Err(MeasureError::Asked(format!(
                "{} needs storage of {} for each arm, and --span is {span}: give a larger one",
                files.file_system.name(),
                files.room()
            )));
        }
    }
    session.pause_original(&request.guest)?;
    session.stage("filling the scratch space");
    let Space { paths, left_out, sources, bare, device, span } = Space::prepare(request, session, &mut ground)?;
    let rig = prepared(request, &paths, &device, span, 2, session)?;
    let disk = |(arm, (path, source)): (usize, (&DiskPath, super::space::Source))| ArmDisk {
        path: *path,
        source: source.path,
        part: source.part,
        serial: serial(arm),
    };
    let disks: Vec<ArmDisk> = paths.iter().zip(sources).enumerate().map(disk).collect();
    let clones = fresh_arms(&paths[0]);
    session.will_clone(clones[1..].iter().map(|arm| clone_name(&request.guest, &arm.id)))?;
    session.stage("booting the guest that has every arm as a disk");
    let (guest, pid) = rig.boot(&disks, session)?;
    session.stage("reading back what each arm really is");
    let entrants = rig.read_back(pid, disks, &device, session)?;
    let (race, turns) = rig.race(guest, &entrants, began, session)?;
    session.end(&rig.name())?;

    let running: Vec<usize> = shown(&entrants);
    let winner = race.leader().map(|leader| running[leader]);
    let confirmation = match winner {
        Some(winner) if winner != 0 => {
            session.stage("measuring the winner again");
            let runs = rig.confirm(&entrants[winner].disk, &entrants[0].disk, &bare, session)?;
            Some(Confirmation::of(runs, request.conditions.seed))
        }
        _ => None,
    };
    let workload = rig.workload();
    let mut caveats = caveats(request, &rig.slice, &device, &session.host);
    caveats.append(&mut session.notes);
    caveats.extend(over_budget(request, began.elapsed().as_secs_f64()));
    let results = MatrixResults {
        schema: MATRIX_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.conditions.environment.clone(),
        ground: ground_key(&device, versions.as_ref(), session),
        guest: request.guest.clone(),
        provenance: session.provenance([&workload]),
        workload,
        slice: rig.slice,
        seed: request.conditions.seed,
        budget: request.budget,
        took: began.elapsed().as_secs_f64(),
        error: request.error,
        looks: doubling_looks(FIRST_LOOK, LOOKS),
        arms: arm_results(entrants, &running, &race, &turns, request.conditions.seed),
        left_out,
        turns,
        winner,
        slack: race.slack(),
        confirmation,
        caveats,
    };
    Ok(results)
}

/// Everything but the disks: off the slice, room in the pools, the appliance, the drive's scheduler written down.
pub(super) fn prepared<'r>(
    request: &'r MatrixRequest,
    paths: &[DiskPath],
    device: &str,
    span: Bytes,
    clones: u64,
    session: &mut Session<'_>,
) -> Result<Rig<'r>, MeasureError> {
    let slice = slice_of(&request.placement, device, span);
    session.stay_off(std::slice::from_ref(&slice))?;
    session.grow_pools(&request.placement, clones)?;
    let appliance = Appliance::with_probe(&request.conditions)?;
    let setting = scheduler_setting(request, session.fs, &session.host);
    remember_scheduler(setting.as_ref(), paths, &mut session.leftovers)?;
    let job = FioJob { span: Some(span), ..request.job.clone() };
    let rig = Rig { request, appliance, slice, job, setting };
    session.will_clone([rig.name()])?;
    Ok(rig)
}

/// What a recorded winner holds for.
pub(super) fn ground_key(device: &str, versions: Option<&Versions>, session: &Session<'_>) -> GroundKey {
    GroundKey {
        device: device_model(session.fs, &session.host, device.trim_start_matches("/dev/")),
        kernel: session.host.system.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
        qemu: versions.map_or_else(|| "unknown".to_owned(), |versions| versions.hypervisor.clone()),
    }
}

/// Writes down which scheduler was found, if any arm wants another.
fn remember_scheduler(
    setting: Option<&Setting>,
    paths: &[DiskPath],
    leftovers: &mut Leftovers,
) -> Result<(), MeasureError> {
    if let Some(setting) = setting.filter(|_| paths.iter().any(|path| path.scheduler.is_some())) {
        leftovers.schedulers.push((setting.path.clone(), setting.found.clone()));
        leftovers.save()?;
    }
    Ok(())
}

fn affordable(request: &MatrixRequest, arms: usize) -> Result<(), MeasureError> {
    let least = least_seconds(request, arms);
    if request.budget >= least {
        return Ok(());
    }
    Err(MeasureError::Asked(format!(
        "{arms} arms, {FIRST_LOOK} rounds each, and the winner again take at least {least} s, and the budget is {} s: raise --budget, or leave arms out (--without WORD)",
        request.budget
    )))
}

/// A set of files runs to its end, so the first rounds and the winner's may take longer than samples of a stated length would.
fn over_budget(request: &MatrixRequest, took: f64) -> Option<String> {
    let files = request.files.as_ref().filter(|_| took > f64::from(request.budget))?;
    Some(format!(
        "it took {took:.0} s where {} s were asked for: the steps of the set on {} run to their end, and no arm leaves before \
         {FIRST_LOOK} rounds; a smaller --span is faster",
        request.budget,
        files.file_system.name()
    ))
}

fn arm_results(entrants: Vec<Entrant>, running: &[usize], race: &Race, turns: &[Turn], seed: u64) -> Vec<ArmResult> {
    let one = |(number, entrant): (usize, Entrant)| {
        let place = running.iter().position(|arm| *arm == number);
        let (to_default, median) = place.map_or((None, None), |_| to_default_and_median(turns, number, seed));
        ArmResult {
            id: entrant.disk.path.id(),
            path: entrant.disk.path,
            source: entrant.disk.source,
            effect: entrant.effect,
            cannot_win: entrant.cannot_win,
            fate: place.map(|place| race.fates()[place]),
            rounds: place.map_or(0, |place| race.measured(place)),
            median,
            to_default: to_default.filter(|_| number != 0),
        }
    };
    entrants.into_iter().enumerate().map(one).collect()
}

fn caveats(request: &MatrixRequest, slice: &Slice, device: &str, host: &Host) -> Vec<String> {
    let mut caveats: Vec<String> = lab_caveat(&request.conditions.environment).into_iter().collect();
    if containers_of(&request.scratch).contains(&Container::Partition)
        && containers_of(&request.scratch).contains(&Container::RawFile)
    {
        let directory = request.scratch.iter().find(|path| Path::new(path).is_dir());
        let below = directory.and_then(|path| host.mount_of(path)).map(|mount| mount.source.clone());
        caveats.push(format!(
            "files lie on {}, blocks on {device}: containers compare only if that is one drive",
            below.unwrap_or_else(|| "an unknown device".to_owned())
        ));
    }
    caveats.extend(on_top_caveat(slice, "iothreads"));
    caveats.push("the race's arms are disks of one guest; the winner and QEMU's default were measured again each in a guest of its own".to_owned());
    caveats
}
