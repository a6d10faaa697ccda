//! What is to be looked at, and when: pure, from events and the time. Times are counted from the beginning of the watch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nearmetal_hypervisor::{DomainEvent, EventKind};

/// Events come in bursts (a start is `started` and `resumed`): a look waits until none came for so long …
const QUIET: Duration = Duration::from_millis(500);
/// … and no longer than this after the first.
const LONGEST_BURST: Duration = Duration::from_millis(1500);
/// When a difference is looked at again before it is told: a guest between two states shows some for a moment.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// When a guest that has started is looked at again, with its agent.
const BOOTED: Duration = Duration::from_secs(60);
/// Devices of the host that come and go make a round no more often than this.
const BETWEEN_DEVICE_ROUNDS: Duration = Duration::from_secs(60);

/// What is looked at as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// A guest beside its plan.
    Guest(String),
    /// Everything that `doctor --fix` and `device` changed.
    Settings,
}

/// Why it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Something happened to it.
    Event(EventKind),
    /// It has had the time to boot.
    Booted,
    /// Everything is looked at.
    Round,
}

/// A look that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub at: Duration,
    pub why: Why,
    /// When the first event of the burst came.
    first: Duration,
    /// Whether a difference was seen, and this look decides.
    pub is_second: bool,
}

/// All that is due.
#[derive(Debug)]
pub(super) struct Schedule {
    due: BTreeMap<Subject, Due>,
    /// Of a round, what has not been looked at.
    left: BTreeSet<Subject>,
    period: Duration,
    /// `None` until there is a reason to begin.
    next_round: Option<Duration>,
    /// When devices make the next one, and made the last.
    device_round: Option<Duration>,
    last_device_round: Option<Duration>,
}

impl Schedule {
    /// Nothing is due; rounds follow each other after `period`.
    pub(super) fn new(period: Duration) -> Self {
        Self {
            due: BTreeMap::new(),
            left: BTreeSet::new(),
            period,
            next_round: None,
            device_round: None,
            last_device_round: None,
        }
    }

    /// Something happened to a guest.
    pub(super) fn heard(&mut self, now: Duration, event: &DomainEvent) {
        // Whether a pause is a save, a wish or an error is not told: rounds find what stays paused.
        if event.kind == EventKind::Suspended {
            return;
        }
        let subject = Subject::Guest(event.domain.clone());
        let burst = self.due.get(&subject).filter(|due| matches!(due.why, Why::Event(_)));
        let due = match burst {
            // Events without end must not put off what decides. What was seen of the process before says nothing of this one.
            Some(due) if due.is_second && event.kind != EventKind::Started => return,
            Some(due) if !due.is_second => {
                let why = match due.why {
                    // That it started counts for the whole burst: its agent is not asked.
                    Why::Event(EventKind::Started) if event.kind == EventKind::Resumed => due.why,
                    _ => Why::Event(event.kind),
                };
                Due { at: (now + QUIET).min(due.first + LONGEST_BURST), why, ..*due }
            }
            _ => Due { at: now + QUIET, why: Why::Event(event.kind), first: now, is_second: false },
        };
        self.due.insert(subject, due);
    }

    /// A device of the host came, went or changed.
    pub(super) fn devices_changed(&mut self, now: Duration) {
        let rested = self.last_device_round.map_or(now, |last| last + BETWEEN_DEVICE_ROUNDS);
        self.device_round.get_or_insert((now + QUIET).max(rested));
    }

    /// Everything is to be looked at soon.
    pub(super) fn everything(&mut self, now: Duration) {
        let at = now + QUIET;
        self.next_round = Some(self.next_round.map_or(at, |next| next.min(at)));
    }

    /// Whether it is time for a round, which then counts as begun.
    pub(super) fn begins_round(&mut self, now: Duration) -> bool {
        let by_devices = self.device_round.is_some_and(|at| at <= now);
        if by_devices {
            (self.device_round, self.last_device_round) = (None, Some(now));
        }
        let begins = by_devices || self.next_round.is_some_and(|next| next <= now);
        if begins {
            self.next_round = Some(now + self.period);
        }
        begins
    }

    /// What a round has to look at.
    pub(super) fn round_of(&mut self, now: Duration, subjects: BTreeSet<Subject>) {
        for subject in &subjects {
            // A round does not wait for a guest to boot.
            let due = Due { at: now, why: Why::Round, first: now, is_second: false };
            let planned = self.due.entry(subject.clone()).or_insert(due);
            if planned.why == Why::Booted {
                *planned = due;
            }
        }
        self.left = subjects;
    }

    /// The next look whose time has come: what happened first, then the rest of a round.
    pub(super) fn take(&mut self, now: Duration) -> Option<(Subject, Due)> {
        let ready = self.due.iter().filter(|(_, due)| due.at <= now);
        let (subject, _) = ready.min_by_key(|(_, due)| (due.why == Why::Round, due.at))?;
        self.due.remove_entry(&subject.clone())
    }

    /// A look found a difference: another decides.
    pub(super) fn again(&mut self, now: Duration, subject: Subject, due: Due) {
        self.due.entry(subject).or_insert(Due { at: now + SECOND_LOOK, is_second: true, ..due });
    }

    /// A guest was found as it has started.
    pub(super) fn when_booted(&mut self, now: Duration, subject: Subject) {
        self.due.entry(subject).or_insert(Due { at: now + BOOTED, why: Why::Booted, first: now, is_second: false });
    }

    /// A subject was looked at, or left alone; whether that was the last of a round.
    pub(super) fn done(&mut self, subject: &Subject) -> bool {
        self.left.remove(subject) && self.left.is_empty()
    }

    /// Whether something is due now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.wakes().is_some_and(|at| at <= now)
    }

    /// When something is due next.
    pub(super) fn wakes(&self) -> Option<Duration> {
        self.due.values().map(|due| due.at).chain(self.next_round).chain(self.device_round).min()
    }
}
