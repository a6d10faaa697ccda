//! The watch on this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nearmetal_change::journal::AtWork;
use nearmetal_change::verify::{Effort, Outcome, Verification};
use nearmetal_change::{ChangeError, Journal};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{DomainState, Hypervisor, Libvirt, PauseReason};
use nearmetal_rules::Examination;

use super::mailbox::{Mailbox, Sender, mailbox};
use super::schedule::{Subject, Why};
use super::{Ended, Notice, Patience, World, keep, sources};
use crate::drift::journal::difference;
use crate::drift::{Outputs, findings};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::read_back::{self, InForce};

/// How long a look waits for one thing: it has five seconds for all, and often takes two looks.
const SHORT: Duration = Duration::from_secs(1);
/// How long all that a guest's agent is asked in one look may take.
const COMMANDS: Duration = Duration::from_secs(3);
/// How long libvirt may take for one answer.
const LIBVIRT: Duration = Duration::from_secs(5);
/// How much sooner than after a period the next round may end: the doctor looks after it all the same.
const EARLY: Duration = Duration::from_secs(60);

/// Watches until Ctrl-C or SIGTERM.
pub(crate) fn keep_watch(
    period: Duration,
    journal: Journal,
    outputs: Outputs,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let (sender, notices) = mailbox();
    let mut libvirt = Libvirt::open(None)?;
    libvirt.limit_wait(LIBVIRT);
    sources::listen(&sender)?;
    let mut here = Here {
        began: Instant::now(),
        period,
        sender,
        notices,
        kernel: HostFs::live(),
        libvirt,
        journal,
        in_force: None,
        outputs,
        round_ended: SystemTime::now(),
        findings: None,
        examined: None,
        trouble: String::new(),
        never: None,
        printer,
    };
    let ended = keep(&mut here, period).map_err(anyhow::Error::msg)?;
    Ok(match ended {
        Ended::Differs => ExitStatus::Findings,
        Ended::Nothing => ExitStatus::Done,
        Ended::Unknown => {
            here.printer.important("not everything in force could be checked");
            ExitStatus::Refused
        }
    })
}

/// Files of the journal with their lengths and times.
type Stamp = Vec<(PathBuf, u64, SystemTime)>;

struct Here<'a> {
    began: Instant,
    period: Duration,
    sender: Sender,
    notices: Mailbox,
    kernel: HostFs,
    libvirt: Libvirt,
    journal: Journal,
    /// What is in force, as read from a journal of this stamp.
    in_force: Option<(Stamp, Rc<InForce>)>,
    outputs: Outputs,
    /// When the last round ended, or failed.
    round_ended: SystemTime,
    /// What the doctor found, and when he last began to look.
    findings: Option<Box<Examination>>,
    examined: Option<Duration>,
    /// The last trouble that was told.
    trouble: String,
    /// Why libvirt will never be reached again from here.
    never: Option<String>,
    printer: &'a mut Printer,
}

impl Here<'_> {
    fn in_force(&mut self) -> Result<Rc<InForce>, ChangeError> {
        let stamp = self.journal.stamp()?;
        if let Some((_, in_force)) = self.in_force.as_ref().filter(|(read, _)| *read == stamp) {
            return Ok(Rc::clone(in_force));
        }
        let in_force = Rc::new(InForce::read(&self.journal, &[], true)?);
        self.in_force = Some((stamp, Rc::clone(&in_force)));
        Ok(in_force)
    }

    /// The value, or `None` where an error was told in its place; the same one only once.
    fn told<T>(&mut self, result: Result<T, impl Into<anyhow::Error>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let text = format!("error: {:#}", error.into());
                if text != self.trouble {
                    self.printer.important(&text);
                    self.trouble = text;
                }
                None
            }
        }
    }

    fn read_back(&mut self, subject: &Subject, effort: &Effort) -> Result<Option<Vec<Verification>>, ChangeError> {
        let in_force = self.in_force()?;
        match subject {
            Subject::Settings if in_force.cures.is_empty() => Ok(None),
            Subject::Settings => read_back::settings(&self.kernel, &mut self.libvirt, &in_force).map(Some),
            Subject::Guest(domain) => {
                let planned = in_force.plans.iter().find(|(name, _)| name == domain);
                let Some((plan, placement)) = planned.and_then(|(_, plan)| Some((plan, plan.placement(domain)?)))
                else {
                    return Ok(None);
                };
                let found = read_back::guest_in_force(
                    &self.kernel,
                    &mut self.libvirt,
                    (plan, placement),
                    &in_force.all,
                    effort,
                    &mut None,
                );
                Ok(Some(vec![found]))
            }
        }
    }
}

