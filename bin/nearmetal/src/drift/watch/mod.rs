//! `nearmetal verify --all --watch`: looks at a guest soon after something happened to it, and at everything now and then.
//!
//! [`schedule`] says what is due, [`here`] looks at this machine and writes, [`sources`] hears of libvirt, of the kernel and
//! of signals. What lies between is here, apart from the machine: tests put another [`World`] and another clock in.
//!
//! A guest that starts, is saved or migrates has a process whose threads are not yet, or no more, where they belong. libvirt
//! calls it paused then and says why, so that it is left alone; and a difference is told only when a second look finds the
//! same.

mod here;
mod mailbox;
mod schedule;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nearmetal_change::journal::AtWork;
use nearmetal_change::verify::{CheckKind, Outcome, Verification};
use nearmetal_hypervisor::{DomainEvent, DomainState, EventKind, PauseReason};
use nearmetal_rules::Examination;

pub(crate) use here::keep_watch;
use schedule::{Due, Schedule, Subject, Why};

/// How often is looked whether another nearmetal has ended.
const BUSY: Duration = Duration::from_secs(1);

/// A difference that only the last of so many looks saw is told as unknown: another event, or a round, decides.
const MOST_LOOKS: u8 = 3;

/// What reaches the watch.
#[derive(Debug)]
enum Notice {
    /// libvirt told of a domain.
    Domain(DomainEvent),
    /// libvirt is connected from now on; what happened before was missed.
    Connected,
    /// libvirt is not reached, or no more. Why, and when it is tried again.
    Lost(String),
    /// libvirt will never be reached again from here, and why.
    Never(String),
    /// A device of the host came, went or changed.
    Devices,
    /// Devices of the host are not heard of, or no more, and why.
    Deaf(String),
    /// What the doctor finds; `None` where it could not look at everything.
    Findings(Option<Box<Examination>>),
    /// An end is asked for.
    Stop,
}

/// Why the watch ends.
#[derive(Debug)]
enum Ending {
    /// An end is asked for.
    Stop,
    /// libvirt will never be reached again from here, and why.
    Never(String),
}

/// How the watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Something differed when last looked at.
    Differs,
    /// Everything was looked at, and nothing differed.
    Nothing,
    /// Not everything could be looked at.
    Unknown,
}

/// How hard a look tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// The guest's agent is not up yet.
    JustStarted,
    /// It may be asked.
    Usual,
}

/// What the watch does to the machine.
trait World {
    /// Time since the watch began.
    fn now(&self) -> Duration;

    /// Waits for notices and gives all that came; none when the time has come.
    fn wait(&mut self, until: Option<Duration>) -> Vec<Notice>;

    /// Another nearmetal that is at work, which looks would disturb or misread.
    ///
    /// # Errors
    /// That cannot be told, and why.
    fn at_work(&mut self) -> Result<Option<AtWork>, String>;

    /// Whether a guest has a plan in force; true where that cannot be read.
    fn is_in_force(&mut self, domain: &str) -> bool;

    /// Everything in force. `None` where that cannot be read, which the world has told.
    fn subjects(&mut self) -> Option<BTreeSet<Subject>>;

    /// What a domain does and, if it is paused, why; `None` where libvirt does not tell.
    fn state(&mut self, domain: &str) -> Option<(DomainState, Option<PauseReason>)>;

    /// Looks at a subject; nothing for one that is not in force.
    fn look(&mut self, subject: &Subject, patience: Patience) -> Option<Vec<Verification>>;

    /// Tells what a look found.
    fn tell(&mut self, why: Why, verifications: &[Verification]);

    /// Writes the figures of all that is known, and after a round has the doctor look. `None` where not even what is in force
    /// is known. Whether what is in force was read back to its end: not where libvirt does not answer.
    fn write(&mut self, known: Option<&[Verification]>, after_round: bool) -> bool;

    /// What the doctor found, for the figures.
    fn examined(&mut self, found: Option<Box<Examination>>);

    /// Prose.
    fn say(&mut self, text: &str);
}

