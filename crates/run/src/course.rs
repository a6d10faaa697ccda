//! The course of a run, from the start of its guest to the end of its command.
//!
//! Everything is asked and nothing is waited for without looking: at each turn of the wait the caller may say that the run
//! is to end, and the limits of time are kept. Whatever comes of it, the guest is ended.

use std::time::{Duration, Instant};

use nearmetal_hypervisor::agent::{self, ExecStatus};
use nearmetal_hypervisor::{Hypervisor, HypervisorError, ShutdownMode};

use crate::RunError;
use crate::definition::Definition;
use crate::output::{self, Ended, Job, NotStarted, Output};
use crate::qemu_log::QemuLog;
use crate::recover::end_guest;

/// Between two looks at a guest that boots.
const LOOK: Duration = Duration::from_millis(200);
/// The first looks at a command come soon; the pauses double up to the last, since each costs the guest work.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(500);
/// How long an agent may be silent while the command runs: one that swaps, or is out of PUs, comes back.
const SILENCE: Duration = Duration::from_secs(60);

/// How long a signal may take to arrive that has ended QEMU or libvirt already.
const ECHO: Duration = Duration::from_millis(300);

/// A run that has its slice and its definition.
#[derive(Debug)]
pub struct Course<'a> {
    /// Name of the domain.
    pub name: &'a str,
    /// UUID of the domain.
    pub uuid: &'a str,
    /// What it is.
    pub definition: &'a Definition,
    /// What runs in it: a program and its arguments, no shell.
    pub command: &'a [String],
    /// How long the guest may take until its agent answers.
    pub boot_limit: Duration,
    /// How long the command may take.
    pub time_limit: Option<Duration>,
    /// How long the guest may take to shut down.
    pub grace: Duration,
    /// What its QEMU says.
    pub log: &'a QemuLog,
}

/// What a run meets beside libvirt.
pub trait Watch {
    /// A step is done.
    fn step(&mut self, step: Step);

    /// The guest has just begun: what is to be seen of it from its first moment is looked for now.
    ///
    /// # Errors
    /// It cannot be seen.
    fn begun(&mut self, hypervisor: &mut dyn Hypervisor) -> Result<(), RunError>;

    /// Whether the run is told to end, by the number of the signal.
    fn interrupted(&mut self) -> Option<i32>;

    /// Compares the guest with its plan.
    ///
    /// # Errors
    /// Each thing that differs.
    fn read_back(&mut self, hypervisor: &mut dyn Hypervisor, look: Look) -> Result<(), Vec<String>>;
}

/// When a guest is compared with its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It has just started, and has touched little of its memory.
    Started,
    /// It has booted: what could not be told before has to be seen.
    Booted,
}

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The guest runs.
    Started,
    /// It runs as planned.
    ReadBack,
    /// Its agent answers.
    Agent,
    /// The command has begun.
    CommandStarted,
    /// The command has ended, or the run was told to.
    Ended,
}

/// How a run ended that came to its command's end, or was told to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The command ended.
    Command(Output),
    /// The time limit was reached.
    TimeLimit(Duration),
    /// By this signal.
    Interrupted(i32),
    /// The command could not be started.
    NotStarted(NotStarted),
}

impl End {
    /// The exit code to pass on: the command's own; 128 and the signal as shells have it; 124 as timeout(1) has it;
    /// 127, or 126, as shells have it for a program that cannot be started.
    ///
    /// # Errors
    /// [`RunError::NoCode`]: the guest's agent told a code that no program has.
    pub fn code(&self) -> Result<u8, RunError> {
        let byte = |code: i64| {
            u8::try_from(code)
                .map_err(|_| RunError::NoCode(format!("the guest's agent reported exit code {code}; the limit is 255")))
        };
        match self {
            Self::Command(Output { status: ExecStatus::Exited(code), .. }) => byte(*code),
            Self::Command(Output { status: ExecStatus::Signal(signal), .. }) => byte(signal.saturating_add(128)),
            Self::TimeLimit(_) => Ok(124),
            Self::NotStarted(NotStarted { code, .. }) => Ok(*code),
            Self::Interrupted(signal) => byte(i64::from(*signal) + 128),
        }
    }
}

/// What came of a course: two things, since a command that ended has its code whatever becomes of its guest.
#[derive(Debug)]
pub struct Gone {
    /// How the command ended. Errors: the guest did not start, is not as planned, was ended by somebody else, or its agent
    /// does not answer.
    pub end: Result<End, RunError>,
    /// Whether the guest is gone. Errors: libvirt is lost ([`RunError::lost_libvirt`]), or could not end it.
    pub guest: Result<(), RunError>,
}

/// Runs it, and ends its guest.
pub fn carry_out(course: &Course<'_>, hypervisor: &mut dyn Hypervisor, watch: &mut dyn Watch) -> Gone {
    let mut end = course.to_the_end(hypervisor, watch);
    // Who ends a job may send the signal to all of it at once: what it needs can be gone before this process hears of it. Each thing
    // that is missed then has an error of its own: QEMU where it starts, or its threads where they are read back.
    if end.is_err() {
        hypervisor.pause(ECHO);
        end = watch.interrupted().map_or(end, |signal| Ok(End::Interrupted(signal)));
    }
    if matches!(end, Ok(End::TimeLimit(_) | End::Interrupted(_))) {
        // What it has open outside (a mounted share, say) can be closed. Its disk is thrown away in any case.
        let _ = hypervisor.shutdown(course.name, ShutdownMode::AgentThenAcpi, course.grace);
    }
    Gone { end, guest: end_guest(hypervisor, course.name, course.uuid) }
}