impl World for Here<'_> {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait(&mut self, until: Option<Duration>) -> Vec<Notice> {
        if let Some(why) = self.never.take() {
            return vec![Notice::Never(why)];
        }
        // Nobody reads what is told; the caller says why.
        if self.printer.lost().is_some() {
            return vec![Notice::Stop];
        }
        self.notices.wait(until.map(|until| until.saturating_sub(self.began.elapsed())))
    }

    fn at_work(&mut self) -> Result<Option<AtWork>, String> {
        self.journal.at_work(&self.kernel).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }

    fn is_in_force(&mut self, domain: &str) -> bool {
        self.in_force().map_or(true, |in_force| in_force.plans.iter().any(|(name, _)| name == domain))
    }

    fn subjects(&mut self) -> Option<BTreeSet<Subject>> {
        let read = self.in_force();
        let in_force = self.told(read)?;
        let settings = (!in_force.cures.is_empty()).then_some(Subject::Settings);
        Some(in_force.plans.iter().map(|(domain, _)| Subject::Guest(domain.clone())).chain(settings).collect())
    }

    fn state(&mut self, domain: &str) -> Option<(DomainState, Option<PauseReason>)> {
        match self.libvirt.domain(domain) {
            Ok(summary) => Some((summary.state, summary.pause)),
            Err(error) => {
                // A helper of another release, above all: after an upgrade this program has to be started anew.
                if sources::never(&error) {
                    self.never = Some(error.to_string());
                }
                None
            }
        }
    }

    fn look(&mut self, subject: &Subject, patience: Patience) -> Option<Vec<Verification>> {
        let agent = match patience {
            Patience::JustStarted => None,
            Patience::Usual => Some(SHORT),
        };
        // Requests of the guest's own are not waited for: that would take a second for each of its disks.
        let natural = Duration::ZERO;
        let effort = Effort {
            read_in_guest: false,
            agent,
            commands: COMMANDS,
            natural,
            hook: SHORT,
            deep: false,
            transient: false,
        };
        let found = self.read_back(subject, &effort);
        self.told(found).flatten()
    }

    fn tell(&mut self, why: Why, verifications: &[Verification]) {
        for found in verifications {
            let word = match why {
                Why::Event(kind) => kind.to_string(),
                Why::Booted => "booted".to_owned(),
                Why::StillPaused => "still paused".to_owned(),
                Why::Round => "round".to_owned(),
            };
            let differences = found.checks.iter().filter(|check| check.outcome == Outcome::Mismatch);
            let lines: Vec<String> = differences.map(|check| difference(&found.guest, check)).collect();
            for line in &lines {
                self.printer.data(&format!("{}  {word}  {line}", found.taken));
            }
            if lines.is_empty() && why != Why::Round {
                let untold = found.untold();
                let rest = if untold > 0 { format!(", {untold} checks unknown") } else { String::new() };
                self.printer.data(&format!("{}  {word}  {}: nothing differs{rest}", found.taken, found.guest));
            }
        }
        // Without libvirt nobody knows what waits for a start, and `verify` tells nothing either: a later look does.
        let reached = self.in_force().and_then(|in_force| in_force.reach_libvirt(&mut self.libvirt));
        if self.told(reached).is_some() {
            let told = self.outputs.tell(verifications);
            self.told(told);
        }
    }

    fn write(&mut self, known: Option<&[Verification]>, after_round: bool) -> bool {
        let ended = self.in_force().and_then(|in_force| {
            read_back::all_ended(&in_force.all)?;
            in_force.reach_libvirt(&mut self.libvirt)
        });
        let known = self.told(ended).and(known);
        if after_round || known.is_none() {
            self.round_ended = SystemTime::now();
        }
        let written = self.outputs.write_figures(known, self.findings.as_deref(), self.round_ended);
        if self.told(written).is_some() && known.is_some() && after_round {
            // Should the same happen again, it is news.
            self.trouble.clear();
        }
        let now = self.now();
        let is_time = self.examined.is_none_or(|last| now.saturating_sub(last) + EARLY >= self.period);
        if after_round && is_time && self.outputs.textfile.is_some() {
            self.examined = Some(now);
            let sender = self.sender.clone();
            // It takes longer than looks may wait.
            thread::spawn(move || sender.send(Notice::Findings(findings().map(Box::new))));
        }
        known.is_some()
    }

    fn examined(&mut self, found: Option<Box<Examination>>) {
        self.findings = found;
    }

    fn say(&mut self, text: &str) {
        self.printer.say(text);
    }
}
