//! Who fetches from whom. It runs beside the source, hears from every host ten times a second, and decides alone.
//!
//! - **The chain** is the hosts in order, each fetching from the one before it; the first from the source.
//! - **Silent hosts** are spliced out. They count as silent only if somebody else was heard meanwhile: when nobody is
//!   heard, it is our own link; and soon only if the host behind them hears nothing either. One that is heard again
//!   fetches from the tail.
//! - **Slow hosts** step aside and fetch from the tail, whose uplink is idle. Slow is a rate, half of what the predecessor
//!   itself gets, two windows long; never a lag alone, since a lag stays after its cause has gone.
//! - **Hosts that reach no port** get their pieces through ssh.

use std::collections::VecDeque;
use std::time::Duration;

use super::SILENT;
use crate::control::{Doing, Outcome, Status};

/// Others must have been heard for this long since a host was last heard, for its silence to be its own.
const HEARD_SINCE: Duration = Duration::from_millis(400);
/// Silence that needs no witness. Signs of life share a port with pieces, and one that is lost waits for TCP to send it
/// again; so shorter silence counts only if the host behind it hears nothing either.
const SILENT_ALONE: Duration = Duration::from_secs(3);
/// A host that stays silent for so long is lost.
const LOST: Duration = Duration::from_secs(10);
/// As [`LOST`], while nobody at all is heard.
const ALL_LOST: Duration = Duration::from_secs(30);
/// A host that could not reach its predecessor's port for so long is served through ssh.
const UNREACHABLE: Duration = Duration::from_secs(3);
/// As [`UNREACHABLE`], if it once reached it.
const UNREACHABLE_NOW: Duration = Duration::from_secs(15);
/// Rates are compared over such a window.
const WINDOW: Duration = Duration::from_millis(750);
/// Pieces that a predecessor must have got in a window before its successor is compared with it.
const COMPARABLE: u64 = 8;
/// Windows in which a host was slow before it steps aside.
const STRIKES: u32 = 2;
/// Hosts that are not ready, and were not heard for so long, are left out.
const STARTING: Duration = Duration::from_secs(60);

/// Whom a host fetches from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// The source's data port.
    Source,
    /// Another host's.
    Host(usize),
    /// The source, through ssh.
    Ssh,
}

/// What the driver is to do, or to tell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Directive {
    /// Tell a host whom to fetch from.
    Order { host: usize, generation: u64, from: From },
    /// A host was silent and is spliced out.
    Silent { host: usize, for_: Duration },
    /// It is heard again.
    Back { host: usize },
    /// It is slow and steps aside: pieces that it got in the window, and that its predecessor got.
    Aside { host: usize, got: u64, predecessor: u64 },
    /// It reaches no port and is served through ssh.
    OverSsh { host: usize },
    /// It does not get the image; end its ssh.
    Lost { host: usize, reason: String },
    /// Everything has ended.
    Finish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Active,
    Silent,
    Stored,
    Gone,
}

/// How a host takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// In the chain.
    Chain,
    /// On the source's own machine: fetches from the source, and nobody from it.
    Leaf,
}

#[derive(Debug)]
struct Member {
    phase: Phase,
    part: Part,
    heard: Duration,
    have: u64,
    doing: Doing,
    /// Whether it hears nothing of the one before it.
    waits: bool,
    aside: bool,
    ssh: bool,
    from: Option<From>,
    generation: u64,
    ordered: Duration,
    window_have: u64,
    strikes: u32,
}

/// The state of a transfer.
#[derive(Debug)]
pub(crate) struct Coordinator {
    members: Vec<Member>,
    /// Members in the order of the chain.
    order: Vec<usize>,
    speeds: Vec<Option<u64>>,
    generation: u64,
    begun: bool,
    finished: bool,
    started: Duration,
    /// When nobody was heard for the last time.
    blind: Duration,
    window: Duration,
    out: VecDeque<Directive>,
}

impl Coordinator {
    /// Hosts in the order of the fleet. `star`: all are served through ssh.
    pub(crate) fn new(hosts: usize, star: bool, now: Duration) -> Self {
        let member = |_| Member {
            phase: Phase::Starting,
            part: Part::Chain,
            heard: now,
            have: 0,
            doing: Doing::Waiting,
            waits: false,
            aside: false,
            ssh: star,
            from: None,
            generation: 0,
            ordered: now,
            window_have: 0,
            strikes: 0,
        };
        Self {
            members: (0..hosts).map(member).collect(),
            order: (0..hosts).collect(),
            speeds: vec![None; hosts],
            generation: 0,
            begun: false,
            finished: false,
            started: now,
            blind: now,
            window: now,
            out: VecDeque::new(),
        }
    }

