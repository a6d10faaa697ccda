//! The guest of the race: booted, read back, raced; then the winner in a guest of its own.

use std::time::Instant;

use nearmetal_cost::why_no_reasons;
use nearmetal_load::{FioJob, SLACK, Workload, missing_file_system};
use nearmetal_results::{ArmName, Bus, DiskPath, Effect, Proof, Role, Run, Scheduler, Slice, Turn};
use nearmetal_stats::{Race, doubling_looks};
use nearmetal_units::Bytes;

use super::disks::{ArmDisk, guest_with};
use super::effect::{Seen, read_back, seen};
use super::flushes::{self, Flush, drive_under};
use super::run::{FIRST_LOOK, LOOKS, MatrixRequest, SAME_ARM_PAIRS, confirming};
use super::scheduler::Setting;
use crate::appliance::{Appliance, PROBE_IN_GUEST};
use crate::clones::clone_name;
use crate::engine::{
    Clones, Fresh, Guest, Pairs, Path, Plan, Racing, Seat, Session, Step, Subject, Tenant, carry_out, chain, failed,
    restart_if_dead,
};
use crate::error::MeasureError;

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
    pub(super) appliance: Appliance,
    pub(super) slice: Slice,
    pub(super) job: FioJob,
    /// The drive's scheduler; `None` where it has none.
    pub(super) setting: Option<Setting>,
}