impl Course<'_> {
    fn to_the_end(&self, hypervisor: &mut dyn Hypervisor, watch: &mut dyn Watch) -> Result<End, RunError> {
        // A signal that came while the slice was taken: no guest is started to be ended.
        if let Some(signal) = watch.interrupted() {
            return Ok(End::Interrupted(signal));
        }
        hypervisor.create_tied(&self.definition.xml, &self.definition.files)?;
        if let Err(error) = watch.begun(hypervisor) {
            self.alive(hypervisor, "its console was opened")?;
            return Err(error);
        }
        watch.step(Step::Started);
        let wrong = |differences| RunError::ReadBack { differences };
        watch.read_back(hypervisor, Look::Started).map_err(wrong)?;
        watch.step(Step::ReadBack);
        if let Some(end) = self.until_agent(hypervisor, watch)? {
            return Ok(end);
        }
        watch.step(Step::Agent);
        watch.read_back(hypervisor, Look::Booted).map_err(wrong)?;
        let job = match output::start(hypervisor, self.name, self.command) {
            Ok(Ok(job)) => job,
            Ok(Err(why)) => return Ok(End::NotStarted(why)),
            Err(error) => return Err(self.explained(hypervisor, error, "its command began")),
        };
        watch.step(Step::CommandStarted);
        let end = self.until_command(hypervisor, watch, &job)?;
        watch.step(Step::Ended);
        Ok(end)
    }

    /// Waits until the agent answers, unless the run is told to end before.
    fn until_agent(&self, hypervisor: &mut dyn Hypervisor, watch: &mut dyn Watch) -> Result<Option<End>, RunError> {
        let began = hypervisor.now();
        loop {
            if let Some(signal) = watch.interrupted() {
                return Ok(Some(End::Interrupted(signal)));
            }
            let asked = agent::ping_once_connected(hypervisor, self.name, Duration::from_secs(1));
            let last = match asked {
                Ok(()) => return Ok(None),
                Err(error @ HypervisorError::AgentNotResponding { .. }) => error,
                Err(error) => return Err(self.explained(hypervisor, error, "its agent answered")),
            };
            self.alive(hypervisor, "its agent answered")?;
            if hypervisor.now().duration_since(began) >= self.boot_limit {
                return Err(RunError::NoAgent { seconds: self.boot_limit.as_secs(), last: last.to_string() });
            }
            hypervisor.pause(LOOK);
        }
    }

    fn until_command(
        &self,
        hypervisor: &mut dyn Hypervisor,
        watch: &mut dyn Watch,
        job: &Job,
    ) -> Result<End, RunError> {
        let began = hypervisor.now();
        let mut pause = FIRST_LOOK;
        let mut silent: Option<Instant> = None;
        loop {
            // Before the guest: who sends signals to this process may have sent them to what it needs as well.
            if let Some(signal) = watch.interrupted() {
                return Ok(End::Interrupted(signal));
            }
            match job.ended(hypervisor, &mut || watch.interrupted()) {
                Ok(Some(Ended::Ran(output))) => return Ok(End::Command(output)),
                Ok(Some(Ended::NotStarted(why))) => return Ok(End::NotStarted(why)),
                Ok(None) => silent = None,
                Err(error @ HypervisorError::AgentNotResponding { .. }) => {
                    self.alive(hypervisor, "its command did")?;
                    let since = *silent.get_or_insert_with(|| hypervisor.now());
                    if hypervisor.now().duration_since(since) >= SILENCE {
                        return Err(RunError::AgentLost { seconds: SILENCE.as_secs(), last: error.to_string() });
                    }
                }
                Err(error) => return Err(self.explained(hypervisor, error, "its command did")),
            }
            let spent = hypervisor.now().duration_since(began);
            if let Some(limit) = self.time_limit.filter(|limit| spent >= *limit) {
                return Ok(End::TimeLimit(limit));
            }
            let left = self.time_limit.map_or(pause, |limit| limit.saturating_sub(spent));
            hypervisor.pause(pause.min(left));
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Refuses to go on with a guest that is gone, or does not run any more.
    fn alive(&self, hypervisor: &mut dyn Hypervisor, before: &'static str) -> Result<(), RunError> {
        match hypervisor.domain(self.name) {
            Ok(domain) if !domain.state.is_off() => Ok(()),
            Ok(_) | Err(HypervisorError::NoSuchDomain { .. }) => Err(self.ended(before)),
            Err(error) => Err(error.into()),
        }
    }

    fn ended(&self, before: &'static str) -> RunError {
        RunError::GuestEnded { before, console: self.log.words() }
    }

    /// What an error means: of a guest that is gone libvirt says many things.
    fn explained(&self, hypervisor: &mut dyn Hypervisor, error: HypervisorError, before: &'static str) -> RunError {
        let lost = RunError::Hypervisor(error);
        if lost.lost_libvirt() {
            return lost;
        }
        if let Err(gone) = self.alive(hypervisor, before) {
            return gone;
        }
        match lost {
            RunError::Hypervisor(HypervisorError::AgentCommandFailed { message, .. })
                if before == "its command did" =>
            {
                RunError::NoCode(format!(
                    "the guest's agent does not know it any more ({message}); did the guest reboot?"
                ))
            }
            other => other,
        }
    }
}
