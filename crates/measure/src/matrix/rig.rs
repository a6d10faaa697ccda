//! The guest of the race: booted, read back, raced; then the winner in a guest of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nearmetal_host::{Host, HostFs, guests};
use nearmetal_hypervisor::{Hypervisor, agent};
use nearmetal_stats::{Race, doubling_looks};
use nearmetal_units::Bytes;

use super::contest::{Track, Turn, contest};
use super::disks::{ArmDisk, guest_with};
use super::effect::{Effect, Proof, Seen, read_back, seen};
use super::flushes::{self, Flush, drive_under};
use super::path::{Bus, DiskPath, Scheduler};
use super::run::{FIRST_LOOK, LOOKS, MatrixRequest, confirming};
use super::scheduler::{Scheduled, Setting};
use crate::appliance::{Appliance, PROBE_IN_GUEST};
use crate::bench::{Event, new_uuid};
use crate::clones::clone_name;
use crate::cost::{Each, Middle, Target, watched};
use crate::error::MeasureError;
use crate::executor::{FILE_SET_LIMIT, GuestArm, Machine, SLACK, iops, settle};
use crate::experiment::{Measured, chain, perform};
use crate::results::{ArmKind, Run, Slice};
use crate::schedule::{Design, Step, schedule};
use crate::workload::{FioJob, Workload};
use crate::{file_set, fio, host_cpu};

/// One arm with what stands for it.
pub(super) struct Entrant {
    pub(super) disk: ArmDisk,
    seen: Seen,
    pub(super) effect: Effect,
    pub(super) cannot_win: Option<String>,
}

/// The entrants that took effect, by their place in the list: these race.
pub(super) fn shown(entrants: &[Entrant]) -> Vec<usize> {
    (0..entrants.len()).filter(|arm| matches!(entrants[*arm].effect, Effect::Shown { .. })).collect()
}

/// The guest of the race, and what runs in it.
pub(super) struct Rig<'a> {
    pub(super) request: &'a MatrixRequest,
    pub(super) fs: &'a HostFs,
    pub(super) hypervisor: &'a mut dyn Hypervisor,
    pub(super) appliance: Appliance,
    pub(super) slice: Slice,
    pub(super) job: FioJob,
    /// The drive's scheduler; `None` where it has none.
    pub(super) setting: Option<Setting>,
    pub(super) notes: Vec<String>,
}

