//! The race and the fresh rounds: which arm is brought up when.

use std::time::Instant;

use nearmetal_stats::{Race, doubling_looks};

use super::guest::ArmCard;
use super::path::{Link, Role};
use super::request::{FIRST_LOOK, LOOKS};
use super::rig::NetRig;
use super::test::NetTest;
use crate::bench::Event;
use crate::error::MeasureError;
use crate::experiment::{GIVE_UP_AFTER, Measured, chain};
use crate::matrix::{Effect, Track, Turn, contest};
use crate::results::Outcome;
use crate::schedule::SplitMix;

/// Arms that share a guest: those that need the port in the same way.
fn batches(cards: &[ArmCard], arms: &[usize]) -> Vec<Vec<usize>> {
    let role = |arm: usize| cards[arm].path.link.role();
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
    for batch in batches(&rig.cards, &all) {
        let bare = rig.cards[batch[0]].path.link == Link::Bare;
        let brought = if bare { rig.stand_bare() } else { rig.stand_guest(&batch).map(drop) };
        let alone = batch.len() > 1;
        for arm in batch {
            tell(Event::Stage(&format!("reading back {} of {}: {}", arm + 1, all.len(), rig.title(arm))));
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
        let batch = batches(&self.rig.cards, &self.running).into_iter().find(|batch| batch.contains(&arm));
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

    fn arrange(&mut self, order: &mut Vec<usize>, random: &mut SplitMix) {
        let arms: Vec<usize> = order.iter().map(|place| self.running[*place]).collect();
        let arranged = by_guest(&self.rig.cards, &arms, |arm| self.rig.stands(arm), random);
        let place = |arm: usize| self.running.iter().position(|other| *other == arm);
        *order = arranged.into_iter().filter_map(place).collect();
    }
}

/// Arms of one guest run together, in random order, and the guests come in random order, except that the one that is there
/// goes first: else every round would boot it twice.
fn by_guest(cards: &[ArmCard], arms: &[usize], stands: impl Fn(usize) -> bool, random: &mut SplitMix) -> Vec<usize> {
    let mut groups = batches(cards, arms);
    random.shuffle(&mut groups);
    groups.sort_by_key(|group| !group.iter().any(|arm| stands(*arm)));
    groups.iter_mut().for_each(|group| random.shuffle(group));
    groups.concat()
}

/// The race among the arms that took effect, all against `reference`, for `seconds`.
pub(super) fn race(
    rig: &mut NetRig<'_>,
    running: &[usize],
    can_win: &[bool],
    reference: usize,
    seconds: f64,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(Race, Vec<Turn>), MeasureError> {
    let (error, seed, test) = (rig.request.error, rig.request.conditions.seed, rig.request.decided_by());
    let reference = running.iter().position(|arm| *arm == reference).unwrap_or(0);
    let mut race = Race::new(can_win, reference, error, &doubling_looks(FIRST_LOOK, LOOKS))?;
    let titles: Vec<String> = running.iter().map(|arm| rig.title(*arm)).collect();
    let start = Instant::now();
    let mut clock = || start.elapsed().as_secs_f64();
    let mut lane = Lane { rig, running: running.to_vec(), test };
    let turns = contest(&mut race, seed, seconds, &mut clock, &mut lane, &mut |round, arm, racing| {
        tell(Event::Turn { round, arm: &titles[arm], racing });
    })?;
    Ok((race, turns))
}

/// Fresh rounds of the winner, the reference and bare metal: every guest is booted for its run and has one card.
pub(super) fn confirm(
    rig: &mut NetRig<'_>,
    arms: &[usize],
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Turn>, MeasureError> {
    let tests = rig.request.tests.clone();
    let mut random = SplitMix::new(rig.request.conditions.seed.wrapping_add(1));
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
            let (seed, position) = (rig.request.conditions.seed, position as u32);
            turns.push(Turn { round, position, arm, seed, started, seconds, outcome });
        }
    }
    rig.clear()?;
    Ok(turns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::path::NetPath;

    fn cards() -> Vec<ArmCard> {
        let links = [
            NetPath::libvirt_default(),
            NetPath::virtio(Link::MacvtapBridge),
            NetPath::hardware(Link::VfHostdev),
            NetPath::virtio(Link::MacvtapPrivate),
            NetPath::virtio(Link::MacvtapPassthrough),
            NetPath::hardware(Link::Bare),
        ];
        let card =
            |path| ArmCard { path, mac: String::new(), tap: String::new(), lower: String::new(), function: None };
        links.into_iter().map(card).collect()
    }

    #[test]
    fn arms_that_can_share_a_guest_do_and_no_others() {
        let cards = cards();
        let mut found = batches(&cards, &[0, 1, 2, 3, 4, 5]);
        found.sort();
        assert_eq!(found, [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
        assert_eq!(batches(&cards, &[1, 5]), [vec![1], vec![5]]);
    }

    #[test]
    fn a_round_has_every_arm_once_guest_by_guest_and_goes_on_with_the_one_that_is_there() {
        let cards = cards();
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let order = by_guest(&cards, &[0, 1, 2, 3, 4, 5], |arm| arm == 4, &mut SplitMix::new(seed));
            assert_eq!(order[0], 4, "it is there");
            let mut all = order.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5]);
            let at = |arm: usize| order.iter().position(|other| *other == arm).unwrap();
            assert!(at(0).abs_diff(at(2)) == 1 && at(1).abs_diff(at(3)) == 1, "{order:?}");
            orders.insert(order);
        }
        assert!(orders.len() > 10, "the order is drawn");
    }
}
