//! What a run meets of this machine: signals, events, and the read-back of its guest.

use std::time::Duration;

use nearmetal_change::verify::{Check, CheckKind, Effort, Outcome, judge, observe};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Definition, Hypervisor};
use nearmetal_place::{Placement, Plan};
use nearmetal_run::console::{Console, Sink};
use nearmetal_run::course::{Look, Step, Watch};
use nearmetal_run::event::EventKind;
use nearmetal_run::function::Lent;
use nearmetal_run::handed::{Handed, read_back};
use nearmetal_run::{RunError, charged, function, seed};

use super::events::Events;
use super::signals::Signals;

/// This machine, as a run sees it.
pub(super) struct Here<'a> {
    fs: &'a HostFs,
    plan: &'a Plan,
    placement: &'a Placement,
    given: Given<'a>,
    signals: &'a mut Signals,
    events: &'a mut Events,
    /// Checks of the read-back, and those that told nothing.
    looked: (usize, usize),
    /// Whether its pages could not be seen yet.
    unseen: bool,
    /// Where its console is to go, until it is followed.
    sink: Option<Sink>,
    console: Option<Console>,
}

/// What a guest is given beside its slice, to be read back.
pub(super) struct Given<'a> {
    /// Files.
    pub(super) handed: Vec<Handed<'a>>,
    /// PCI functions.
    pub(super) functions: &'a [Lent],
    /// The disk with the user data, by its name in the guest.
    pub(super) seed: Option<&'a str>,
    /// Whether its QEMU has to be in this job's control group.
    pub(super) charged: bool,
}

impl<'a> Here<'a> {
    /// Of a guest that is about to start.
    pub(super) fn new(
        fs: &'a HostFs,
        plan: &'a Plan,
        placement: &'a Placement,
        given: Given<'a>,
        sink: Option<Sink>,
        (signals, events): (&'a mut Signals, &'a mut Events),
    ) -> Self {
        Self { fs, plan, placement, given, signals, events, looked: (0, 0), unseen: false, sink, console: None }
    }

    /// The guest is gone: what it said last is passed on. What is missing of it, in words.
    pub(super) fn end(self) -> Option<String> {
        self.console.and_then(Console::end)
    }
}

impl Watch for Here<'_> {
    fn step(&mut self, step: Step) {
        let (checks, untold) = self.looked;
        self.events.tell(match step {
            Step::Started => EventKind::Started,
            Step::ReadBack => EventKind::ReadBack { checks, untold },
            Step::Agent => EventKind::Agent,
            Step::CommandStarted => EventKind::CommandStarted,
            Step::Ended => EventKind::CommandEnded,
        });
    }

    fn begun(&mut self, hypervisor: &mut dyn Hypervisor) -> Result<(), RunError> {
        if let Some(sink) = self.sink.take() {
            let live = || hypervisor.domain_xml(&self.placement.guest, Definition::Live);
            self.console = Some(Console::follow(live, sink)?);
        }
        Ok(())
    }

    fn interrupted(&mut self) -> Option<i32> {
        self.signals.seen()
    }

    fn read_back(&mut self, hypervisor: &mut dyn Hypervisor, look: Look) -> Result<(), Vec<String>> {
        let booted = look == Look::Booted;
        // Its memory is all that can be seen later and not sooner.
        if booted && !self.unseen {
            return Ok(());
        }
        // The guest boots meanwhile: it is not asked, and its disk is not read.
        let none = Duration::ZERO;
        let effort = Effort {
            read_in_guest: false,
            agent: None,
            natural: none,
            hook: none,
            transient: true,
            ..Effort::default()
        };
        let observed = observe(self.fs, hypervisor, self.plan, self.placement, &effort);
        let verification = judge(self.plan, self.placement, &observed);
        self.unseen = verification.checks.iter().any(|check| check.kind == CheckKind::Memory && is_untold(check));
        let Given { handed, functions, seed, charged } = &self.given;
        let given = |check: &Check| *charged && charged::is_given(self.fs, check);
        let wrong = verification.checks.iter().filter(|check| is_wrong(check, booted) && !given(check));
        let mut wrong: Vec<String> = wrong
            .map(|check| {
                let found = match &check.outcome {
                    Outcome::CannotTell { why } => format!("nothing that tells ({why})"),
                    _ => check.found.clone().unwrap_or_else(|| "unknown".to_owned()),
                };
                format!("{}: planned {}, found {found}", check.subject, check.planned)
            })
            .collect();
        if !booted {
            // Of each function its driver and its holder.
            let own = handed.len() + 2 * functions.len();
            self.looked = (verification.checks.len() + own, verification.untold());
            wrong.extend(read_back(self.fs, &self.placement.uuid, handed).err().into_iter().flatten());
            wrong.extend(function::read_back(self.fs, &self.placement.uuid, functions).err().into_iter().flatten());
            if *charged {
                self.looked.0 += 1;
                wrong.extend(charged::read_back(self.fs, &self.placement.uuid).err());
            }
            if let Some(target) = seed {
                self.looked.0 += 1;
                let live = hypervisor.domain_xml(&self.placement.guest, Definition::Live);
                let live = live.map_err(|error| error.to_string());
                wrong.extend(live.and_then(|live| seed::in_definition(&live, target)).err());
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

fn is_untold(check: &Check) -> bool {
    matches!(check.outcome, Outcome::CannotTell { .. })
}

/// Whether a guest with this check is not as planned. Where its threads are has to be seen, what libvirt says of it, and where its
/// pages are once it has booted: what cannot be read is no proof. Its disks are read back by their files.
fn is_wrong(check: &Check, booted: bool) -> bool {
    use CheckKind::{Emulator, Iothread, LiveDefinition, Memory, Pool, Running, Vcpu};
    let must_be_seen = match check.kind {
        // The plan counts with pages of runs that may have given them back since; that it has its own says `Memory`.
        Pool => return false,
        Running | Vcpu | Emulator | Iothread | LiveDefinition => true,
        Memory => booted,
        _ => false,
    };
    check.outcome == Outcome::Mismatch || must_be_seen && is_untold(check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_of_threads_and_of_pages_once_the_guest_has_booted_is_no_proof() {
        let check = |kind, outcome| {
            let (subject, planned) = ("x".to_owned(), "y".to_owned());
            Check { subject, kind, planned, found: None, outcome, place: None }
        };
        let untold = || Outcome::CannotTell { why: "the guest has not touched any of it yet".to_owned() };
        for kind in [CheckKind::Running, CheckKind::Vcpu, CheckKind::Emulator, CheckKind::LiveDefinition] {
            assert!(is_wrong(&check(kind, untold()), false), "{kind:?}");
            assert!(!is_wrong(&check(kind, Outcome::Ok), true), "{kind:?}");
        }
        assert!(!is_wrong(&check(CheckKind::Memory, untold()), false));
        assert!(is_wrong(&check(CheckKind::Memory, untold()), true));
        assert!(is_wrong(&check(CheckKind::Memory, Outcome::Mismatch), false));
        assert!(!is_wrong(&check(CheckKind::DiskEngine, untold()), true));
        // Another run gives its pages back while this one starts.
        assert!(!is_wrong(&check(CheckKind::Pool, Outcome::Mismatch), false));
    }
}
