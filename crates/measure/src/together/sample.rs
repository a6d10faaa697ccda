//! One sample: some guests, or their bare slices, begun at one moment.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nearmetal_host::{HostFs, guests};
use nearmetal_hypervisor::{Hypervisor, HypervisorError, agent};
use nearmetal_units::CpuSet;

use super::barrier::{Ahead, lead, now, waiting};
use super::results::{MemberSample, Side, TogetherSample};
use super::window::{Window, overlap};
use crate::appliance::PROBE_IN_GUEST;
use crate::cost::{Each, Middle, Target, watched};
use crate::error::MeasureError;
use crate::executor::SLACK;
use crate::results::Slice;

/// One member of a sample.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    /// Domain.
    pub(crate) guest: String,
    /// Its clone.
    pub(crate) clone: String,
    /// The clone's UUID.
    pub(crate) uuid: String,
    /// Its slice.
    pub(crate) slice: Slice,
}

/// A side that is to work, with the machine.
pub(crate) struct Turn<'a> {
    pub(crate) side: Side,
    /// How many members work: the first ones.
    pub(crate) count: usize,
    pub(crate) fs: &'a HostFs,
    pub(crate) hypervisor: &'a mut dyn Hypervisor,
}

/// What all members run, on bare metal and in guests.
pub(crate) trait Load {
    /// The program, as errors name it.
    fn program(&self) -> &'static str;
    /// From the moment it begins to its end.
    fn length(&self) -> Duration;
    /// The part of that which is counted.
    fn middle(&self) -> Middle;
    /// Makes the machine what the side needs. The guests that are there are paused before and after.
    ///
    /// # Errors
    /// The machine does not become that.
    fn turn_to(&mut self, turn: &mut Turn<'_>) -> Result<(), MeasureError>;
    /// Words before everything else of the bare member with this number.
    fn around_bare(&self, _: usize) -> Vec<String> {
        Vec::new()
    }
    /// Whether the program does not say when it ran, so that the probe has to.
    fn stamp(&self) -> bool;
    /// The command of the member with this number.
    fn command(&self, side: Side, number: usize, seed: u64) -> Vec<String>;
    /// What costs are given for.
    fn each(&self) -> Each;
    /// How many of those a rate of its unit is, each second.
    fn done(&self, rate: f64) -> f64 {
        if self.each() == Each::Gigabit { rate / 1e9 } else { rate }
    }
    /// Rate and times out of what it printed; `ahead` is how far its clock is before the host's, ms.
    ///
    /// # Errors
    /// It printed something else.
    fn read(&self, output: &str, ahead: f64) -> Result<(f64, Window), MeasureError>;
}

/// What all samples share.
pub(crate) struct Bench<'a> {
    pub(crate) fs: &'a HostFs,
    pub(crate) hypervisor: &'a mut dyn Hypervisor,
    pub(crate) probe: PathBuf,
    pub(crate) load: &'a mut dyn Load,
    pub(crate) least_overlap: f64,
}

/// What one member gave: the program's words, and how far its clock is before the host's.
struct Told {
    output: String,
    clock: Ahead,
}

fn failed(guest: &str) -> impl FnOnce(HypervisorError) -> MeasureError {
    let arm = guest.to_owned();
    move |source| MeasureError::Hypervisor { arm, source }
}