    /// What to do next, if anything.
    pub(crate) fn poll(&mut self) -> Option<Directive> {
        self.out.pop_front()
    }

    /// A host can take the image. `speed`: of its port in Mbit/s, if that is known.
    pub(crate) fn ready(&mut self, host: usize, part: Part, speed: Option<u64>, now: Duration) {
        let Some(member) = self.members.get_mut(host).filter(|member| member.phase == Phase::Starting) else { return };
        member.phase = Phase::Ready;
        member.part = part;
        member.heard = now;
        self.speeds[host] = speed;
        self.begin_if_all_are_ready(now);
    }

    /// A host told how far it is.
    pub(crate) fn status(&mut self, host: usize, status: &Status, now: Duration) {
        let Some(member) = self.members.get_mut(host) else { return };
        member.heard = now;
        member.have = status.have;
        member.doing = status.doing;
        member.waits = !status.without.is_zero() && status.generation == member.generation;
        match member.phase {
            Phase::Silent => {
                member.phase = Phase::Active;
                member.aside = true;
                // It may still hang on to a predecessor of old: it gets an order in any case.
                member.from = None;
                self.out.push_back(Directive::Back { host });
                self.splice(now);
            }
            Phase::Active if !member.ssh && status.generation == member.generation => {
                let limit = if status.reached { UNREACHABLE_NOW } else { UNREACHABLE };
                if status.without >= limit && self.upstream_is_heard(host, now) {
                    self.members[host].ssh = true;
                    self.out.push_back(Directive::OverSsh { host });
                    self.splice(now);
                }
            }
            _ => {}
        }
    }

    /// A host has the image, or never will.
    pub(crate) fn ended(&mut self, host: usize, outcome: &Outcome, now: Duration) {
        let Some(member) = self.members.get_mut(host) else { return };
        member.heard = now;
        // A host that had it may find it damaged.
        let again = matches!((member.phase, outcome), (Phase::Stored, Outcome::Failed { .. }));
        if matches!(member.phase, Phase::Stored | Phase::Gone) && !again {
            return;
        }
        member.phase = match outcome {
            Outcome::Stored { .. } => Phase::Stored,
            Outcome::Failed { .. } => Phase::Gone,
        };
        self.after_an_end(now);
    }

    /// A host's ssh has ended.
    pub(crate) fn gone(&mut self, host: usize, reason: &str, now: Duration) {
        let Some(member) = self.members.get_mut(host) else { return };
        let stored = member.phase == Phase::Stored;
        if member.phase != Phase::Gone {
            member.phase = Phase::Gone;
            if !stored {
                self.out.push_back(Directive::Lost { host, reason: reason.to_owned() });
            }
            self.after_an_end(now);
        }
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, now: Duration) {
        if !self.begun {
            // One that reads what it has says so.
            let quiet = |member: &Member| now.saturating_sub(member.heard.max(self.started)) >= STARTING;
            let late: Vec<usize> = (0..self.members.len())
                .filter(|host| self.members[*host].phase == Phase::Starting && quiet(&self.members[*host]))
                .collect();
            for host in late {
                self.gone(host, &format!("it was not ready, and said nothing for {} s", STARTING.as_secs()), now);
            }
            return;
        }
        self.find_silent(now);
        if now.saturating_sub(self.window) >= WINDOW {
            self.find_slow(now);
            self.window = now;
            self.members.iter_mut().for_each(|member| member.window_have = member.have);
        }
    }

    fn begin_if_all_are_ready(&mut self, now: Duration) {
        if self.begun || self.members.iter().any(|member| member.phase == Phase::Starting) {
            return;
        }
        self.begun = true;
        self.window = now;
        // A slow port at the head would slow all, and its rate could be compared with nobody's. Those that do not say
        // stay among the fastest.
        let fastest = self.speeds.iter().flatten().copied().max().unwrap_or(0);
        let speeds = self.speeds.clone();
        self.order.sort_by_key(|host| std::cmp::Reverse(speeds[*host].unwrap_or(fastest)));
        for member in self.members.iter_mut().filter(|member| member.phase == Phase::Ready) {
            member.phase = Phase::Active;
            member.heard = now;
        }
        self.splice(now);
        self.finish_if_all_ended();
    }

