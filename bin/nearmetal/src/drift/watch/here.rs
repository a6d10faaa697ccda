//! The watch on this machine.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nearmetal_change::verify::{Effort, Outcome, Verification};
use nearmetal_change::{ChangeError, Journal};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{DomainState, Hypervisor, Libvirt};
use nearmetal_rules::Examination;

use super::schedule::{Subject, Why};
use super::{Notice, Patience, World, keep, sources};
use crate::drift::journal::difference;
use crate::drift::{Outputs, findings};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::read_back::{self, InForce};

/// How long a look waits for one thing: it has five seconds for all, and often takes two looks.
const SHORT: Duration = Duration::from_secs(1);

/// Watches until Ctrl-C or SIGTERM.
pub(crate) fn keep_watch(
    period: Duration,
    journal: Journal,
    outputs: Outputs,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let (sender, notices) = channel();
    let libvirt = Libvirt::open(None)?;
    sources::listen(&sender)?;
    let began = Instant::now();
    let kernel = HostFs::live();
    let mut here =
        Here { began, notices, kernel, libvirt, journal, outputs, findings: None, trouble: String::new(), printer };
    let differs = keep(&mut here, period).map_err(anyhow::Error::msg)?;
    Ok(if differs { ExitStatus::Findings } else { ExitStatus::Done })
}

struct Here<'a> {
    began: Instant,
    notices: Receiver<Notice>,
    kernel: HostFs,
    libvirt: Libvirt,
    journal: Journal,
    outputs: Outputs,
    /// What the doctor found after the last round.
    findings: Option<Examination>,
    /// The last trouble that was told.
    trouble: String,
    printer: &'a mut Printer,
}

impl Here<'_> {
    fn in_force(&mut self) -> Option<InForce> {
        let read = InForce::read(&self.journal, &[], true);
        self.told(read)
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
        let in_force = InForce::read(&self.journal, &[], true)?;
        match subject {
            Subject::Settings if in_force.cures.is_empty() => Ok(None),
            Subject::Settings => {
                read_back::settings(&self.kernel, &mut self.libvirt, &self.journal, &in_force.cures).map(Some)
            }
            Subject::Guest(domain) => {
                let planned = in_force.plans.iter().find(|(name, _)| name == domain);
                let Some((plan, placement)) = planned.and_then(|(_, plan)| Some((plan, plan.placement(domain)?)))
                else {
                    return Ok(None);
                };
                let found = read_back::guest(&self.kernel, &mut self.libvirt, plan, placement, effort, &mut None);
                Ok(Some(vec![found]))
            }
        }
    }
}

impl World for Here<'_> {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait(&mut self, until: Option<Duration>) -> Option<Notice> {
        match until {
            // The threads that send never end before this does; if they did, nothing would ever come.
            None => Some(self.notices.recv().unwrap_or(Notice::Stop)),
            Some(until) => self.notices.recv_timeout(until.saturating_sub(self.began.elapsed())).ok(),
        }
    }

    fn writer(&mut self) -> Option<u32> {
        let writer = self.journal.writer(&self.kernel);
        self.told(writer).flatten()
    }

    fn subjects(&mut self) -> Option<BTreeSet<Subject>> {
        let in_force = self.in_force()?;
        let settings = (!in_force.cures.is_empty()).then_some(Subject::Settings);
        Some(in_force.plans.into_iter().map(|(domain, _)| Subject::Guest(domain)).chain(settings).collect())
    }

    fn state(&mut self, domain: &str) -> Option<DomainState> {
        self.libvirt.domain(domain).ok().map(|summary| summary.state)
    }

    fn look(&mut self, subject: &Subject, patience: Patience) -> Option<Vec<Verification>> {
        let agent = match patience {
            Patience::JustStarted => Duration::ZERO,
            Patience::Usual => SHORT,
        };
        let effort = Effort { read_in_guest: false, agent, natural: agent, hook: SHORT, deep: false };
        let found = self.read_back(subject, &effort);
        self.told(found).flatten()
    }

    fn tell(&mut self, why: Why, verifications: &[Verification]) {
        for found in verifications {
            let word = match why {
                Why::Event(kind) => kind.to_string(),
                Why::Booted => "booted".to_owned(),
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
        let told = self.outputs.tell(verifications);
        self.told(told);
    }

    fn write(&mut self, known: Option<&[Verification]>, after_round: bool) {
        let ended = read_back::ended(&self.journal);
        let known = self.told(ended).and(known);
        let written = self.outputs.write_figures(known, self.findings.as_ref());
        self.told(written);
        // What the doctor finds takes longer than a look: the figures that cannot wait are written first.
        if after_round && self.outputs.textfile.is_some() {
            self.findings = findings();
            let written = self.outputs.write_figures(known, self.findings.as_ref());
            self.told(written);
        }
    }

    fn say(&mut self, text: &str) {
        self.printer.say(text);
    }
}