impl Bench<'_> {
    /// Runs one sample. What fails is in the sample, with its reason; it never counts.
    pub(crate) fn sample(&mut self, members: &[Running], side: Side, round: u32, seed: u64) -> TogetherSample {
        let mut sample = TogetherSample {
            round,
            count: members.len(),
            side,
            started: nearmetal_change::timestamp::now(),
            members: Vec::new(),
            overlap: 0.0,
            clocks_within: 0.0,
            thrown_away: None,
            costs: Vec::new(),
            notes: Vec::new(),
        };
        if let Err(error) = self.fill(&mut sample, members, seed) {
            sample.thrown_away = Some(crate::experiment::chain(&error));
        } else if sample.overlap < self.least_overlap {
            sample.thrown_away = Some(format!(
                "round {round}, {} {}: they ran together for {:.0} % of the time",
                sample.count,
                side.title(),
                sample.overlap * 100.0
            ));
        }
        sample
    }

    fn fill(&mut self, sample: &mut TogetherSample, members: &[Running], seed: u64) -> Result<(), MeasureError> {
        let (fs, hypervisor) = (self.fs, &mut *self.hypervisor);
        self.load.turn_to(&mut Turn { side: sample.side, count: members.len(), fs, hypervisor })?;
        let union =
            |of: fn(&Slice) -> &CpuSet| members.iter().fold(CpuSet::new(), |all, member| all.union(of(&member.slice)));
        let slice = union(|slice| &slice.cpus);
        let mut target =
            Target { guests: Vec::new(), on_top: union(|slice| &slice.cpus_on_top).difference(&slice), slice };
        if sample.side == Side::Guests {
            let pids = members.iter().filter_map(|member| guests::pid_of(self.fs, &member.uuid).ok().flatten());
            target.guests = pids.collect();
        }
        let lead = lead(members.len());
        let middle = self.load.middle();
        let middle = Middle { begins: middle.begins + lead, ends: middle.ends + lead };
        let (fs, side) = (self.fs, sample.side);
        let (told, counted) = watched(fs, &target, Some(middle), || match side {
            Side::Bare => self.bare(members, seed, lead),
            Side::Guests => self.guests(members, seed, lead),
        });
        let told = told?;
        let mut windows = Vec::new();
        for (member, told) in members.iter().zip(&told) {
            let (rate, window) = self.load.read(&told.output, told.clock.milliseconds())?;
            windows.push(window);
            sample.members.push(MemberSample { guest: member.guest.clone(), rate, window });
            sample.clocks_within = sample.clocks_within.max(told.clock.give_or_take as f64 / 1e6);
        }
        sample.overlap = overlap(&windows);
        (sample.costs, sample.notes) = counted.costs(self.load.done(sample.aggregate()), self.load.each());
        Ok(())
    }

    /// What a run may take from the moment it is told of.
    fn limit(&self, lead: Duration) -> Duration {
        lead + self.load.length() + SLACK
    }

    /// The bare slices: one process each, bound to its slice, waiting for the moment.
    fn bare(&mut self, members: &[Running], seed: u64, lead: Duration) -> Result<Vec<Told>, MeasureError> {
        let probe = self.probe.display().to_string();
        let moment = now() + lead.as_nanos() as i128;
        let mut children: Vec<Child> = Vec::new();
        let mut problem = None;
        for (number, member) in members.iter().enumerate() {
            let job = self.load.command(Side::Bare, number, seed + number as u64);
            let around = self.load.around_bare(number);
            let mut words = around.iter().chain(std::iter::once(&probe));
            let Some(first) = words.next() else { continue };
            let mut command = Command::new(first);
            command.args(words).args(["bind", "--cpus", &member.slice.cpus.to_string()]);
            command.args(["--nodes", &member.slice.nodes.to_string(), "--"]);
            command.args(waiting(&probe, moment, Ahead::HOST, self.load.stamp(), &job));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            match command.spawn() {
                Ok(child) => children.push(child),
                Err(source) => {
                    problem = Some(MeasureError::Program { program: probe.clone(), source });
                    break;
                }
            }
        }
        // Waited for in any case: one left behind would disturb the next sample.
        let outputs: Vec<_> = children.into_iter().map(Child::wait_with_output).collect();
        if let Some(problem) = problem {
            return Err(problem);
        }
        let program = self.load.program();
        let told = members.iter().zip(outputs).map(|(member, output)| {
            let output = output.map_err(|source| MeasureError::Program { program: probe.clone(), source })?;
            if output.status.success() {
                let output = String::from_utf8_lossy(&output.stdout).into_owned();
                return Ok(Told { output, clock: Ahead::HOST });
            }
            let words = String::from_utf8_lossy(&output.stderr).trim().chars().take(300).collect();
            Err(MeasureError::WorkloadFailed {
                what: format!("{program} on the bare slice of `{}`", member.guest),
                why: words,
            })
        });
        told.collect()
    }

    /// The guests: resumed, told, waited for, and paused again whatever came of it.
    fn guests(&mut self, members: &[Running], seed: u64, lead: Duration) -> Result<Vec<Told>, MeasureError> {
        for (number, member) in members.iter().enumerate() {
            if let Err(error) = self.hypervisor.resume(&member.clone) {
                self.pause(&members[..number]).ok();
                return Err(failed(&member.guest)(error));
            }
        }
        let result = self.told(members, seed, lead);
        let paused = self.pause(members);
        let result = result?;
        paused?;
        Ok(result)
    }

    fn pause(&mut self, members: &[Running]) -> Result<(), MeasureError> {
        let results =
            members.iter().map(|member| self.hypervisor.suspend(&member.clone).map_err(failed(&member.guest)));
        // All of them, and the first error: the others must not run on.
        results.collect::<Vec<_>>().into_iter().collect()
    }

    fn told(&mut self, members: &[Running], seed: u64, lead: Duration) -> Result<Vec<Told>, MeasureError> {
        let mut clocks = Vec::new();
        for member in members {
            clocks.push(Ahead::of_guest(self.hypervisor, &member.clone).map_err(failed(&member.guest))?);
        }
        let limit = self.limit(lead);
        let moment = now() + lead.as_nanos() as i128;
        let mut running = Vec::new();
        for (number, (member, clock)) in members.iter().zip(&clocks).enumerate() {
            let job = self.load.command(Side::Guests, number, seed + number as u64);
            let words = waiting(PROBE_IN_GUEST, moment, *clock, self.load.stamp(), &job);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // Those told already end by themselves, and the clones with them.
            running.push(agent::start(self.hypervisor, &member.clone, &words, None).map_err(failed(&member.guest))?);
        }
        // Nobody is asked before the end, since each answer is work for a guest.
        std::thread::sleep(lead + self.load.length());
        let mut told = Vec::new();
        for ((member, clock), running) in members.iter().zip(clocks).zip(running) {
            let output = running.wait(self.hypervisor, limit).map_err(failed(&member.guest))?;
            if !output.status.is_success() {
                let why = String::from_utf8_lossy(&output.stderr).trim().chars().take(300).collect();
                return Err(MeasureError::WorkloadFailed {
                    what: format!("{} in `{}`", self.load.program(), member.guest),
                    why,
                });
            }
            told.push(Told { output: String::from_utf8_lossy(&output.stdout).into_owned(), clock });
        }
        Ok(told)
    }
}
