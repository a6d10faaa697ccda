//! Which of many arms is the best, without running all of them to the end.
//!
//! The skeleton is successive halving: every rung has an equal share of the runs that can be paid for, and the arms left
//! run twice as often as before (Karnin, Koren and Somekh 2013, "Almost optimal exploration in multi-armed bandits",
//! ICML; Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization",
//! AISTATS). Halving alone says nothing of its error, so an arm leaves in one of two ways that are never mixed:
//! - **shown worse**: the one-sided Student interval of its log-ratio to the leader lies below zero, at a level of
//!   error/((arms−1)·looks). By Bonferroni's inequality over arms and looks, both fixed beforehand, the best arm leaves so
//!   with a probability of at most `error` (the elimination rule of Even-Dar, Mannor and Mansour 2006, JMLR 7:1079-1105);
//! - **cut**: not shown worse, but the runs did not suffice for it. [`Race::slack`] says how much better than the winner
//!   such an arm may still be, by the same intervals, so that the statement "no arm is better than the winner by more
//!   than this factor" is wrong with a probability of at most `error`, however many were cut.
//!
//! Both rest on log-ratios that scatter about normally; see [`crate::ratio`] for what happens where they do not.
//! Arms of one round run close in time, so what is compared is always their ratio within rounds.

use serde::{Deserialize, Serialize};

use crate::error::{StatsError, within};
use crate::quantile::student_t;
use crate::sample::{mean, standard_deviation};

/// With fewer common rounds no arm is called worse: a spread of two values is luck.
const FEWEST: usize = 3;

/// Failed runs after which an arm is withdrawn.
const FAILURES: usize = 2;

/// How far an arm came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "kebab-case")]
pub enum Fate {
    /// Still in it.
    Racing,
    /// Shown worse than another arm, at the stated error.
    ShownWorse {
        /// Look, from 0.
        look: usize,
        /// The arm that is better.
        than: usize,
    },
    /// Left out for want of runs; not shown worse.
    Cut {
        /// Look, from 0.
        look: usize,
    },
    /// Its runs failed.
    Withdrawn,
}

/// A race: pure state, moved by [`Race::record`] and [`Race::look`].
#[derive(Debug, Clone, PartialEq)]
pub struct Race {
    can_win: Vec<bool>,
    partner: usize,
    error: f64,
    /// Rounds that have been run at each look, rising.
    looks: Vec<u32>,
    looked: usize,
    rounds: u32,
    fates: Vec<Fate>,
    /// By arm and round: logarithm of its value; `None` where it did not run or failed.
    values: Vec<Vec<Option<f64>>>,
    failures: Vec<usize>,
}

impl Race {
    /// A race of `can_win.len()` arms. An arm that cannot win is measured, and neither wins nor shows another worse.
    /// `partner` runs in every round to the end, so that every arm has a ratio to it. `error` is the probability with
    /// which the best arm may be lost; `looks` are the numbers of rounds, rising, after which arms may leave.
    ///
    /// # Errors
    /// Fewer than two arms, none that can win, no such partner, an error outside 0.0001 to 0.5, or looks that do not rise.
    pub fn new(can_win: &[bool], partner: usize, error: f64, looks: &[u32]) -> Result<Self, StatsError> {
        let too_few = |what, found| Err(StatsError::TooFew { what, needed: 1, found });
        if can_win.len() < 2 {
            return Err(StatsError::TooFew { what: "arms", needed: 2, found: can_win.len() });
        }
        if !can_win.contains(&true) {
            return too_few("arms that can win", 0);
        }
        within("the partner's number", partner as f64, 0.0, can_win.len() as f64 - 1.0)?;
        if looks.is_empty() {
            return too_few("looks", 0);
        }
        for (index, look) in looks.iter().enumerate() {
            let before = index.checked_sub(1).map_or(0, |before| looks[before]);
            within("the rounds of a look", f64::from(*look), f64::from(before) + 1.0, 1e6)?;
        }
        let arms = can_win.len();
        Ok(Self {
            can_win: can_win.to_vec(),
            partner,
            error: within("the error", error, 1e-4, 0.5)?,
            looks: looks.to_vec(),
            looked: 0,
            rounds: 0,
            fates: vec![Fate::Racing; arms],
            values: vec![Vec::new(); arms],
            failures: vec![0; arms],
        })
    }

    /// The arms of the next round: those still in it, and the partner. Empty when the race is over.
    pub fn next_round(&self) -> Vec<usize> {
        if self.is_over() {
            return Vec::new();
        }
        (0..self.fates.len()).filter(|arm| self.runs(*arm)).collect()
    }

    /// Rounds to run before the next look.
    pub fn rounds_to_look(&self) -> u32 {
        self.looks.get(self.looked).map_or(0, |look| look.saturating_sub(self.rounds))
    }

    /// Looks to come.
    pub fn looks_left(&self) -> usize {
        self.looks.len() - self.looked
    }

    /// Whether no look is left, or at most one arm that could win.
    pub fn is_over(&self) -> bool {
        let left = (0..self.fates.len()).filter(|arm| self.in_it(*arm) && self.can_win[*arm]).count();
        self.looked >= self.looks.len() || left <= 1
    }