impl Rig<'_> {
    pub(super) fn name(&self) -> String {
        format!("{}-nearmetal-matrix", self.request.guest)
    }

    fn machine(&mut self, guests: BTreeMap<ArmKind, GuestArm>, bare: &str) -> Machine<'_> {
        Machine::of_clones(&mut *self.hypervisor, self.fs, &self.request.conditions, &self.slice, bare, guests)
    }

    /// What every run runs.
    pub(super) fn workload(&self) -> Workload {
        match &self.request.files {
            Some(files) => Workload::FileSystem(files.clone()),
            None => Workload::Fio(self.job.clone()),
        }
    }

    /// How much of each disk is worked on.
    fn span(&self) -> Bytes {
        self.job.span.unwrap_or(self.slice.region)
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
    pub(super) fn boot(&mut self, disks: &[ArmDisk]) -> Result<u32, MeasureError> {
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

    /// A set over a file system that the guest cannot have is refused before anything is measured.
    fn refuse_without_file_system(&mut self, name: &str) -> Result<(), MeasureError> {
        let Some(files) = &self.request.files else { return Ok(()) };
        let output = agent::exec(self.hypervisor, name, &[PROBE_IN_GUEST, "file-systems"], None, SLACK)
            .map_err(|source| MeasureError::Hypervisor { arm: name.to_owned(), source })?;
        match file_set::missing(&String::from_utf8_lossy(&output.stdout), files.file_system) {
            None => Ok(()),
            Some(why) => Err(MeasureError::Unfit(format!(
                "the guest cannot have {}: {why}; measure another file system, or give it another --appliance",
                files.file_system.name()
            ))),
        }
    }

    pub(super) fn read_back(
        &mut self,
        pid: u32,
        disks: Vec<ArmDisk>,
        span: Bytes,
        host: &Host,
        device: &str,
    ) -> Result<Vec<Entrant>, MeasureError> {
        let name = self.name();
        self.refuse_without_file_system(&name)?;
        let found = seen(self.hypervisor, &name)?;
        let free: u64 = host.nodes.iter().filter_map(|node| node.memory_free).map(Bytes::get).sum();
        let mut entrants = Vec::new();
        for disk in disks {
            let seen = found.get(&disk.serial).cloned().unwrap_or_default();
            let mut effect = if seen.name.is_empty() {
                Effect::NotShown { why: format!("the guest has no disk with serial number {}", disk.serial) }
            } else {
                self.read_back_one(&name, pid, &disk, &seen).effect()
            };
            let mut cannot_win = cannot_win(&disk.path, span, Bytes::new(free));
            if let Effect::Shown { evidence } = &mut effect {
                let drive = if disk.path.container.is_file() {
                    drive_under(host, &disk.source)
                } else {
                    device.strip_prefix("/dev/").map(str::to_owned)
                };
                let device = format!("/dev/{}", seen.name);
                match flushes::tried(self.fs, self.hypervisor, &name, &disk.path, drive.as_deref(), &device) {
                    Some(Flush::Seen(words)) => evidence.push(words),
                    Some(Flush::Missed(words)) => {
                        cannot_win = Some(format!("QEMU does not flush all that it should: {words}"));
                        evidence.push(words);
                    }
                    Some(Flush::Unknown(why)) => {
                        evidence.push(format!("whether its writes are flushed: unknown, {why}"))
                    }
                    None => {}
                }
            }
            entrants.push(Entrant { cannot_win, disk, seen, effect });
        }
        if let Some(Effect::NotShown { why }) = entrants.first().map(|entrant| &entrant.effect) {
            return Err(MeasureError::Unfit(format!(
                "QEMU's default, which all is compared with, cannot be read back: {why}"
            )));
        }
        Ok(entrants)
    }

    /// One arm, with the drive's scheduler as it wants it.
    pub(super) fn read_back_one(&mut self, name: &str, pid: u32, disk: &ArmDisk, seen: &Seen) -> Proof {
        let span = self.span();
        let set = |wanted| match (&self.setting, wanted) {
            (Some(setting), wanted) => setting.set(self.fs, wanted).map_err(|error| chain(&error)),
            (None, None) => Ok("none to set".to_owned()),
            (None, Some(_)) => Err("the drive has no scheduler to set".to_owned()),
        };
        let scheduler = match disk.path.scheduler {
            None => Ok(None),
            wanted => set(wanted).map(Some),
        };
        let mut proof = read_back(self.fs, self.hypervisor, name, pid, &disk.path, &disk.source, seen, span);
        match scheduler {
            Ok(words) => proof.scheduler = words,
            Err(why) => proof.amiss = Some(why),
        }
        if disk.path.scheduler.is_some() {
            if let Err(why) = set(None) {
                proof.amiss = Some(why);
            }
        }
        proof
    }

    /// The race among the arms that took effect, in what is left of the budget beside the winner's fresh rounds.
    pub(super) fn race(
        &mut self,
        entrants: &[Entrant],
        began: Instant,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Race, Vec<Turn>), MeasureError> {
        let running = shown(entrants);
        let can_win: Vec<bool> = running.iter().map(|arm| entrants[*arm].cannot_win.is_none()).collect();
        if running.len() < 2 || !can_win.contains(&true) {
            return Err(MeasureError::Unfit(format!(
                "{} of {} arms took effect and none of them may win: `nearmetal bench disk list` says what each needs",
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
        let schedulers = running.iter().map(|arm| entrants[*arm].disk.path.scheduler).collect();
        let (name, workload) = (self.name(), self.workload());
        let mut lane = Lane {
            guest: name,
            fs: self.fs,
            hypervisor: self.hypervisor,
            workload,
            target: Target {
                guests: Vec::new(),
                slice: self.slice.cpus.clone(),
                on_top: self.slice.cpus_on_top.clone(),
            },
            devices,
            schedulers,
            setting: self.setting.as_ref(),
        };
        let seed = self.request.conditions.seed;
        let mut clock = || start.elapsed().as_secs_f64();
        let turns = contest(&mut race, seed, left, &mut clock, &mut lane, &mut |round, arm, racing| {
            tell(Event::Turn { round, arm: &titles[arm], racing });
        })?;
        Ok((race, turns))
    }

    /// The winner and QEMU's default, each in a guest with no other disk, and bare metal.
    pub(super) fn confirm(
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
        let design =
            Design { arms: arms.clone(), paired: vec![self.workload()], rounds: self.request.pairs, ..no_design() };
        let steps = schedule(&design, self.request.conditions.seed.wrapping_add(1));
        let (setting, fs) = (self.setting.clone(), self.fs);
        let mut machine = self.machine(guests, bare);
        machine.boot(&arms)?;
        let total = steps.len();
        let mut progress = |index: usize, step: &Step| tell(Event::Step { index, total, step });
        let runs = match (&setting, winner.path.scheduler) {
            // Bare metal has the winner's scheduler too: what remains between them is what virtualization costs.
            (Some(setting), Some(scheduler)) => {
                let wanted = [ArmKind::Planned, ArmKind::BareSlice].map(|arm| (arm, scheduler)).into();
                let mut executor = Scheduled { inner: &mut machine, fs, setting, wanted };
                perform(&steps, false, &mut executor, &mut progress)?
            }
            _ => perform(&steps, false, &mut machine, &mut progress)?,
        };
        let notes = std::mem::take(&mut machine.notes);
        self.notes.extend(notes);
        if let Some(setting) = &self.setting {
            setting.set(self.fs, None)?;
        }
        Ok(runs)
    }
}

/// Runs arms in the one guest that has them all.
struct Lane<'a> {
    guest: String,
    fs: &'a HostFs,
    hypervisor: &'a mut dyn Hypervisor,
    workload: Workload,
    /// PUs whose time is the guest's: its vCPUs' and what virtualization costs on top.
    target: Target,
    devices: Vec<String>,
    schedulers: Vec<Option<Scheduler>>,
    setting: Option<&'a Setting>,
}

impl Track for Lane<'_> {
    fn run(&mut self, arm: usize, seed: u64) -> Result<Measured, MeasureError> {
        settle(self.fs)?;
        if let Some(setting) = self.setting.filter(|_| self.schedulers.iter().any(Option::is_some)) {
            setting.set(self.fs, self.schedulers[arm])?;
        }
        let device = &self.devices[arm];
        let (words, limit) = match &self.workload {
            Workload::FileSystem(job) => (job.command(PROBE_IN_GUEST, device, seed), FILE_SET_LIMIT),
            Workload::Fio(job) => {
                let mut words = vec!["fio".to_owned()];
                words.extend(job.arguments(device, seed));
                (words, u64::from(job.seconds + job.ramp_seconds))
            }
            other => return Err(MeasureError::Unfit(format!("{} needs no disk", other.label()))),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let middle = match &self.workload {
            Workload::Fio(job) => Some(Middle::of(job)),
            _ => None,
        };
        let (hypervisor, guest) = (&mut *self.hypervisor, &self.guest);
        let (output, counted) = watched(self.fs, &self.target, middle, || {
            agent::exec(hypervisor, guest, &words, None, Duration::from_secs(limit) + SLACK)
        });
        let output = output.map_err(|source| MeasureError::Hypervisor { arm: device.clone(), source })?;
        if !output.status.is_success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().chars().take(400).collect();
            return Err(MeasureError::WorkloadFailed { what: format!("{} on {device}", self.workload.label()), why });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        match &self.workload {
            Workload::Fio(_) => {
                let mut metrics = fio::metrics(&text)?;
                // Of what is counted beside a race's runs only the sum is kept: there are hundreds of them.
                metrics.extend(host_cpu::of(&counted.costs(iops(&metrics), Each::Io).0, false));
                Ok(Measured { metrics, notes: vec![] })
            }
            _ => file_set::measured(&text),
        }
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

pub(super) fn no_design() -> Design {
    Design { arms: vec![], paired: vec![], rounds: 0, same_arm: vec![], same_arm_pairs: 0, single_shot: vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::path::{Container, PathCache};

    #[test]
    fn what_memory_holds_and_what_loses_data_cannot_win() {
        let path = |cache| DiskPath { cache, iothreads: 1, ..DiskPath::qemu_default(Container::Partition) };
        let (span, more, less) = (Bytes::from_mib(256), Bytes::from_mib(8192), Bytes::from_mib(128));
        assert_eq!(cannot_win(&path(PathCache::None), span, more), None);
        assert_eq!(cannot_win(&path(PathCache::Directsync), span, more), None);
        assert_eq!(cannot_win(&path(PathCache::Writeback), span, less), None, "then the drive is what is measured");
        assert!(cannot_win(&path(PathCache::Writeback), span, more).is_some_and(|why| why.contains("8 GiB")));
        for free in [more, less] {
            assert!(cannot_win(&path(PathCache::Unsafe), span, free).is_some_and(|why| why.contains("loses data")));
        }
    }
}