/// Looks, tells and writes until an end is asked for.
///
/// # Errors
/// Events will not come any more.
fn keep(world: &mut impl World, period: Duration) -> Result<Ended, String> {
    let mut watch = Watch {
        schedule: Schedule::new(period),
        period,
        known: None,
        wanted: BTreeSet::new(),
        fresh: BTreeMap::new(),
        is_complete: false,
        suspected: BTreeMap::new(),
        ending: None,
        paused: BTreeMap::new(),
    };
    // Why nothing is looked at, as it was told, and when that was last asked.
    let mut held_back: Option<(String, Duration)> = None;
    loop {
        let now = world.now();
        let asks_again = held_back.as_ref().map_or(now, |(_, asked)| *asked + BUSY);
        let until = if watch.schedule.is_due(now) { Some(asks_again) } else { watch.schedule.wakes() };
        watch.hear(world, until);
        match watch.ending.take() {
            Some(Ending::Stop) => return Ok(watch.ended()),
            Some(Ending::Never(why)) => return Err(why),
            None => {}
        }
        // What is due is looked at even if ever more is heard.
        let now = world.now();
        if !watch.schedule.is_due(now) || now < asks_again {
            continue;
        }
        let holds_back = match world.at_work() {
            Ok(None) => None,
            Ok(Some(other)) => Some(format!("{other}: nothing is checked meanwhile")),
            Err(error) => Some(format!(
                "cannot tell whether another nearmetal is at work on this machine: {error}; nothing is checked until that \
                 can be read"
            )),
        };
        if let Some(text) = holds_back {
            if held_back.as_ref().is_none_or(|(told, _)| *told != text) {
                world.say(&text);
            }
            held_back = Some((text, now));
            continue;
        }
        if held_back.take().is_some() {
            // Other plans may be in force now.
            watch.schedule.everything(world.now());
        }
        watch.step(world);
    }
}

/// A difference, by what was looked at: guest or setting, kind and subject.
type Difference = (String, CheckKind, String);

struct Watch {
    schedule: Schedule,
    period: Duration,
    /// What was last found; `None` until everything was looked at once: half of it would be taken for the whole.
    known: Option<BTreeMap<Subject, Vec<Verification>>>,
    /// What there was to look at in the last round, without what turned out not to be in force any more.
    wanted: BTreeSet<Subject>,
    /// What was found while nothing is known.
    fresh: BTreeMap<Subject, Vec<Verification>>,
    /// Whether all could be read back when figures were last written.
    is_complete: bool,
    /// What the last look at a subject saw, where another is to decide.
    suspected: BTreeMap<Subject, Vec<Difference>>,
    /// Why the watch ends, once that was heard.
    ending: Option<Ending>,
    /// Guests that somebody paused, and since when that is known.
    paused: BTreeMap<String, Duration>,
}

impl Watch {
    /// Hears all that has come; waits for something until then, unless the watch is about to end.
    fn hear(&mut self, world: &mut impl World, until: Option<Duration>) {
        if self.ending.is_none() {
            for notice in world.wait(until) {
                self.heard(world, notice);
            }
        }
    }

    fn heard(&mut self, world: &mut impl World, notice: Notice) {
        let now = world.now();
        match notice {
            Notice::Domain(event) => {
                if !world.is_in_force(&event.domain) {
                    return;
                }
                match event.kind {
                    EventKind::Suspended => drop(self.paused.entry(event.domain.clone()).or_insert(now)),
                    EventKind::Started | EventKind::Resumed | EventKind::Stopped => {
                        self.paused.remove(&event.domain);
                    }
                    _ => {}
                }
                self.schedule.heard(now, &event);
            }
            Notice::Connected => self.schedule.everything(now),
            Notice::Lost(text) => {
                world.say(&text);
                // The kernel can be read without libvirt; once, since the next connection comes with a round of its own.
                if self.known.is_none() {
                    self.schedule.everything(now);
                }
            }
            Notice::Devices => self.schedule.devices_changed(now),
            Notice::Deaf(text) => world.say(&text),
            Notice::Findings(found) => {
                // What another nearmetal does may be all that was found: what was found before stands until the next look.
                if !matches!(world.at_work(), Ok(None)) {
                    return;
                }
                world.examined(found);
                if self.known.is_some() {
                    self.write(world, false);
                }
            }
            Notice::Stop => drop(self.ending.get_or_insert(Ending::Stop)),
            Notice::Never(why) => drop(self.ending.get_or_insert(Ending::Never(why))),
        }
    }

    /// Begins a round, or takes one look.
    fn step(&mut self, world: &mut impl World) {
        let now = world.now();
        if self.schedule.begins_round(now) {
            match world.subjects() {
                None => self.is_complete = world.write(None, false),
                Some(subjects) => {
                    self.paused.retain(|domain, _| subjects.contains(&Subject::Guest(domain.clone())));
                    self.found().retain(|subject, _| subjects.contains(subject));
                    self.wanted.clone_from(&subjects);
                    if subjects.is_empty() {
                        self.round_ended(world);
                    }
                    self.schedule.round_of(now, subjects);
                }
            }
            return;
        }
        if self.schedule.gives_up(now) {
            self.round_ended(world);
        } else if let Some((subject, due)) = self.schedule.take(now) {
            self.look(world, subject, due);
        }
    }