    /// Records one round: what each of its arms gave, `None` for a run that failed.
    ///
    /// # Errors
    /// A value that is not above zero, or an arm that is none.
    pub fn record(&mut self, round: &[(usize, Option<f64>)]) -> Result<(), StatsError> {
        let place = self.rounds as usize;
        for &(arm, value) in round {
            within("an arm's number", arm as f64, 0.0, self.fates.len() as f64 - 1.0)?;
            if let Some(value) = value {
                if !value.is_finite() {
                    return Err(StatsError::NotFinite { what: "an arm's value", index: arm, value });
                }
                if value <= 0.0 {
                    return Err(StatsError::NotPositive { what: "an arm's value", index: arm, value });
                }
            }
        }
        for &(arm, value) in round {
            self.values[arm].resize(place, None);
            self.values[arm].push(value.map(f64::ln));
            if value.is_none() {
                self.failures[arm] += 1;
                if self.failures[arm] >= FAILURES && self.fates[arm] == Fate::Racing {
                    self.fates[arm] = Fate::Withdrawn;
                }
            }
        }
        self.rounds += 1;
        Ok(())
    }

    /// Takes a look: who is shown worse than the leader leaves; then, if the next rung would cost more than
    /// `affordable` runs, the worst by mean are cut until it does not. Two arms always stay: the leader and the partner.
    pub fn look(&mut self, affordable: u64) {
        let look = self.looked;
        self.looked += 1;
        let Some(leader) = self.leader() else { return };
        for arm in 0..self.fates.len() {
            if arm != leader && self.in_it(arm) && self.upper(arm, leader).is_some_and(|upper| upper < 0.0) {
                self.fates[arm] = Fate::ShownWorse { look, than: leader };
            }
        }
        let rounds = u64::from(self.rounds_to_look());
        if rounds == 0 {
            return;
        }
        loop {
            let running = (0..self.fates.len()).filter(|arm| self.runs(*arm)).count() as u64;
            let worst = (0..self.fates.len())
                .filter(|arm| self.in_it(*arm) && *arm != leader && *arm != self.partner)
                .min_by(|one, other| self.standing(*one).total_cmp(&self.standing(*other)));
            match worst {
                Some(worst) if running.saturating_mul(rounds) > affordable => self.fates[worst] = Fate::Cut { look },
                _ => break,
            }
        }
    }

    /// The best by mean of those in it that can win; `None` if all were withdrawn. Ties go to the first.
    pub fn leader(&self) -> Option<usize> {
        let candidates = (0..self.fates.len()).rev().filter(|arm| self.in_it(*arm) && self.can_win[*arm]);
        candidates.max_by(|one, other| self.standing(*one).total_cmp(&self.standing(*other)))
    }

    /// How far each arm came.
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }

    /// Rounds an arm was measured in.
    pub fn measured(&self, arm: usize) -> usize {
        self.values.get(arm).map_or(0, |values| values.iter().flatten().count())
    }

    /// Rounds run so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The factor, 1 at least, by which an arm that was not shown worse may still be better than the leader: wrong with a
    /// probability of at most the race's error. `None` if one of them has too few rounds in common with the leader.
    pub fn slack(&self) -> Option<f64> {
        let leader = self.leader()?;
        let open = |arm: &usize| matches!(self.fates[*arm], Fate::Racing | Fate::Cut { .. });
        let mut slack: f64 = 1.0;
        for arm in (0..self.fates.len()).filter(|arm| *arm != leader && self.can_win[*arm]).filter(open) {
            slack = slack.max(self.upper(arm, leader)?.min(700.0).exp());
        }
        Some(slack)
    }

    fn in_it(&self, arm: usize) -> bool {
        self.fates[arm] == Fate::Racing
    }

    fn runs(&self, arm: usize) -> bool {
        self.in_it(arm) || (arm == self.partner && self.fates[arm] != Fate::Withdrawn)
    }

    /// Log-ratios of two arms, over the rounds both were measured in.
    fn differences(&self, arm: usize, other: usize) -> Vec<f64> {
        let pairs = self.values[arm].iter().zip(&self.values[other]);
        pairs.filter_map(|(one, other)| Some((*one)? - (*other)?)).collect()
    }

    /// Whom the means are taken against: the partner, or, once its runs have failed, the first arm that was in every round since.
    fn yardstick(&self) -> usize {
        let first = || (0..self.fates.len()).find(|arm| self.in_it(*arm) && self.can_win[*arm]);
        Some(self.partner)
            .filter(|partner| self.fates[*partner] != Fate::Withdrawn)
            .or_else(first)
            .unwrap_or(self.partner)
    }

    /// Mean log-ratio to the partner; an arm that was never measured is behind all.
    fn standing(&self, arm: usize) -> f64 {
        let differences = self.differences(arm, self.yardstick());
        if differences.is_empty() { f64::NEG_INFINITY } else { mean(&differences) }
    }

    /// The upper end of the interval on the log-ratio of an arm to another.
    fn upper(&self, arm: usize, other: usize) -> Option<f64> {
        let differences = self.differences(arm, other);
        if differences.len() < FEWEST {
            return None;
        }
        let level = self.error / ((self.fates.len() - 1) as f64 * self.looks.len() as f64);
        let n = differences.len() as f64;
        Some(mean(&differences) + student_t(1.0 - level, n - 1.0) * standard_deviation(&differences) / n.sqrt())
    }
}

/// Numbers of rounds after which to look: `first`, and twice as many each time.
pub fn doubling_looks(first: u32, count: u32) -> Vec<u32> {
    (0..count).map(|power| first.max(1).saturating_mul(1_u32.checked_shl(power).unwrap_or(u32::MAX))).collect()
}
