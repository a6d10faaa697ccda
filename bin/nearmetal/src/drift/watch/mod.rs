//! `nearmetal verify --all --watch`: looks at a guest soon after something happened to it, and at everything now and then.
//!
//! [`schedule`] says what is due, [`here`] looks at this machine and writes, [`sources`] hears of libvirt, of the kernel and
//! of signals. What lies between is here, apart from the machine: tests put another [`World`] and another clock in.
//!
//! A guest that starts, is saved or migrates has a process whose threads are not yet, or no more, where they belong. libvirt
//! calls it paused then, so what is paused is left alone; and a difference is told only when a second look finds it too.

mod here;
mod schedule;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nearmetal_change::verify::Verification;
use nearmetal_hypervisor::{DomainEvent, DomainState, EventKind};

pub(crate) use here::keep_watch;
use schedule::{Due, Schedule, Subject, Why};

/// How often is looked whether another nearmetal has ended.
const BUSY: Duration = Duration::from_secs(1);

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
    /// An end is asked for.
    Stop,
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

    /// Waits for the next notice; `None` when the time has come.
    fn wait(&mut self, until: Option<Duration>) -> Option<Notice>;

    /// The process that is changing the machine, if one is.
    fn writer(&mut self) -> Option<u32>;

    /// Everything in force. `None` where that cannot be read, which the world has told.
    fn subjects(&mut self) -> Option<BTreeSet<Subject>>;

    /// What a domain does; `None` where libvirt does not tell.
    fn state(&mut self, domain: &str) -> Option<DomainState>;

    /// Looks at a subject; nothing for one that is not in force.
    fn look(&mut self, subject: &Subject, patience: Patience) -> Option<Vec<Verification>>;

    /// Tells what a look found.
    fn tell(&mut self, why: Why, verifications: &[Verification]);

    /// Writes the figures of all that is known; after a round, with what the doctor finds. `None` where not even what is in
    /// force is known.
    fn write(&mut self, known: Option<&[Verification]>, after_round: bool);

    /// Prose.
    fn say(&mut self, text: &str);
}

/// Looks, tells and writes until an end is asked for; whether something differed when last looked at.
///
/// # Errors
/// Events will not come any more.
fn keep(world: &mut impl World, period: Duration) -> Result<bool, String> {
    let mut watch =
        Watch { schedule: Schedule::new(period), period, known: None, fresh: BTreeMap::new(), paused: BTreeMap::new() };
    let mut waits_for_writer = false;
    loop {
        let now = world.now();
        let until = match watch.schedule.is_due(now) {
            false => watch.schedule.wakes(),
            true if waits_for_writer => Some(now + BUSY),
            true => Some(now),
        };
        match world.wait(until) {
            Some(Notice::Stop) => return Ok(watch.differs()),
            Some(Notice::Never(why)) => return Err(why),
            Some(notice) => {
                watch.hear(world, notice);
                continue;
            }
            None => {}
        }
        if !watch.schedule.is_due(world.now()) {
            continue;
        }
        if let Some(pid) = world.writer() {
            if !std::mem::replace(&mut waits_for_writer, true) {
                world.say(&format!(
                    "another nearmetal is changing this machine (process {pid}): nothing is checked meanwhile"
                ));
            }
            continue;
        }
        if std::mem::replace(&mut waits_for_writer, false) {
            // Other plans may be in force now.
            watch.schedule.everything(world.now());
        }
        watch.step(world);
    }
}

struct Watch {
    schedule: Schedule,
    period: Duration,
    /// What was last found; `None` until everything was looked at once: half of it would be taken for the whole.
    known: Option<BTreeMap<Subject, Vec<Verification>>>,
    /// What was found while nothing is known.
    fresh: BTreeMap<Subject, Vec<Verification>>,
    /// Guests that are paused, and since when that is known.
    paused: BTreeMap<String, Duration>,
}

impl Watch {
    fn hear(&mut self, world: &mut impl World, notice: Notice) {
        let now = world.now();
        match notice {
            Notice::Domain(event) => {
                match event.kind {
                    EventKind::Suspended => drop(self.paused.entry(event.domain.clone()).or_insert(now)),
                    _ => drop(self.paused.remove(&event.domain)),
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
            Notice::Stop | Notice::Never(_) => {}
        }
    }

    /// Begins a round, or takes one look.
    fn step(&mut self, world: &mut impl World) {
        let now = world.now();
        if self.schedule.begins_round(now) {
            match world.subjects() {
                None => world.write(None, false),
                Some(subjects) => {
                    self.found().retain(|subject, _| subjects.contains(subject));
                    if subjects.is_empty() {
                        self.round_ended(world);
                    }
                    self.schedule.round_of(now, subjects);
                }
            }
            return;
        }
        if let Some((subject, due)) = self.schedule.take(now) {
            self.look(world, subject, due);
        }
    }

    fn look(&mut self, world: &mut impl World, subject: Subject, due: Due) {
        if let Subject::Guest(domain) = &subject {
            if self.is_left_alone(world, domain, due.why) {
                self.looked(world, &subject, due.why, false);
                return;
            }
        }
        let patience = match due.why {
            Why::Event(EventKind::Started | EventKind::Rebooted) => Patience::JustStarted,
            _ => Patience::Usual,
        };
        let Some(verifications) = world.look(&subject, patience) else {
            self.found().remove(&subject);
            self.looked(world, &subject, due.why, false);
            return;
        };
        if !due.is_second && mismatches(&verifications) > 0 {
            self.schedule.again(world.now(), subject, due);
            return;
        }
        world.tell(due.why, &verifications);
        self.found().insert(subject.clone(), verifications);
        if matches!(due.why, Why::Event(EventKind::Started | EventKind::Rebooted)) {
            self.schedule.when_booted(world.now(), subject.clone());
        }
        self.looked(world, &subject, due.why, true);
    }

    /// A guest that is neither running nor off is between two states, and an event will say when it has arrived. A round
    /// takes one that has stayed so for a whole period as one that has arrived.
    fn is_left_alone(&mut self, world: &mut impl World, domain: &str, why: Why) -> bool {
        let between = match world.state(domain) {
            None => false,
            Some(state) => !state.is_off() && !matches!(state, DomainState::Running | DomainState::Blocked),
        };
        if !between {
            self.paused.remove(domain);
            return false;
        }
        let now = world.now();
        let since = *self.paused.entry(domain.to_owned()).or_insert(now);
        why != Why::Round || now.saturating_sub(since) < self.period
    }

    fn looked(&mut self, world: &mut impl World, subject: &Subject, why: Why, is_new: bool) {
        if self.schedule.done(subject) {
            self.round_ended(world);
        } else if is_new && why != Why::Round {
            if let Some(known) = &self.known {
                world.write(Some(&all(known)), false);
            }
        }
    }

    fn round_ended(&mut self, world: &mut impl World) {
        let known = self.known.get_or_insert_with(|| std::mem::take(&mut self.fresh));
        world.write(Some(&all(known)), true);
    }

    fn found(&mut self) -> &mut BTreeMap<Subject, Vec<Verification>> {
        self.known.as_mut().unwrap_or(&mut self.fresh)
    }

    fn differs(&self) -> bool {
        self.known.as_ref().unwrap_or(&self.fresh).values().any(|found| mismatches(found) > 0)
    }
}

fn all(known: &BTreeMap<Subject, Vec<Verification>>) -> Vec<Verification> {
    known.values().flatten().cloned().collect()
}

fn mismatches(verifications: &[Verification]) -> usize {
    verifications.iter().map(Verification::mismatches).sum()
}