    fn after_an_end(&mut self, now: Duration) {
        if self.begun {
            self.splice(now);
            self.finish_if_all_ended();
        } else {
            self.begin_if_all_are_ready(now);
        }
    }

    fn finish_if_all_ended(&mut self) {
        let ended = |member: &Member| matches!(member.phase, Phase::Stored | Phase::Gone);
        if !self.finished && self.members.iter().all(ended) {
            self.finished = true;
            self.out.push_back(Directive::Finish);
        }
    }

    fn upstream_is_heard(&self, host: usize, now: Duration) -> bool {
        match self.members[host].from {
            Some(From::Host(other)) => now.saturating_sub(self.members[other].heard) < SILENT,
            Some(From::Source) => true,
            Some(From::Ssh) | None => false,
        }
    }

    fn find_silent(&mut self, now: Duration) {
        let heard_last = |skip: usize, members: &[Member]| {
            let others = members.iter().enumerate().filter(|(at, member)| *at != skip && member.phase != Phase::Gone);
            others.map(|(_, member)| member.heard).max()
        };
        let mut changed = false;
        let newest = self.members.iter().filter(|member| member.phase != Phase::Gone).map(|member| member.heard).max();
        if newest.is_some_and(|newest| now.saturating_sub(newest) > HEARD_SINCE) {
            self.blind = now;
        }
        for host in 0..self.members.len() {
            let member = &self.members[host];
            let all_silence = now.saturating_sub(member.heard);
            // While nobody was heard, nothing was learnt of anybody.
            let silence = now.saturating_sub(member.heard.max(self.blind));
            let others = heard_last(host, &self.members);
            let its_own = others.is_some_and(|others| others >= member.heard + HEARD_SINCE);
            let witness = self.members.iter().any(|other| other.waits && other.from == Some(From::Host(host)));
            let limit = if witness { SILENT } else { SILENT_ALONE };
            match member.phase {
                Phase::Active if silence > limit && its_own => {
                    self.members[host].phase = Phase::Silent;
                    self.out.push_back(Directive::Silent { host, for_: silence });
                    changed = true;
                }
                Phase::Active | Phase::Silent if its_own && silence > LOST || all_silence > ALL_LOST => {
                    self.members[host].phase = Phase::Gone;
                    let reason = format!("it was silent for {} s", all_silence.as_secs());
                    self.out.push_back(Directive::Lost { host, reason });
                    changed = true;
                }
                // It serves no more, and has what it needs.
                Phase::Stored if silence > limit && its_own => {
                    changed |= self.members.iter().any(|member| member.from == Some(From::Host(host)));
                }
                _ => {}
            }
        }
        if changed {
            self.splice(now);
            self.finish_if_all_ended();
        }
    }

    fn find_slow(&mut self, now: Duration) {
        let mut changed = false;
        for host in self.order.clone() {
            let Some(From::Host(above)) = self.members[host].from else { continue };
            let (member, upper) = (&self.members[host], &self.members[above]);
            let comparable = member.phase == Phase::Active
                && upper.phase == Phase::Active
                && !member.aside
                && !member.ssh
                && member.doing == Doing::Fetching
                && upper.doing == Doing::Fetching
                && member.ordered <= self.window;
            let got = member.have.saturating_sub(member.window_have);
            let predecessor = upper.have.saturating_sub(upper.window_have);
            // A host that has more already is not slow when it gets less.
            let behind = upper.have.saturating_sub(member.have) > COMPARABLE;
            if !comparable {
                continue;
            }
            let slow = predecessor >= COMPARABLE && got * 2 < predecessor && behind;
            let member = &mut self.members[host];
            member.strikes = if slow { member.strikes + 1 } else { 0 };
            if member.strikes >= STRIKES {
                member.aside = true;
                member.strikes = 0;
                self.out.push_back(Directive::Aside { host, got, predecessor });
                changed = true;
            }
        }
        if changed {
            self.splice(now);
        }
    }