impl Rig<'_> {
    pub(super) fn name(&self) -> String {
        format!("{}-nearmetal-matrix", self.request.guest)
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

    /// Boots the guest of the race and lets it run; gives it with QEMU's process id.
    pub(super) fn boot(&self, disks: &[ArmDisk], session: &mut Session<'_>) -> Result<(Guest, u32), MeasureError> {
        let name = self.name();
        session.without_fio();
        let xml = guest_with(&self.request.xml, &name, &session.new_uuid()?, disks, &self.appliance)?;
        let guest = Guest { name, xml, device: String::new() };
        session.boot(&guest)?;
        let pid = session.must_have_process(&guest.name)?;
        Ok((guest, pid))
    }

    /// A set over a file system that the guest cannot have is refused before anything is measured.
    fn refuse_without_file_system(&self, name: &str, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let Some(files) = &self.request.files else { return Ok(()) };
        let output = session.ask(name, &[PROBE_IN_GUEST, "file-systems"], SLACK)?;
        match missing_file_system(&output, files.file_system) {
            None => Ok(()),
            Some(why) => Err(MeasureError::Unfit(format!(
                "the guest cannot have {}: {why}; measure another file system, or give it another --appliance",
                files.file_system.name()
            ))),
        }
    }

    /// Reads every arm back; the guest runs.
    pub(super) fn read_back(
        &self,
        pid: u32,
        disks: Vec<ArmDisk>,
        device: &str,
        session: &mut Session<'_>,
    ) -> Result<Vec<Entrant>, MeasureError> {
        let name = self.name();
        self.refuse_without_file_system(&name, session)?;
        let found = seen(session.hypervisor, &name)?;
        let free: u64 = session.host.nodes.iter().filter_map(|node| node.memory_free).map(Bytes::get).sum();
        let mut entrants = Vec::new();
        for disk in disks {
            let seen = found.get(&disk.serial).cloned().unwrap_or_default();
            let mut effect = if seen.name.is_empty() {
                Effect::NotShown { why: format!("the guest has no disk with serial number {}", disk.serial) }
            } else {
                self.read_back_one(&name, pid, &disk, &seen, session).effect()
            };
            let mut cannot_win = cannot_win(&disk.path, self.span(), Bytes::new(free));
            if let Effect::Shown { evidence } = &mut effect {
                match self.flushed(&name, &disk, &seen, device, session) {
                    Some(Flush::Seen(words)) => evidence.push(words),
                    Some(Flush::Missed(words)) => {
                        cannot_win = Some(format!("QEMU does not flush all that it should: {words}"));
                        evidence.push(words);
                    }
                    Some(Flush::Unknown(why)) => {
                        evidence.push(format!("whether its writes are flushed: unknown, {why}"));
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

    /// Whether a write of the guest reaches the drive before it is called done.
    pub(super) fn flushed(
        &self,
        name: &str,
        disk: &ArmDisk,
        seen: &Seen,
        device: &str,
        session: &mut Session<'_>,
    ) -> Option<Flush> {
        let drive = match disk.path.container.is_file() {
            true => drive_under(&session.host, &disk.source),
            false => device.strip_prefix("/dev/").map(str::to_owned),
        };
        let in_guest = format!("/dev/{}", seen.name);
        flushes::tried(session.fs, session.hypervisor, name, &disk.path, drive.as_deref(), &in_guest)
    }

    /// One arm, with the drive's scheduler as it wants it.
    pub(super) fn read_back_one(
        &self,
        name: &str,
        pid: u32,
        disk: &ArmDisk,
        seen: &Seen,
        session: &mut Session<'_>,
    ) -> Proof {
        let span = self.span();
        let fs = session.fs;
        let set = |wanted| match (&self.setting, wanted) {
            (Some(setting), wanted) => setting.set(fs, wanted).map_err(|error| chain(&error)),
            (None, None) => Ok("none to set".to_owned()),
            (None, Some(_)) => Err("the drive has no scheduler to set".to_owned()),
        };
        let scheduler = match disk.path.scheduler {
            None => Ok(None),
            wanted => set(wanted).map(Some),
        };
        let mut proof = read_back(session.fs, session.hypervisor, name, pid, &disk.path, &disk.source, seen, span);
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

    /// The race among the arms that took effect, in what is left of the budget beside the winner's fresh rounds. The guest
    /// runs before it, and is paused after it.
    pub(super) fn race(
        &self,
        guest: Guest,
        entrants: &[Entrant],
        began: Instant,
        session: &mut Session<'_>,
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
        session.hypervisor.suspend(&guest.name).map_err(failed(&guest.name))?;
        let race = Race::new(&can_win, 0, self.request.error, &doubling_looks(FIRST_LOOK, LOOKS))?;
        let budget = f64::from(self.request.budget.saturating_sub(confirming(self.request)));
        let left = session.times(|| Ok(budget - began.elapsed().as_secs_f64()))?;
        let name = |entrant: &Entrant| {
            let path = &entrant.disk.path;
            ArmName::new(&path.id(), &path.title(), if path.is_qemu_default() { Role::AsFound } else { Role::Other })
        };
        let arms: Vec<ArmName> = entrants.iter().map(name).collect();
        let ids = running.iter().map(|arm| (*arm, arms[*arm].id.clone())).collect();
        let mut path = Scheduled {
            inner: Disks { guest, devices: entrants.iter().map(|one| format!("/dev/{}", one.seen.name)).collect() },
            setting: self.setting.clone(),
            wanted: entrants.iter().map(|one| one.disk.path.scheduler).collect(),
        };
        let mut racing = Racing::new(race, ids, self.workload(), left, self.request.conditions.seed);
        let runs = carry_out(&mut racing, &mut self.subject(arms.clone(), &mut path), session)?;
        let place = |run: &Run| arms.iter().position(|arm| arm.id == run.arm);
        let turns = runs.into_iter().filter_map(|run| Some((place(&run)?, run))).map(|(arm, run)| Turn::of(run, arm));
        Ok((racing.race().clone(), turns.collect()))
    }

    fn subject<'p>(&self, arms: Vec<ArmName>, path: &'p mut dyn Path) -> Subject<'p> {
        let tenants = vec![Tenant::new(&self.request.guest, self.slice.clone())];
        Subject { arms, tenants, path, least_overlap: 0.0 }
    }

    /// The winner and QEMU's default, each in a guest with no other disk, and bare metal.
    pub(super) fn confirm(
        &self,
        winner: &ArmDisk,
        default: &ArmDisk,
        bare: &str,
        session: &mut Session<'_>,
    ) -> Result<Vec<Run>, MeasureError> {
        let arms = fresh_arms(&winner.path);
        let mut guests = vec![None];
        for (arm, disk) in arms[1..].iter().zip([default, winner]) {
            let name = clone_name(&self.request.guest, &arm.id);
            let uuid = session.new_uuid()?;
            let xml = guest_with(&self.request.xml, &name, &uuid, std::slice::from_ref(disk), &self.appliance)?;
            // Its only disk, so the guest's kernel names it the first of its kind.
            let device = if disk.path.bus == Bus::VirtioScsi { "/dev/sda" } else { "/dev/vda" };
            guests.push(Some(Guest { name, xml, device: device.to_owned() }));
        }
        let clones = Clones { guests, bare: bare.to_owned() };
        clones.boot(&[1, 2], session)?;
        // Bare metal has the winner's scheduler too: what remains between them is what virtualization costs.
        let wanted = vec![winner.path.scheduler, None, winner.path.scheduler];
        let mut path = Scheduled { inner: clones, setting: self.setting.clone(), wanted };
        let untold = why_no_reasons(session.fs);
        let mut design = Pairs::new(Plan {
            counts: vec![1],
            ceiling: None,
            whole_or_nothing: false,
            arms: arms.to_vec(),
            paired: vec![self.workload()],
            rounds: self.request.pairs,
            resolve: None,
            same_arm: vec![2],
            same_arm_pairs: SAME_ARM_PAIRS,
            single_shot: Vec::new(),
            fresh: Fresh::No,
            reasons: untold.is_none(),
            accesses: 0,
            offers: false,
            accesses_in: Vec::new(),
            seed: self.request.conditions.seed.wrapping_add(1),
        });
        untold.into_iter().for_each(|note| session.note(note));
        let runs = carry_out(&mut design, &mut self.subject(arms.to_vec(), &mut path), session)?;
        if let Some(setting) = &self.setting {
            setting.set(session.fs, None)?;
        }
        Ok(runs)
    }
}

/// The arms of the fresh rounds: bare metal, what all is compared with, the winner.
pub(crate) fn fresh_arms(winner: &DiskPath) -> [ArmName; 3] {
    [
        ArmName::bare_slice(),
        ArmName::new("qemu-default", "QEMU's default", Role::AsFound),
        ArmName::new("winner", &winner.title(), Role::Planned),
    ]
}

/// The path of the race: arms are disks of the one guest that has them all.
struct Disks {
    guest: Guest,
    devices: Vec<String>,
}

impl Path for Disks {
    fn seat(&self, arm: usize, _: usize) -> Seat {
        Seat::guest(&self.guest.name, &self.devices[arm])
    }

    fn revive(&mut self, _: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        restart_if_dead(&self.guest, session)
    }
}

/// Another path, before whose steps the drive's scheduler is set as each arm wants it. One setting serves the whole drive.
struct Scheduled<P> {
    inner: P,
    setting: Option<Setting>,
    /// By arm; `None`: as it was found.
    wanted: Vec<Option<Scheduler>>,
}

impl<P: Path> Path for Scheduled<P> {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        if let Some(setting) = self.setting.as_ref().filter(|_| self.wanted.iter().any(Option::is_some)) {
            setting.set(session.fs, self.wanted[step.arm])?;
        }
        self.inner.turn_to(step, session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        self.inner.seat(arm, tenant)
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        self.inner.revive(step, session)
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

#[cfg(test)]
mod tests {
    use nearmetal_results::{Container, PathCache};

    use super::*;

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