    fn look(&mut self, world: &mut impl World, subject: Subject, due: Due) {
        let before = self.suspected.remove(&subject).filter(|_| due.looks > 0).unwrap_or_default();
        if self.is_left_alone(world, &subject) {
            self.looked(world, &subject, due.why, false);
            return;
        }
        let patience = if self.schedule.is_booting(&subject) { Patience::JustStarted } else { Patience::Usual };
        let Some(mut verifications) = world.look(&subject, patience) else {
            self.found().remove(&subject);
            self.wanted.remove(&subject);
            self.looked(world, &subject, due.why, false);
            return;
        };
        // A look may have begun at one process of a guest and ended at the next.
        let now = world.now();
        self.hear(world, Some(now));
        if self.schedule.has_restarted(&subject) {
            return;
        }
        // What has begun meanwhile may be all that was seen.
        if !matches!(world.at_work(), Ok(None)) {
            self.schedule.put_back(world.now(), subject, due);
            return;
        }
        if self.is_left_alone(world, &subject) {
            self.looked(world, &subject, due.why, false);
            return;
        }
        let seen = differences(&verifications);
        if due.looks + 1 < MOST_LOOKS && seen.iter().any(|difference| !before.contains(difference)) {
            self.suspected.insert(subject.clone(), seen);
            self.schedule.again(world.now(), subject, due);
            return;
        }
        doubt(&mut verifications, &before);
        world.tell(due.why, &verifications);
        self.found().insert(subject.clone(), verifications);
        self.looked(world, &subject, due.why, true);
    }

    /// A guest that is neither running nor off is left alone while libvirt is at work on it, however long: an event will say
    /// when it has arrived. One that somebody paused has arrived once it has stayed so for a period; one that failed, at once.
    fn is_left_alone(&mut self, world: &mut impl World, subject: &Subject) -> bool {
        let Subject::Guest(domain) = subject else { return false };
        let Some((state, pause)) = world.state(domain) else { return false };
        if state.is_off() || matches!(state, DomainState::Running | DomainState::Blocked) {
            self.paused.remove(domain);
            return false;
        }
        if state == DomainState::Crashed || pause.is_some_and(PauseReason::is_failure) {
            return false;
        }
        if pause.is_some_and(PauseReason::is_passing) {
            self.paused.remove(domain);
            return true;
        }
        let now = world.now();
        let until = *self.paused.entry(domain.clone()).or_insert(now) + self.period;
        if now < until {
            self.schedule.if_still_paused(until, subject.clone());
        }
        now < until
    }

    fn looked(&mut self, world: &mut impl World, subject: &Subject, why: Why, is_new: bool) {
        if self.schedule.done(subject) {
            self.round_ended(world);
        } else if is_new && why != Why::Round {
            self.write(world, false);
        }
    }

    fn round_ended(&mut self, world: &mut impl World) {
        self.known.get_or_insert_with(|| std::mem::take(&mut self.fresh));
        self.write(world, true);
    }

    fn write(&mut self, world: &mut impl World, after_round: bool) {
        if let Some(known) = &self.known {
            self.is_complete = world.write(Some(&all(known)), after_round);
        }
    }

    fn found(&mut self) -> &mut BTreeMap<Subject, Vec<Verification>> {
        self.known.as_mut().unwrap_or(&mut self.fresh)
    }

    fn ended(&self) -> Ended {
        match &self.known {
            Some(known) if self.is_complete => {
                let differs = known.values().flatten().any(|found| found.mismatches() > 0);
                // One that was left alone, or given up, was never looked at.
                let is_all = self.wanted.iter().all(|subject| known.contains_key(subject));
                match (differs, is_all) {
                    (true, _) => Ended::Differs,
                    (false, true) => Ended::Nothing,
                    (false, false) => Ended::Unknown,
                }
            }
            _ => Ended::Unknown,
        }
    }
}

fn all(known: &BTreeMap<Subject, Vec<Verification>>) -> Vec<Verification> {
    known.values().flatten().cloned().collect()
}

fn differences(verifications: &[Verification]) -> Vec<Difference> {
    let differ = verifications.iter().flat_map(|found| found.checks.iter().map(move |check| (found, check)));
    differ
        .filter(|(_, check)| check.outcome == Outcome::Mismatch)
        .map(|(found, check)| (found.guest.clone(), check.kind, check.subject.clone()))
        .collect()
}

/// What an earlier look did not see is not known to differ.
fn doubt(verifications: &mut [Verification], before: &[Difference]) {
    for found in verifications {
        for check in found.checks.iter_mut().filter(|check| check.outcome == Outcome::Mismatch) {
            if !before.contains(&(found.guest.clone(), check.kind, check.subject.clone())) {
                let why = "it changes from one look to the next".to_owned();
                check.outcome = Outcome::CannotTell { why };
            }
        }
    }
}