    /// Gives an order to every host whose predecessor is another than before.
    fn splice(&mut self, now: Duration) {
        if !self.begun || self.finished {
            return;
        }
        let newest = self.members.iter().map(|member| member.heard).max().unwrap_or(now);
        let waited_for = |host: usize| self.members.iter().any(|one| one.waits && one.from == Some(From::Host(host)));
        let serves = |host: usize, member: &Member| match member.phase {
            Phase::Active => true,
            Phase::Stored => newest.saturating_sub(member.heard) <= SILENT || !waited_for(host),
            _ => false,
        };
        let mut wanted = vec![None; self.members.len()];
        let mut tail = From::Source;
        for &host in &self.order {
            let member = &self.members[host];
            if member.aside || member.part == Part::Leaf || !serves(host, member) {
                continue;
            }
            wanted[host] = Some(if member.ssh { From::Ssh } else { tail });
            tail = From::Host(host);
        }
        for (host, member) in self.members.iter().enumerate() {
            if serves(host, member) && wanted[host].is_none() {
                wanted[host] = Some(match (member.ssh, member.part) {
                    (true, _) => From::Ssh,
                    (false, Part::Leaf) => From::Source,
                    (false, Part::Chain) => tail,
                });
            }
        }
        for (host, from) in wanted.into_iter().enumerate() {
            let member = &mut self.members[host];
            let Some(from) = from.filter(|from| member.phase == Phase::Active && member.from != Some(*from)) else {
                continue;
            };
            self.generation += 1;
            member.from = Some(from);
            member.generation = self.generation;
            member.ordered = now;
            member.strikes = 0;
            self.out.push_back(Directive::Order { host, generation: self.generation, from });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn told(coordinator: &mut Coordinator) -> Vec<Directive> {
        std::iter::from_fn(|| coordinator.poll()).collect()
    }

    fn status(generation: u64, without: u64) -> Status {
        Status { generation, have: 0, doing: Doing::Fetching, without: at(without), reached: true }
    }

    fn fleet(hosts: usize) -> Coordinator {
        let mut coordinator = Coordinator::new(hosts, false, at(0));
        (0..hosts).for_each(|host| coordinator.ready(host, Part::Chain, None, at(0)));
        told(&mut coordinator);
        coordinator
    }

    fn beat(coordinator: &mut Coordinator, hosts: &[usize], from: u64, to: u64) {
        for time in (from..to).step_by(100) {
            for host in hosts {
                coordinator.status(*host, &status(*host as u64 + 1, 0), at(time));
            }
            coordinator.tick(at(time));
        }
    }

    #[test]
    fn a_slow_port_goes_to_the_end_and_a_host_on_the_sources_machine_is_nobodys_source() {
        let mut coordinator = Coordinator::new(4, false, at(0));
        coordinator.ready(0, Part::Chain, Some(1000), at(1));
        coordinator.ready(1, Part::Leaf, None, at(1));
        coordinator.ready(2, Part::Chain, None, at(1));
        coordinator.ready(3, Part::Chain, Some(10_000), at(1));
        let from = |host: usize, all: &[Directive]| {
            all.iter().find_map(|one| match one {
                Directive::Order { host: own, from, .. } if *own == host => Some(*from),
                _ => None,
            })
        };
        let all = told(&mut coordinator);
        assert_eq!(
            [0, 1, 2, 3].map(|host| from(host, &all)),
            [Some(From::Host(3)), Some(From::Source), Some(From::Source), Some(From::Host(2))]
        );
    }

    #[test]
    fn silence_counts_soon_only_if_the_host_behind_hears_nothing_either() {
        let mut coordinator = fleet(3);
        beat(&mut coordinator, &[0, 1, 2], 100, 1000);
        beat(&mut coordinator, &[0, 2], 1000, 2500);
        assert_eq!(told(&mut coordinator), []);
        coordinator.status(2, &status(3, 650), at(2500));
        coordinator.tick(at(2500));
        let orders = told(&mut coordinator);
        assert!(matches!(orders[0], Directive::Silent { host: 1, .. }), "{orders:?}");
        assert!(matches!(orders[1], Directive::Order { host: 2, from: From::Host(0), .. }), "{orders:?}");
    }

    #[test]
    fn when_everybody_was_silent_nobody_is_blamed_by_who_is_heard_first() {
        let mut coordinator = fleet(3);
        beat(&mut coordinator, &[0, 1, 2], 100, 1000);
        beat(&mut coordinator, &[], 1000, 8000);
        beat(&mut coordinator, &[2], 8000, 8500);
        beat(&mut coordinator, &[0, 1, 2], 8500, 9000);
        assert_eq!(told(&mut coordinator), []);
    }
}
