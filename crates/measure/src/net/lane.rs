//! The race and the fresh rounds: which arm is brought up when.

use std::time::Instant;

use nearmetal_stats::{Race, doubling_looks};

use super::netperf::NetTest;
use super::path::{Link, Role};
use super::rig::NetRig;
use super::run::{FIRST_LOOK, LOOKS};
use crate::bench::Event;
use crate::error::MeasureError;
use crate::experiment::{GIVE_UP_AFTER, Measured, chain};
use crate::matrix::{Effect, Track, Turn, contest};
use crate::results::Outcome;
use crate::schedule::SplitMix;

/// Arms that share a guest: those that need the port in the same way.
pub(super) fn batches(rig: &NetRig<'_>, arms: &[usize]) -> Vec<Vec<usize>> {
    let role = |arm: usize| rig.cards[arm].path.link.role();
    let mut roles: Vec<Role> = arms.iter().map(|arm| role(*arm)).collect();
    roles.sort();
    roles.dedup();
    roles.into_iter().map(|one| arms.iter().copied().filter(|arm| role(*arm) == one).collect()).collect()
}

/// Brings each arm up for the first time and reads it back. One that cannot be brought up does not take the others of its
/// guest with it: they are tried one by one.
pub(super) fn read_back_all(
    rig: &mut NetRig<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Effect>, MeasureError> {
    let all: Vec<usize> = (0..rig.cards.len()).collect();
    let mut effects: Vec<Option<Effect>> = vec![None; all.len()];
    for batch in batches(rig, &all) {
        let bare = rig.cards[batch[0]].path.link == Link::Bare;
        let brought = if bare { rig.stand_bare() } else { rig.stand_guest(&batch).map(drop) };
        let alone = batch.len() > 1;
        for arm in batch {
            tell(Event::Turn { round: 0, arm: &rig.title(arm), racing: all.len() });
            effects[arm] = Some(match &brought {
                Ok(()) => rig.read_back(arm),
                Err(_) if alone => match rig.stand_guest(&[arm]) {
                    Ok(_) => rig.read_back(arm),
                    Err(error) => Effect::NotShown { why: chain(&error) },
                },
                Err(error) => Effect::NotShown { why: chain(error) },
            });
        }
    }
    let missing = || Effect::NotShown { why: "it was not brought up".to_owned() };
    Ok(effects.into_iter().map(|effect| effect.unwrap_or_else(missing)).collect())
}

/// Runs arms of the race, `running` by their place in the list.
struct Lane<'a, 'b> {
    rig: &'b mut NetRig<'a>,
    running: Vec<usize>,
    test: NetTest,
}

impl Lane<'_, '_> {
    fn stand(&mut self, arm: usize) -> Result<(), MeasureError> {
        if self.rig.cards[arm].path.link == Link::Bare {
            return self.rig.stand_bare();
        }
        let batch = batches(self.rig, &self.running).into_iter().find(|batch| batch.contains(&arm));
        self.rig.stand_guest(&batch.unwrap_or_else(|| vec![arm])).map(drop)
    }
}

impl Track for Lane<'_, '_> {
    fn run(&mut self, place: usize, _seed: u64) -> Result<Measured, MeasureError> {
        let arm = self.running[place];
        self.stand(arm)?;
        self.rig.sample(arm, &[self.test])
    }

    fn metric(&self) -> String {
        self.test.rate()
    }

    /// Arms of one guest run together, in random order, and the guests come in random order, except that the one that is
    /// there goes first: else every round would boot it twice.
    fn arrange(&mut self, order: &mut Vec<usize>, random: &mut SplitMix) {
        let arms: Vec<usize> = order.iter().map(|place| self.running[*place]).collect();
        let mut groups = batches(self.rig, &arms);
        random.shuffle(&mut groups);
        groups.sort_by_key(|group| !group.iter().any(|arm| self.rig.stands(*arm)));
        let mut arranged = Vec::with_capacity(order.len());
        for mut group in groups {
            random.shuffle(&mut group);
            arranged.extend(group.into_iter().filter_map(|arm| self.running.iter().position(|other| *other == arm)));
        }
        *order = arranged;
    }
}

/// The race among the arms that took effect, for `seconds`.
pub(super) fn race(
    rig: &mut NetRig<'_>,
    running: &[usize],
    can_win: &[bool],
    seconds: f64,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(Race, Vec<Turn>), MeasureError> {
    let (error, seed, test) = (rig.request.error, rig.request.seed, rig.request.decided_by());
    let mut race = Race::new(can_win, 0, error, &doubling_looks(FIRST_LOOK, LOOKS))?;
    let titles: Vec<String> = running.iter().map(|arm| rig.title(*arm)).collect();
    let start = Instant::now();
    let mut clock = || start.elapsed().as_secs_f64();
    let mut lane = Lane { rig, running: running.to_vec(), test };
    let turns = contest(&mut race, seed, seconds, &mut clock, &mut lane, &mut |round, arm, racing| {
        tell(Event::Turn { round, arm: &titles[arm], racing });
    })?;
    Ok((race, turns))
}

/// Fresh rounds of the winner, libvirt's default and bare metal: every guest is booted for its run and has one card.
pub(super) fn confirm(
    rig: &mut NetRig<'_>,
    arms: &[usize],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Turn>, MeasureError> {
    let tests = rig.request.tests.clone();
    let mut random = SplitMix::new(rig.request.seed.wrapping_add(1));
    let (mut turns, mut failures) = (Vec::new(), 0);
    for round in 0..rig.request.pairs {
        let mut order = arms.to_vec();
        random.shuffle(&mut order);
        for (position, arm) in order.into_iter().enumerate() {
            tell(Event::Turn { round, arm: &rig.title(arm), racing: arms.len() });
            let (started, began) = (nearmetal_change::timestamp::now(), Instant::now());
            rig.clear()?;
            let bare = rig.cards[arm].path.link == Link::Bare;
            let stood = if bare { rig.stand_bare() } else { rig.stand_guest(&[arm]).map(drop) };
            let outcome = match stood.and_then(|()| rig.sample(arm, &tests)) {
                Ok(Measured { metrics, notes }) => {
                    failures = 0;
                    Outcome::Measured { metrics, notes }
                }
                Err(error) if failures + 1 >= GIVE_UP_AFTER => return Err(error),
                Err(error) => {
                    failures += 1;
                    Outcome::Failed { why: chain(&error) }
                }
            };
            let seconds = began.elapsed().as_secs_f64();
            let (seed, position) = (rig.request.seed, position as u32);
            turns.push(Turn { round, position, arm, seed, started, seconds, outcome });
        }
    }
    rig.clear()?;
    Ok(turns)
}
