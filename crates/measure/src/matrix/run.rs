//! One whole matrix on this machine: scratch space, the guest, read-back, race, the winner again, everything put back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nearmetal_host::{Host, HostFs, guests};
use nearmetal_hypervisor::{Hypervisor, Versions, agent};
use nearmetal_place::Placement;
use nearmetal_stats::{Race, doubling_looks};
use nearmetal_units::Bytes;

use super::arms::{Ground, LeftOut, arms, major_minor};
use super::containers::{Files, fill};
use super::contest::{Track, Turn, contest};
use super::disks::{ArmDisk, guest_with, serial};
use super::effect::{Effect, Seen, read_back, seen};
use super::path::{Bus, Container, DiskPath};
use super::results::{ArmResult, Confirmation, GroundKey, MATRIX_SCHEMA, MatrixResults, figures};
use crate::appliance::{Appliance, PROBE_IN_GUEST};
use crate::bench::{Event, grow_pools, new_uuid, pause_original, slice, stay_off};
use crate::clones::clone_name;
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine, SLACK, settle};
use crate::experiment::{Measured, perform};
use crate::fio;
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::record::provenance;
use crate::results::{ArmKind, Environment, Run, Slice};
use crate::schedule::{Design, schedule};
use crate::scratch::Scratch;
use crate::workload::{FioJob, Workload};

/// Rounds before the first look: the fewest that show anything.
pub const FIRST_LOOK: u32 = 3;
/// Looks: after 3, 6, 12 and 24 rounds.
pub const LOOKS: u32 = 4;
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
    /// What every run runs.
    pub job: FioJob,
    /// Seconds for all of it.
    pub budget: u32,
    /// Probability with which the best arm may be lost.
    pub error: f64,
    /// Fresh rounds of the winner.
    pub pairs: u32,
    /// Seed of order and bootstrap.
    pub seed: u64,
    /// Directory of the appliance.
    pub appliance: PathBuf,
    /// The probe.
    pub probe: PathBuf,
    /// State directory.
    pub state: PathBuf,
    /// Lab or silicon.
    pub environment: Environment,
    /// Whether the user allows the running original to be paused.
    pub pause: bool,
}

/// Containers that scratch space allows: the device's own blocks, a directory's files.
pub fn containers_of(scratch: &[String]) -> Vec<Container> {
    let has = |directory: bool| scratch.iter().any(|path| Path::new(path).is_dir() == directory);
    Container::ALL.into_iter().filter(|container| has(container.is_file())).collect()
}

/// What decides which arms there are.
pub fn ground(request: &MatrixRequest, host: &Host, versions: Option<&Versions>) -> Ground {
    Ground {
        containers: containers_of(&request.scratch),
        vcpus: request.placement.vcpus.len() as u32,
        io_uring_disabled: host.system.io_uring_disabled,
        files_direct: None,
        qemu: versions.and_then(|versions| major_minor(&versions.hypervisor)),
        libvirt: versions.and_then(|versions| major_minor(&versions.libvirt)),
        unsafe_allowed: request.unsafe_allowed,
        without: request.without.clone(),
    }
}

/// Seconds without which there is no answer: every arm in the first rung, the winner's fresh rounds, three boots.
pub fn least_seconds(request: &MatrixRequest, arms: usize) -> u32 {
    let run = request.job.seconds + request.job.ramp_seconds + BESIDE_A_RUN;
    (arms as u32 * FIRST_LOOK * run).saturating_add(confirming(request)).saturating_add(BOOT)
}

fn confirming(request: &MatrixRequest) -> u32 {
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
    let mut scratch = None;
    let result = leaving_nothing(&request.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
        measure(request, fs, host, hypervisor, leftovers, &mut scratch, tell)
    });
    let released = scratch.map_or(Ok(()), Scratch::release);
    let results = result?;
    released?;
    Ok(results)
}

/// One arm with what stands for it.
struct Entrant {
    disk: ArmDisk,
    seen: Seen,
    effect: Effect,
    cannot_win: Option<String>,
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
    let mut ground = ground(request, host, versions.as_ref());
    affordable(request, arms(&ground).0.len())?;
    pause_original(&request.guest, request.pause, hypervisor, leftovers)?;
    tell(Event::Stage("filling the scratch space"));
    let space = Space::prepare(request, fs, leftovers, scratch_slot, &mut ground)?;
    let Space { paths, left_out, sources, bare, device, span } = space;
    let slice = slice(&request.placement, &device, span);
    stay_off(host, &slice)?;
    grow_pools(&request.placement, 2, host, fs, leftovers)?;

