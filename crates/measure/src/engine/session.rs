//! Everything an experiment borrows from the host, in one place that gives it back.
//!
//! What is borrowed is written down before it is taken ([`Leftovers`]), so that the next experiment, or
//! `nearmetal rollback`, gives back what a killed one could not.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use nearmetal_change::{ChangeError, Journal};
use nearmetal_host::{Host, HostFs, guests};
use nearmetal_hypervisor::agent::{self, ExecOutput};
use nearmetal_hypervisor::{DomainState, Hypervisor, HypervisorError, Versions};
use nearmetal_load::{LoadError, SLACK};
use nearmetal_place::Placement;
use nearmetal_results::{ArmName, Run, Slice};
use nearmetal_units::{Bytes, CpuSet};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Round;
use super::path::{Guest, is_gone, is_there};
use crate::conditions::Conditions;
use crate::error::MeasureError;
use crate::event::Event;
use crate::leftovers::{Leftovers, THP, end_clone, write};
use crate::log::Log;
use crate::mounts::mount_counters;
use crate::program;
use crate::scratch::Scratch;

/// How long a clone may take from power-on to an agent that answers. Seconds on silicon; in a lab, one with twenty disks takes 90 s
/// with nothing beside.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// How often a clone is booted before it counts as one that does not come up.
const BOOTS: u32 = 2;
/// Characters of a command that an error names.
const LONGEST_COMMAND: usize = 120;
/// How long the agent of a clone that has answered before may take.
const ANSWER: Duration = Duration::from_secs(20);

/// What an experiment is made on and tells: the parts that outlive it.
pub(crate) struct Site<'a> {
    /// The kernel.
    pub fs: &'a HostFs,
    /// libvirt.
    pub hypervisor: &'a mut dyn Hypervisor,
    /// Who is told.
    pub tell: &'a mut dyn FnMut(Event<'_>),
}

/// One experiment's time on the host.
pub(crate) struct Session<'a> {
    /// The kernel.
    pub fs: &'a HostFs,
    /// The host as it was when the session began.
    pub host: Host,
    /// libvirt.
    pub hypervisor: &'a mut dyn Hypervisor,
    /// Under what.
    pub conditions: Conditions,
    /// What is to be given back.
    pub leftovers: Leftovers,
    /// What a reader of the figures must know of how they came about.
    pub notes: Vec<String>,
    tell: &'a mut dyn FnMut(Event<'_>),
    /// Whether the clones' fio was compared with the host's, or need not be.
    fio_compared: bool,
    /// Whether a guest's requests were seen where they pass the host.
    pub(super) seen: BTreeMap<String, bool>,
    log: Option<Log>,
}

