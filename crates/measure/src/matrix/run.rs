//! One whole matrix on this machine: scratch space, the guest, read-back, race, the winner again, everything put back.

use std::path::Path;
use std::time::Instant;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Hypervisor, Versions};
use nearmetal_place::Placement;
use nearmetal_stats::{Race, doubling_looks};

use super::arms::{Ground, arms, major_minor};
use super::contest::Turn;
use super::disks::{ArmDisk, serial};
use super::path::{Container, DiskPath, Scheduler};
use super::results::{ArmResult, Confirmation, GroundKey, MATRIX_SCHEMA, MatrixResults, figures};
use super::rig::{Entrant, Rig, no_design, shown};
use super::scheduler::Setting;
use super::space::Space;
use super::volumes;
use crate::appliance::Appliance;
use crate::bench::{Event, grow_pools, needed, pause_original, slice, stay_off};
use crate::clones::clone_name;
use crate::conditions::Conditions;
use crate::error::MeasureError;
use crate::file_set::FileJob;
use crate::leftovers::{Leftovers, leaving_nothing_on_scratch};
use crate::record::provenance;
use crate::results::{ArmKind, Environment, Slice};
use crate::schedule::Design;
use crate::scratch::Scratch;
use crate::workload::FioJob;

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
#[derive(Debug, Clone)]
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
    let resolved = Path::new(device).canonicalize().ok()?;
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
    request.pairs.saturating_mul(3 * run) + 2 * BOOT
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

/// Runs a matrix and puts everything back, whatever came of it.
///
/// # Errors
/// The scratch space cannot be used, the budget is less than [`least_seconds`], the guest does not come up, or four runs
/// in a row failed.
pub fn matrix(
    request: &MatrixRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<MatrixResults, MeasureError> {
    leaving_nothing_on_scratch(
        &request.conditions.state,
        fs,
        hypervisor,
        tell,
        |host, hypervisor, leftovers, scratch, tell| measure(request, fs, host, hypervisor, leftovers, scratch, tell),
    )
}

fn measure(
    request: &MatrixRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    scratch_slot: &mut Option<Scratch>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<MatrixResults, MeasureError> {
    let began = Instant::now();
    let versions = hypervisor.versions().ok();
    let mut ground = ground(request, fs, host, versions.as_ref());
    affordable(request, arms(&ground).0.len())?;
    if let (Some(files), Some(span)) = (&request.files, request.job.span) {
        if needed(files) > span {
            return Err(MeasureError::Unfit(format!(
                "{} needs storage of {} for each arm, and --span is {span}: give a larger one",
                files.file_system.name(),
                needed(files)
            )));
        }
    }
    pause_original(&request.guest, request.conditions.pause, hypervisor, leftovers)?;
    tell(Event::Stage("filling the scratch space"));
    let space = Space::prepare(request, fs, leftovers, scratch_slot, &mut ground)?;
    let Space { paths, left_out, sources, bare, device, span } = space;
    let slice = slice(&request.placement, &device, span);
    stay_off(host, &slice)?;
    grow_pools(&request.placement, 2, host, fs, leftovers)?;

    let appliance = Appliance::with_probe(
        &request.conditions.appliance,
        &request.conditions.probe,
        &request.conditions.state.join("bench"),
    )?;
    let disks: Vec<ArmDisk> = paths
        .iter()
        .zip(sources)
        .enumerate()
        .map(|(arm, (path, source))| ArmDisk {
            path: *path,
            source: source.path,
            part: source.part,
            serial: serial(arm),
        })
        .collect();
    let setting = scheduler_setting(request, fs, host);
    remember_scheduler(setting.as_ref(), &paths, leftovers)?;
    let job = FioJob { span: Some(span), ..request.job.clone() };
    let mut rig = Rig { request, fs, hypervisor, appliance, slice: slice.clone(), job, setting, notes: Vec::new() };
    leftovers.clones =
        vec![rig.name(), clone_name(&request.guest, ArmKind::Planned), clone_name(&request.guest, ArmKind::AsFound)];
    leftovers.save()?;
    tell(Event::Stage("booting the guest that has every arm as a disk"));
    let pid = rig.boot(&disks)?;
    tell(Event::Stage("reading back what each arm really is"));
    let entrants = rig.read_back(pid, disks, span, host, &device)?;
    let (race, turns) = rig.race(&entrants, began, tell)?;
    let name = rig.name();
    rig.hypervisor.destroy(&name).map_err(|source| MeasureError::Hypervisor { arm: name.clone(), source })?;

    let running: Vec<usize> = shown(&entrants);
    let winner = race.leader().map(|leader| running[leader]);
    let confirmation = match winner {
        Some(winner) if winner != 0 => {
            tell(Event::Stage("measuring the winner again"));
            let runs = rig.confirm(&entrants[winner].disk, &entrants[0].disk, &bare, tell)?;
            Some(Confirmation::of(runs, request.conditions.seed))
        }
        _ => None,
    };
    let design = Design { paired: vec![rig.workload()], ..no_design() };
    let workload = rig.workload();
    let provenance = provenance(host, versions.as_ref(), request.conditions.seed, &design);
    let mut caveats = caveats(request, &slice, &device, host);
    caveats.extend(rig.notes);
    Ok(MatrixResults {
        schema: MATRIX_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.conditions.environment.clone(),
        ground: GroundKey {
            device: device_model(fs, host, device.trim_start_matches("/dev/")),
            kernel: host.system.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
            qemu: versions.map_or_else(|| "unknown".to_owned(), |versions| versions.hypervisor),
        },
        guest: request.guest.clone(),
        workload,
        slice,
        seed: request.conditions.seed,
        budget: request.budget,
        took: began.elapsed().as_secs_f64(),
        error: request.error,
        looks: doubling_looks(FIRST_LOOK, LOOKS),
        arms: arm_results(entrants, &running, &race, &turns, request.conditions.seed),
        left_out,
        // The file speaks of arms by their place in the list, and arms without effect are in it too.
        turns: turns.into_iter().map(|turn| Turn { arm: running[turn.arm], ..turn }).collect(),
        winner,
        slack: race.slack(),
        confirmation,
        caveats,
        provenance,
    })
}

/// Writes down which scheduler was found, if any arm wants another.
pub(super) fn remember_scheduler(
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
    Err(MeasureError::Unfit(format!(
        "{arms} arms, {FIRST_LOOK} rounds each, and the winner again take at least {least} s, and the budget is {} s: raise --budget, or leave arms out (--without WORD)",
        request.budget
    )))
}

fn arm_results(entrants: Vec<Entrant>, running: &[usize], race: &Race, turns: &[Turn], seed: u64) -> Vec<ArmResult> {
    let one = |(number, entrant): (usize, Entrant)| {
        let place = running.iter().position(|arm| *arm == number);
        let (to_default, median) = place.map_or((None, None), |place| figures(turns, place, seed));
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
    let mut caveats = Vec::new();
    if let Environment::Lab { machine } = &request.conditions.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
        ));
    }
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
    if !slice.cpus_on_top.is_empty() {
        caveats.push(format!(
            "the guest also uses PUs {} for its emulator thread and iothreads: what virtualization costs on top of the slice",
            slice.cpus_on_top
        ));
    }
    caveats.push("the race's arms are disks of one guest; the winner and QEMU's default were measured again each in a guest of its own".to_owned());
    caveats
}