    let appliance = Appliance::with_probe(&request.appliance, &request.probe, &request.state.join("bench"))?;
    let disks: Vec<ArmDisk> = paths
        .iter()
        .zip(sources)
        .enumerate()
        .map(|(arm, (path, source))| ArmDisk { path: *path, source, serial: serial(arm) })
        .collect();
    let job = FioJob { span: Some(span), ..request.job.clone() };
    let mut rig = Rig { request, fs, hypervisor, appliance, slice: slice.clone(), job, notes: Vec::new() };
    leftovers.clones =
        vec![rig.name(), clone_name(&request.guest, ArmKind::Planned), clone_name(&request.guest, ArmKind::AsFound)];
    leftovers.save()?;
    tell(Event::Stage("booting the guest that has every arm as a disk"));
    let pid = rig.boot(&disks)?;
    tell(Event::Stage("reading back what each arm really is"));
    let entrants = rig.read_back(pid, disks, span, host)?;
    let (race, turns) = rig.race(&entrants, began, tell)?;
    let name = rig.name();
    rig.hypervisor.destroy(&name).map_err(|source| MeasureError::Hypervisor { arm: name.clone(), source })?;

    let running: Vec<usize> = shown(&entrants);
    let winner = race.leader().map(|leader| running[leader]);
    let confirmation = match winner {
        Some(winner) if winner != 0 => {
            tell(Event::Stage("measuring the winner again"));
            let runs = rig.confirm(&entrants[winner].disk, &entrants[0].disk, &bare, tell)?;
            Some(Confirmation::of(runs, request.seed))
        }
        _ => None,
    };
    let design = Design { paired: vec![Workload::Fio(rig.job.clone())], ..no_design() };
    let provenance = provenance(host, versions.as_ref(), request.seed, &design);
    let mut caveats = caveats(request, &slice, &device, host);
    caveats.extend(rig.notes);
    Ok(MatrixResults {
        schema: MATRIX_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.environment.clone(),
        ground: GroundKey {
            device: device_model(fs, host, device.trim_start_matches("/dev/")),
            kernel: host.system.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
            qemu: versions.map_or_else(|| "unknown".to_owned(), |versions| versions.hypervisor),
        },
        guest: request.guest.clone(),
        workload: Workload::Fio(rig.job),
        slice,
        seed: request.seed,
        budget: request.budget,
        took: began.elapsed().as_secs_f64(),
        error: request.error,
        looks: doubling_looks(FIRST_LOOK, LOOKS),
        arms: arm_results(entrants, &running, &race, &turns, request.seed),
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

/// The entrants that took effect, by their place in the list: these race.
fn shown(entrants: &[Entrant]) -> Vec<usize> {
    (0..entrants.len()).filter(|arm| matches!(entrants[*arm].effect, Effect::Shown { .. })).collect()
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

/// Scratch space, divided among the arms.
struct Space {
    paths: Vec<DiskPath>,
    left_out: Vec<LeftOut>,
    sources: Vec<String>,
    /// What bare metal works on.
    bare: String,
    /// The device behind most of it.
    device: String,
    span: Bytes,
}

impl Space {
    fn prepare(
        request: &MatrixRequest,
        fs: &HostFs,
        leftovers: &mut Leftovers,
        slot: &mut Option<Scratch>,
        ground: &mut Ground,
    ) -> Result<Self, MeasureError> {
        let span = request.job.span.unwrap_or(Bytes::from_mib(256));
        let (mut paths, mut left_out) = arms(ground);
        let directory = request.scratch.iter().find(|path| Path::new(path).is_dir());
        let mut files = None;
        if let Some(directory) = directory {
            let count = paths.iter().filter(|path| path.container.is_file()).count() + 1;
            leftovers.directories.push(Files::inside(Path::new(directory)));
            // One that was there before is not this run's to remove.
            if !Files::inside(Path::new(directory)).exists() {
                leftovers.save()?;
            } else {
                leftovers.directories.clear();
            }
            let made = Files::begin(Path::new(directory), count, span)?;
            ground.files_direct = Some(made.direct());
            (paths, left_out) = arms(ground);
            files = Some(made);
        }
        let device = request.scratch.iter().find(|path| !Path::new(path).is_dir());
        let mut regions = Vec::new().into_iter();
        let mut behind = directory.cloned().unwrap_or_default();
        if let Some(device) = device {
            let count = paths.iter().filter(|path| !path.container.is_file()).count() + 1;
            let scratch = slot.insert(Scratch::prepare(fs, device, count)?);
            if scratch.region_size < span {
                return Err(MeasureError::Scratch {
                    device: device.clone(),
                    why: format!(
                        "{count} regions of {} each are smaller than --span {span}: give a smaller one, or leave arms out",
                        scratch.region_size
                    ),
                });
            }
            for region in &scratch.regions {
                fill(region, span)?;
            }
            behind = scratch.device().to_owned();
            regions = scratch.regions.clone().into_iter();
        }
        let mut source = |path: &DiskPath| -> Result<String, MeasureError> {
            let missing = || MeasureError::Unfit(format!("there is no scratch space for {}", path.title()));
            match (&mut files, path.container.is_file()) {
                (Some(files), true) => files.make(path.container),
                (_, false) => regions.next().ok_or_else(missing),
                (None, true) => Err(missing()),
            }
        };
        let sources = paths.iter().map(&mut source).collect::<Result<Vec<_>, _>>()?;
        let first = paths.first().map_or(Container::Block, |path| path.container);
        let bare = if first.is_file() { Container::RawFile } else { Container::Block };
        let bare = source(&DiskPath::qemu_default(bare))?;
        Ok(Self { paths, left_out, sources, bare, device: behind, span })
    }
}

/// The guest of the race, and what runs in it.
struct Rig<'a> {
    request: &'a MatrixRequest,
    fs: &'a HostFs,
    hypervisor: &'a mut dyn Hypervisor,
    appliance: Appliance,
    slice: Slice,
    job: FioJob,
    notes: Vec<String>,
}

impl Rig<'_> {
    fn name(&self) -> String {
        format!("{}-nearmetal-matrix", self.request.guest)
    }

    fn machine(&mut self, guests: BTreeMap<ArmKind, GuestArm>, bare: &str) -> Machine<'_> {
        Machine {
            hypervisor: &mut *self.hypervisor,
            fs: self.fs,
            probe: self.request.probe.clone(),
            probe_in_guest: PROBE_IN_GUEST.to_owned(),
            slice: self.slice.clone(),
            bare_device: bare.to_owned(),
            guests,
            notes: Vec::new(),
        }
    }

    fn pid(&mut self, name: &str) -> Result<u32, MeasureError> {
        let uuid = self
            .hypervisor
            .domain(name)
            .map_err(|source| MeasureError::Hypervisor { arm: name.to_owned(), source })?
            .uuid;
        let process = guests::find(self.fs, &uuid)
            .map_err(|source| MeasureError::Kernel { what: format!("cannot find the process of `{name}`"), source })?;
        process
            .map(|process| process.pid)
            .ok_or_else(|| MeasureError::Unfit(format!("`{name}` has no QEMU process in /proc")))
    }

    /// Boots the guest of the race and lets it run; gives QEMU's process id.
    fn boot(&mut self, disks: &[ArmDisk]) -> Result<u32, MeasureError> {
        let name = self.name();
        let xml = guest_with(&self.request.xml, &name, &new_uuid(self.fs)?, disks, &self.appliance)?;
        let guest = GuestArm { name: name.clone(), xml, device: String::new() };
        let mut machine = self.machine(BTreeMap::from([(ArmKind::Planned, guest)]), "");
        machine.boot(&[ArmKind::Planned])?;
        let notes = std::mem::take(&mut machine.notes);
        self.notes.extend(notes);
        self.hypervisor.resume(&name).map_err(|source| MeasureError::Hypervisor { arm: name.clone(), source })?;
        self.pid(&name)
    }

    fn read_back(
        &mut self,
        pid: u32,
        disks: Vec<ArmDisk>,
        span: Bytes,
        host: &Host,
    ) -> Result<Vec<Entrant>, MeasureError> {
        let name = self.name();
        let found = seen(self.hypervisor, &name)?;
        let free: u64 = host.nodes.iter().filter_map(|node| node.memory_free).map(Bytes::get).sum();
        let mut entrants = Vec::new();
        for disk in disks {
            let seen = found.get(&disk.serial).cloned().unwrap_or_default();
            let effect = if seen.name.is_empty() {
                Effect::NotShown { why: format!("the guest has no disk with serial number {}", disk.serial) }
            } else {
                read_back(self.fs, self.hypervisor, &name, pid, &disk.path, &disk.source, &seen)
            };
            entrants.push(Entrant { cannot_win: cannot_win(&disk.path, span, Bytes::new(free)), disk, seen, effect });
        }
        if let Some(Effect::NotShown { why }) = entrants.first().map(|entrant| &entrant.effect) {
            return Err(MeasureError::Unfit(format!(
                "QEMU's default, which all is compared with, cannot be read back: {why}"
            )));
        }
        Ok(entrants)
    }

    /// The race among the arms that took effect, in what is left of the budget beside the winner's fresh rounds.
    fn race(
        &mut self,
        entrants: &[Entrant],
        began: Instant,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Race, Vec<Turn>), MeasureError> {
        let running = shown(entrants);
        let can_win: Vec<bool> = running.iter().map(|arm| entrants[*arm].cannot_win.is_none()).collect();
        if running.len() < 2 || !can_win.contains(&true) {
            return Err(MeasureError::Unfit(format!(
                "{} of {} arms took effect and none of them may win: see --list for what each needs",
                running.len(),
                entrants.len()
            )));
        }
        let mut race = Race::new(&can_win, 0, self.request.error, &doubling_looks(FIRST_LOOK, LOOKS))?;
        let left =
            f64::from(self.request.budget.saturating_sub(confirming(self.request))) - began.elapsed().as_secs_f64();
        let start = Instant::now();
        let titles: Vec<String> = running.iter().map(|arm| entrants[*arm].disk.path.title()).collect();
        let devices = running.iter().map(|arm| format!("/dev/{}", entrants[*arm].seen.name)).collect();
        let mut lane = Lane { guest: self.name(), fs: self.fs, hypervisor: self.hypervisor, job: &self.job, devices };
        let seed = self.request.seed;
        let mut clock = || start.elapsed().as_secs_f64();
        let turns = contest(&mut race, seed, left, &mut clock, &mut lane, &mut |round, arm, racing| {
            tell(Event::Turn { round, arm: &titles[arm], racing });
        })?;
        Ok((race, turns))
    }

    /// The winner and QEMU's default, each in a guest with no other disk, and bare metal.
    fn confirm(
        &mut self,
        winner: &ArmDisk,
        default: &ArmDisk,
        bare: &str,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<Run>, MeasureError> {
        let mut guests = BTreeMap::new();
        for (kind, disk) in [(ArmKind::Planned, winner), (ArmKind::AsFound, default)] {
            let name = clone_name(&self.request.guest, kind);
            let xml =
                guest_with(&self.request.xml, &name, &new_uuid(self.fs)?, std::slice::from_ref(disk), &self.appliance)?;
            // Its only disk, so the guest's kernel names it the first of its kind.
            let device = if disk.path.bus == Bus::VirtioScsi { "/dev/sda" } else { "/dev/vda" };
            guests.insert(kind, GuestArm { name, xml, device: device.to_owned() });
        }
        let arms = vec![ArmKind::BareSlice, ArmKind::AsFound, ArmKind::Planned];
        let design = Design {
            arms: arms.clone(),
            paired: vec![Workload::Fio(self.job.clone())],
            rounds: self.request.pairs,
            ..no_design()
        };
        let steps = schedule(&design, self.request.seed.wrapping_add(1));
        let mut machine = self.machine(guests, bare);
        machine.boot(&arms)?;
        let total = steps.len();
        let runs = perform(&steps, false, &mut machine, &mut |index, step| tell(Event::Step { index, total, step }))?;
        let notes = std::mem::take(&mut machine.notes);
        self.notes.extend(notes);
        Ok(runs)
    }
}

/// Runs arms in the one guest that has them all.
struct Lane<'a> {
    guest: String,
    fs: &'a HostFs,
    hypervisor: &'a mut dyn Hypervisor,
    job: &'a FioJob,
    devices: Vec<String>,
}

impl Track for Lane<'_> {
    fn run(&mut self, arm: usize, seed: u64) -> Result<Measured, MeasureError> {
        settle(self.fs)?;
        let mut words = vec!["fio".to_owned()];
        words.extend(self.job.arguments(&self.devices[arm], seed));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let limit = Duration::from_secs(u64::from(self.job.seconds + self.job.ramp_seconds)) + SLACK;
        let output = agent::exec(self.hypervisor, &self.guest, &words, None, limit)
            .map_err(|source| MeasureError::Hypervisor { arm: self.devices[arm].clone(), source })?;
        if !output.status.is_success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().chars().take(400).collect();
            return Err(MeasureError::WorkloadFailed { what: format!("fio on {}", self.devices[arm]), why });
        }
        Ok(Measured { metrics: fio::metrics(&String::from_utf8_lossy(&output.stdout))?, notes: vec![] })
    }
}

/// Why an arm is measured and cannot win.
fn cannot_win(path: &DiskPath, span: Bytes, free: Bytes) -> Option<String> {
    if !path.cache.is_durable() {
        return Some(
            "it ignores the guest's flushes: a host that stops loses data the guest was told is safe".to_owned(),
        );
    }
    // Reads are cold at first, but every write goes to memory until long after the sample.
    (!path.cache.is_direct() && span < free).then(|| {
        format!(
            "the host's free memory ({free}) holds all {span} it works on: its figure is the memory's, not the drive's"
        )
    })
}

fn caveats(request: &MatrixRequest, slice: &Slice, device: &str, host: &Host) -> Vec<String> {
    let mut caveats = Vec::new();
    if let Environment::Lab { machine } = &request.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
        ));
    }
    if containers_of(&request.scratch).contains(&Container::Block) && containers_of(&request.scratch).len() > 1 {
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

fn no_design() -> Design {
    Design { arms: vec![], paired: vec![], rounds: 0, same_arm: vec![], same_arm_pairs: 0, single_shot: vec![] }
}
