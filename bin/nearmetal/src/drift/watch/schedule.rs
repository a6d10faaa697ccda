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
/// Devices of the host that come and go make a round no more often than this, and tuning of a guest a look.
const BETWEEN: Duration = Duration::from_secs(60);
/// A round ends this long after it began, if all that it waits for are guests to which ever more happens.
const LONGEST_ROUND: Duration = Duration::from_secs(60);

/// One look of so many is a round's, where one waits: what happens goes first, and without end it would be all.
const TURNS: u32 = 3;

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
    /// It has been paused for a period.
    StillPaused,
    /// Everything is looked at.
    Round,
}

/// Looks at one subject that do not take each other's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Next,
    Booted,
    StillPaused,
}

impl Why {
    fn slot(self) -> Slot {
        match self {
            Self::Event(_) | Self::Round => Slot::Next,
            Self::Booted => Slot::Booted,
            Self::StillPaused => Slot::StillPaused,
        }
    }
}

/// A look that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub at: Duration,
    pub why: Why,
    /// When the first event of the burst came.
    first: Duration,
    /// How many looks before have seen a difference.
    pub looks: u8,
}

impl Due {
    fn new(at: Duration, why: Why, first: Duration) -> Self {
        Self { at, why, first, looks: 0 }
    }

    /// Whether it is to come later than its burst would have it.
    fn is_put_off(&self) -> bool {
        self.looks == 0 && self.at > self.first + LONGEST_BURST
    }
}

/// All that is due.
#[derive(Debug)]
pub(super) struct Schedule {
    due: BTreeMap<(Subject, Slot), Due>,
    /// When each guest that was tuned is, or was, looked at for that.
    tuned: BTreeMap<Subject, Duration>,
    /// Of a round, what has not been looked at, and when the round began.
    left: BTreeSet<Subject>,
    round_began: Duration,
    /// How many looks were taken since the last one of a round.
    since_round: u32,
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
            tuned: BTreeMap::new(),
            left: BTreeSet::new(),
            round_began: Duration::ZERO,
            since_round: 0,
            period,
            next_round: None,
            device_round: None,
            last_device_round: None,
        }
    }

    /// Something happened to a guest.
    pub(super) fn heard(&mut self, now: Duration, event: &DomainEvent) {
        let subject = Subject::Guest(event.domain.clone());
        let kind = event.kind;
        if matches!(kind, EventKind::Started | EventKind::Resumed | EventKind::Stopped) {
            self.due.remove(&(subject.clone(), Slot::StillPaused));
        }
        match kind {
            EventKind::Stopped => drop(self.due.remove(&(subject.clone(), Slot::Booted))),
            EventKind::Started | EventKind::Rebooted => {
                let booted = Due::new(now + BOOTED, Why::Booted, now);
                self.due.insert((subject.clone(), Slot::Booted), booted);
            }
            _ => {}
        }
        let rested = self.tuned.get(&subject).filter(|_| kind == EventKind::Tuned).map(|last| *last + BETWEEN);
        let key = (subject.clone(), Slot::Next);
        let fresh = Due::new((now + QUIET).max(rested.unwrap_or_default()), Why::Event(kind), now);
        let due = match self.due.get(&key) {
            // What comes first sees this too.
            Some(planned) if kind == EventKind::Tuned && (fresh.is_put_off() || planned.is_put_off()) => return,
            Some(planned) if planned.is_put_off() => fresh,
            // Events without end must not put off what decides. What was seen of the process before says nothing of this one.
            Some(Due { why: Why::Event(_), looks: 1.., .. }) if kind != EventKind::Started => return,
            Some(burst @ Due { why: Why::Event(first), looks: 0, .. }) => {
                // That it started counts for the whole burst.
                let began = matches!(first, EventKind::Started | EventKind::Rebooted);
                let keeps = began && !matches!(kind, EventKind::Started | EventKind::Stopped);
                let why = if keeps { burst.why } else { Why::Event(kind) };
                Due { at: (now + QUIET).min(burst.first + LONGEST_BURST), why, ..*burst }
            }
            _ => fresh,
        };
        if due.why == Why::Event(EventKind::Tuned) {
            self.tuned.insert(subject, due.at);
        }
        self.due.insert(key, due);
    }

    /// Whether a guest has started since it was last looked at, and will be looked at for that.
    pub(super) fn has_restarted(&self, subject: &Subject) -> bool {
        let next = self.due.get(&(subject.clone(), Slot::Next));
        next.is_some_and(|due| due.looks == 0 && due.why == Why::Event(EventKind::Started))
    }

    /// Whether a guest has started, and its agent need not be up yet.
    pub(super) fn is_booting(&self, subject: &Subject) -> bool {
        self.due.contains_key(&(subject.clone(), Slot::Booted))
    }

    /// A device of the host came, went or changed.
    pub(super) fn devices_changed(&mut self, now: Duration) {
        let rested = self.last_device_round.map_or(now, |last| last + BETWEEN);
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
            let due = Due::new(now, Why::Round, now);
            self.at_the_latest(subject.clone(), due);
        }
        self.tuned.retain(|subject, _| subjects.contains(subject));
        self.left = subjects;
        self.round_began = now;
    }

    /// The next look whose time has come: what happened first, then the rest of a round. Guests to which more happens than can be
    /// looked at leave the round one look in [`TURNS`].
    pub(super) fn take(&mut self, now: Duration) -> Option<(Subject, Due)> {
        let its_turn = self.since_round + 1 >= TURNS;
        let ready = self.due.iter().filter(|(_, due)| due.at <= now);
        let (key, _) = ready.min_by_key(|(_, due)| ((due.why == Why::Round) != its_turn, due.at))?;
        let ((subject, _), due) = self.due.remove_entry(&key.clone())?;
        self.since_round = if due.why == Why::Round { 0 } else { (self.since_round + 1).min(TURNS) };
        Some((subject, due))
    }

    /// A look found a difference: another decides.
    pub(super) fn again(&mut self, now: Duration, subject: Subject, due: Due) {
        let next = Due { at: now + SECOND_LOOK, looks: due.looks.saturating_add(1), ..due };
        self.at_the_latest(subject, next);
    }

    /// A look counts as not taken.
    pub(super) fn put_back(&mut self, now: Duration, subject: Subject, due: Due) {
        self.at_the_latest(subject, Due { at: now, ..due });
    }

    /// A look that is planned already sees the same, unless it was put off.
    fn at_the_latest(&mut self, subject: Subject, due: Due) {
        let slot = due.why.slot();
        let planned = self.due.entry((subject, slot)).or_insert(due);
        if slot == Slot::Next && planned.is_put_off() {
            *planned = due;
        }
    }

    /// A guest that is paused is looked at then, if nothing happens to it.
    pub(super) fn if_still_paused(&mut self, at: Duration, subject: Subject) {
        self.due.insert((subject, Slot::StillPaused), Due::new(at, Why::StillPaused, at));
    }

    /// Whether a round ends without what is left: guests to which ever more happens.
    pub(super) fn gives_up(&mut self, now: Duration) -> bool {
        let is_time = self.gives_up_at().is_some_and(|at| at <= now);
        if is_time {
            self.left.clear();
        }
        is_time
    }

    fn gives_up_at(&self) -> Option<Duration> {
        let waits = self.left.is_empty() || self.due.values().any(|due| due.why == Why::Round);
        (!waits).then_some(self.round_began + LONGEST_ROUND)
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
        let rounds = self.next_round.into_iter().chain(self.device_round).chain(self.gives_up_at());
        self.due.values().map(|due| due.at).chain(rounds).min()
    }
}