impl<'a> Session<'a> {
    /// Runs an experiment, first cleaning up what an interrupted one left, and afterwards what this one changed, whatever
    /// came of it. The experiment's own error comes before one of cleaning up.
    pub(crate) fn run<T>(
        conditions: &Conditions,
        site: Site<'a>,
        experiment: impl FnOnce(&mut Session<'a>) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let Site { fs, hypervisor, tell } = site;
        // One of several measurements of a command: the next one would borrow everything again.
        conditions.stop.check()?;
        // Held until everything is put back, and given back by the kernel should this process die: whoever watches guests
        // leaves them alone meanwhile, and `apply`, `doctor --fix` and `device` refuse.
        let _measuring = Journal::at(&conditions.state).lock_to_measure().map_err(|error| match error {
            ChangeError::Busy { holder } => MeasureError::Unfit(format!(
                "process {holder} measures right now, and there is room for one: wait for it, or end it"
            )),
            other => other.into(),
        })?;
        if let Some(old) = Leftovers::load(&conditions.state, fs)? {
            tell(Event::Stage("cleaning up what an interrupted run left"));
            old.clean_up(fs, hypervisor)?;
        }
        let host = Host::read(fs);
        let mut leftovers = Leftovers::new(&conditions.state, &host);
        let own = std::process::id();
        leftovers.owner = guests::start_time(fs, own).ok().map(|start| (own, start));
        mount_counters(fs, &mut leftovers).iter().for_each(|problem| tell(Event::Stage(problem)));
        let mut session = Self {
            fs,
            host,
            hypervisor,
            conditions: conditions.clone(),
            leftovers,
            notes: Vec::new(),
            tell,
            fio_compared: false,
            seen: BTreeMap::new(),
            log: None,
        };
        let result = experiment(&mut session);
        let stopped = session.conditions.stop.is_asked();
        session.tell(Event::Stage(if stopped {
            "stopped: putting everything back"
        } else {
            "putting everything back"
        }));
        let cleaned = session.leftovers.clean_up(fs, session.hypervisor);
        if matches!(result, Err(MeasureError::Stopped)) {
            // It says that everything was put back.
            cleaned?;
            return result;
        }
        match (result, cleaned) {
            (Err(error), Err(source)) => {
                Err(MeasureError::Left { what: super::chain(&error), source: Box::new(source) })
            }
            (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
            (Ok(result), Ok(())) => Ok(result),
        }
    }

    /// Nobody has asked for the end.
    ///
    /// # Errors
    /// Somebody has.
    pub(crate) fn goes_on(&self) -> Result<(), MeasureError> {
        self.conditions.stop.check()
    }

    /// Tells the caller.
    pub(crate) fn tell(&mut self, event: Event<'_>) {
        (self.tell)(event);
    }

    /// Tells the caller that a stage begins.
    pub(crate) fn stage(&mut self, stage: &str) {
        self.tell(Event::Stage(stage));
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// No clone has the appliance's fio, or it need not be the host's.
    pub(crate) fn without_fio(&mut self) {
        self.fio_compared = true;
    }

    /// Versions of libvirt and the hypervisor, if they tell.
    pub(crate) fn versions(&mut self) -> Option<Versions> {
        self.hypervisor.versions().ok()
    }

    /// Writes every run down as it ends, in this log.
    pub(crate) fn log_to(&mut self, log: Log) {
        self.log = Some(log);
    }

    /// The log, for the document at the end.
    pub(crate) fn log(&mut self) -> Option<&mut Log> {
        self.log.as_mut()
    }

    /// What the measurement has worked out for its time. One that goes on has that of its first session: what runs next hangs
    /// on it, and no two sessions take the same time to set up.
    ///
    /// # Errors
    /// The time does not suffice, or the store's own.
    pub(crate) fn times<T: Serialize + DeserializeOwned>(
        &mut self,
        work_out: impl FnOnce() -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        match &mut self.log {
            Some(log) => log.times(work_out),
            None => work_out(),
        }
    }

    /// A design begins.
    pub(super) fn next_phase(&mut self) {
        self.log.iter_mut().for_each(Log::next_phase);
    }

    /// Writes a run down.
    pub(super) fn keep(&mut self, run: &Run) -> Result<(), MeasureError> {
        self.log.as_mut().map_or(Ok(()), |log| log.add(run))
    }

    /// The runs of a round that an interrupted experiment had written down whole.
    ///
    /// # Errors
    /// It was designed otherwise.
    pub(super) fn recorded(&mut self, round: &Round, arms: &[ArmName]) -> Result<Vec<Run>, MeasureError> {
        self.log.as_mut().map_or(Ok(Vec::new()), |log| log.recorded(round, arms))
    }

    /// Pauses the original of a guest, which owns the slice that is measured.
    ///
    /// # Errors
    /// It runs, and pausing it is not allowed.
    pub(crate) fn pause_original(&mut self, guest: &str) -> Result<(), MeasureError> {
        let wrap = |source| MeasureError::Hypervisor { arm: guest.to_owned(), source };
        let summary = self.hypervisor.domain(guest).map_err(wrap)?;
        if summary.state != DomainState::Running {
            return Ok(());
        }
        if !self.conditions.pause {
            return Err(MeasureError::Asked(format!(
                "`{guest}` is running on the slice that is to be measured: allow it to be paused meanwhile (--pause), or shut it down"
            )));
        }
        self.leftovers.paused.push(guest.to_owned());
        self.leftovers.save()?;
        self.hypervisor.suspend(guest).map_err(wrap)
    }

    /// Divides a scratch device among `count`; it is wiped when the session ends.
    pub(crate) fn divide(&mut self, device: &str, count: usize) -> Result<Scratch, MeasureError> {
        let empty = Scratch::examine(self.fs, device)?;
        self.leftovers.scratch.push(empty.device().to_owned());
        self.leftovers.save()?;
        empty.divide(count)
    }

    /// Moves this process off the PUs that are measured, where there are others.
    pub(crate) fn stay_off(&self, slices: &[Slice]) -> Result<(), MeasureError> {
        let measured = slices.iter().fold(CpuSet::new(), |all, slice| all.union(&slice.cpus).union(&slice.cpus_on_top));
        let elsewhere = self.host.online().difference(&measured);
        if elsewhere.is_empty() || !self.fs.is_live() {
            return Ok(());
        }
        let mut set = rustix::thread::CpuSet::new();
        elsewhere.iter().for_each(|cpu| set.set(cpu as usize));
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|error| MeasureError::Unfit(format!("cannot move to PUs {elsewhere}, off the slice: {error}")))
    }

    /// Turns the kernel's transparent huge pages off, or back to what they were; that is written down before the first change.
    /// A kernel without them has nothing to turn off.
    ///
    /// # Errors
    /// The setting cannot be written.
    pub(crate) fn transparent_pages_off(&mut self, off: bool) -> Result<(), MeasureError> {
        let Some(found) = self.host.system.transparent_hugepage.clone() else { return Ok(()) };
        let wanted = if off { "never" } else { &found };
        if self.leftovers.transparent_hugepage.is_none() {
            if *wanted == found {
                return Ok(());
            }
            self.leftovers.transparent_hugepage = Some(found.clone());
            self.leftovers.save()?;
        }
        write(self.fs, THP, wanted)
    }

    /// Writes down that clones of these names will be made.
    pub(crate) fn will_clone(&mut self, names: impl IntoIterator<Item = String>) -> Result<(), MeasureError> {
        self.leftovers.clones.extend(names);
        self.leftovers.save()
    }

    /// A UUID that nobody has.
    pub(crate) fn new_uuid(&self) -> Result<String, MeasureError> {
        new_uuid(self.fs)
    }

    /// Boots a clone until its agent answers, and lets it run. One that hangs has measured nothing yet, so it is booted
    /// again and the report says so.
    pub(crate) fn boot(&mut self, guest: &Guest) -> Result<(), MeasureError> {
        let name = &guest.name;
        let mut boot = 1;
        loop {
            self.goes_on()?;
            self.hypervisor.create_transient(&guest.xml, false).map_err(failed(name))?;
            match agent::wait(self.hypervisor, name, BOOT_LIMIT) {
                Ok(()) => {
                    self.compare_fio(name);
                    return Ok(());
                }
                Err(HypervisorError::AgentNotResponding { .. }) if boot < BOOTS => {
                    let seconds = BOOT_LIMIT.as_secs();
                    self.note(format!(
                        "the clone `{name}` was booted again: its agent did not answer within {seconds} s"
                    ));
                    self.hypervisor.destroy(name).map_err(failed(name))?;
                    boot += 1;
                }
                Err(error) => return Err(failed(name)(error)),
            }
        }
    }

    /// The same, and pauses it.
    pub(crate) fn boot_paused(&mut self, guest: &Guest) -> Result<(), MeasureError> {
        self.boot(guest)?;
        self.hypervisor.suspend(&guest.name).map_err(failed(&guest.name))
    }

    /// Ends a clone, if it exists.
    pub(crate) fn end(&mut self, name: &str) -> Result<(), MeasureError> {
        end_clone(self.hypervisor, name)
    }

    /// Whether a paused guest still answers. It is paused again.
    pub(crate) fn answers(&mut self, name: &str) -> Result<bool, MeasureError> {
        let state = match self.hypervisor.domain(name) {
            Ok(summary) => summary.state,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(failed(name)(error)),
        };
        if !is_there(state) {
            return Ok(false);
        }
        // A turn that failed half way has left it running.
        if state == DomainState::Paused {
            self.hypervisor.resume(name).map_err(failed(name))?;
        }
        let answered = agent::wait(self.hypervisor, name, ANSWER).is_ok();
        self.hypervisor.suspend(name).map_err(failed(name))?;
        Ok(answered)
    }

    /// Does something while these paused guests run. They are paused again whatever comes of it, all of them: the next arm must
    /// not share their PUs.
    ///
    /// # Errors
    /// The work's own; one cannot be resumed or paused.
    pub(crate) fn while_running<T>(
        &mut self,
        names: &[&str],
        work: impl FnOnce(&mut Self) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let mut running = Vec::new();
        let resumed = names.iter().try_for_each(|name| {
            self.hypervisor.resume(name).map_err(failed(name))?;
            running.push(*name);
            Ok(())
        });
        let result = resumed.and_then(|()| work(self));
        let paused: Vec<_> = running.iter().map(|name| self.hypervisor.suspend(name).map_err(failed(name))).collect();
        let result = result?;
        paused.into_iter().collect::<Result<(), _>>()?;
        Ok(result)
    }

    /// Runs a small command in a guest that runs; gives its stdout.
    ///
    /// # Errors
    /// The agent refused, or the command failed, in its own words.
    pub(crate) fn ask(&mut self, name: &str, words: &[&str], limit: Duration) -> Result<String, MeasureError> {
        ask(self.hypervisor, name, words, limit)
    }

    /// The same, in a guest that is paused before and after.
    pub(crate) fn ask_paused(&mut self, name: &str, words: &[&str], limit: Duration) -> Result<String, MeasureError> {
        self.while_running(&[name], |session| session.ask(name, words, limit))
    }

    /// Runs a command of the probe on the host, bound to a slice; gives its stdout.
    pub(crate) fn on_the_slice(&self, slice: &Slice, words: &[&str]) -> Result<String, MeasureError> {
        let probe = &self.conditions.probe;
        let mut bound = Command::new(probe);
        bound.args(["bind", "--cpus", &slice.cpus.to_string(), "--nodes", &slice.nodes.to_string(), "--"]);
        program::run(bound.arg(probe).args(words))
    }

    /// QEMU's process of a guest; `None` where it cannot be found.
    pub(crate) fn process(&mut self, name: &str) -> Result<Option<u32>, MeasureError> {
        let uuid = self.hypervisor.domain(name).map_err(failed(name))?.uuid;
        Ok(guests::pid_of(self.fs, &uuid).ok().flatten())
    }

    /// The same, where nothing goes on without it.
    pub(crate) fn must_have_process(&mut self, name: &str) -> Result<u32, MeasureError> {
        self.process(name)?.ok_or_else(|| MeasureError::Unfit(format!("`{name}` has no QEMU process in /proc")))
    }

    /// Says if the clones' fio, which is the appliance's, is another than the host's.
    fn compare_fio(&mut self, clone: &str) {
        if std::mem::replace(&mut self.fio_compared, true) {
            return;
        }
        let own = program::run(Command::new("fio").arg("--version"));
        let inside = self.ask(clone, &["fio", "--version"], SLACK);
        let (Ok(own), Ok(inside)) = (own, inside) else { return };
        if own.trim() != inside.trim() {
            self.note(format!("the clones have {}, the host {}: not the same program", inside.trim(), own.trim()));
        }
    }

    /// Versions, kernel and arguments: name to value, `unknown` where it cannot be read.
    pub(crate) fn provenance<'w>(
        &mut self,
        workloads: impl IntoIterator<Item = &'w nearmetal_load::Workload>,
    ) -> BTreeMap<String, String> {
        let versions = self.versions();
        let mut found = crate::record::provenance(&self.host, versions.as_ref(), self.conditions.seed, workloads);
        if let Some(image) = &self.conditions.loads {
            found.insert("loads image".to_owned(), crate::record::hash_of(image));
        }
        found
    }
}

/// Runs a small command in a guest; gives its stdout.
///
/// # Errors
/// The agent refused, or the command failed, in its own words.
pub(crate) fn ask(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    words: &[&str],
    limit: Duration,
) -> Result<String, MeasureError> {
    let output = agent::exec(hypervisor, name, words, None, limit).map_err(failed(name))?;
    stdout_of(&output, || format!("`{}` in `{name}`", title(words)))
}

/// A command as errors name it: a script by its name and what it works on, since its text says nothing to whoever reads the error; a
/// user's command, which is run by a script, as he wrote it.
fn title(words: &[&str]) -> String {
    let command = match words {
        ["sh", "-c", _, "nearmetal", users @ ..] => users.join(" "),
        ["sh", "-c", _, named @ ..] if !named.is_empty() => named.join(" "),
        words => words.join(" "),
    };
    command.chars().take(LONGEST_COMMAND).collect()
}

/// What a command printed, if it succeeded.
///
/// # Errors
/// It failed, in its own words.
pub(crate) fn stdout_of(output: &ExecOutput, what: impl Fn() -> String) -> Result<String, MeasureError> {
    if output.status.is_success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    let why = said.into_iter().find(|text| !text.is_empty());
    let why = why.unwrap_or_else(|| format!("it ended with {} and said nothing", output.status));
    Err(LoadError::WorkloadFailed { what: what(), why: why.chars().take(400).collect() }.into())
}

/// An error of libvirt or of an agent, with the domain it was about.
pub(crate) fn failed(name: &str) -> impl FnOnce(HypervisorError) -> MeasureError + use<> {
    let arm = name.to_owned();
    move |source| MeasureError::Hypervisor { arm, source }
}

/// A UUID from the kernel.
pub(crate) fn new_uuid(fs: &HostFs) -> Result<String, MeasureError> {
    let text = fs
        .read("/proc/sys/kernel/random/uuid")
        .map_err(|source| MeasureError::Kernel { what: "cannot make a UUID".into(), source })?;
    Ok(text.trim().to_owned())
}

/// The slice that a placement gives a guest, with `device` as what both sides measure.
pub(crate) fn slice_of(placement: &Placement, device: &str, region: Bytes) -> Slice {
    let cpus = placement.vcpus.iter().fold(CpuSet::new(), |cpus, pin| cpus.union(&pin.cpus));
    let on_top = placement.iothreads.iter().fold(placement.emulator.clone(), |cpus, more| cpus.union(more));
    Slice {
        nodes: placement.memory.nodes.clone(),
        page_size: placement.memory.page_size,
        device: device.to_owned(),
        region,
        cpus_on_top: on_top.difference(&cpus),
        cpus,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_script_is_called_by_its_name_and_a_users_command_as_he_wrote_it() {
        let title = super::title;
        assert_eq!(title(&["sh", "-c", "d=\nfor n in …", "up", "52:54:00:00:00:01"]), "up 52:54:00:00:00:01");
        assert_eq!(title(&["sh", "-c", "timed …", "nearmetal", "make -j"]), "make -j");
        assert_eq!(title(&["sh", "-c", "exit 0"]), "sh -c exit 0");
        assert_eq!(title(&["dd", "if=/dev/vda"]), "dd if=/dev/vda");
    }
}
