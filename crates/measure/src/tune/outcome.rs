//! What a tune leaves beside its runs: how each plan fared, what each factor is worth, and what to do.

use nearmetal_stats::{Fate, Fraction, Pair, Race, RatioEstimate, ratio};
use serde::{Deserialize, Serialize};

use super::{AloneFactor, TuneFactor, TuneRequest, of_the_race};
use crate::arm::{AS_FOUND, PLANNED};
use crate::compare::{CONFIDENCE, pairs};
use crate::error::MeasureError;
use crate::matrix::LeftOut;
use crate::results::{Purpose, Results, Run};

/// The part of a results document that only a tune has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Release of the host's kernel: what was measured holds for it.
    pub kernel: String,
    /// Seconds it was given.
    pub budget: u32,
    /// Seconds it took, boots included.
    pub took: f64,
    /// Probability, stated beforehand, with which the best plan may be lost in the race.
    pub error: f64,
    /// Rounds after which plans could leave.
    pub looks: Vec<u32>,
    /// The factors of the fraction.
    pub factors: Vec<TuneFactor>,
    /// What could have been a factor or a level and is not, with the reason.
    pub left_out: Vec<LeftOut>,
    /// How each arm of the race fared; the guest as found is the first.
    pub arms: Vec<TunedArm>,
    /// What each factor is worth, and pairs of them, over the rounds in which the whole fraction ran.
    pub effects: Vec<Effect>,
    /// What each factor beside the fraction is worth, over the rounds in which both its plan and that by rule ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alone: Vec<AloneEffect>,
    /// Id of the plan that won the race.
    pub winner: String,
    /// The factor by which a plan not shown worse may be better than the winner, but for `error`; `None` if it cannot be told.
    pub slack: Option<f64>,
    /// The winner over the guest as found, in fresh pairs.
    pub to_found: Option<RatioEstimate>,
    /// The winner over the plan by rule, in fresh pairs; `None` also if it is that plan.
    pub to_rule: Option<RatioEstimate>,
    /// The winner over its bare slice, in fresh pairs.
    pub to_bare: Option<RatioEstimate>,
    /// What to do.
    pub verdict: Verdict,
}

/// How one arm of the race fared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedArm {
    /// Its id.
    pub id: String,
    /// For each factor, whether it is at its other level; `None` for an arm beside the fraction.
    pub levels: Option<Vec<bool>>,
    /// How far it came.
    pub fate: Fate,
    /// Rounds it was measured in.
    pub rounds: usize,
    /// Against the guest as found in the same rounds; the interval is this arm's alone, without regard to the others.
    pub to_found: Option<RatioEstimate>,
}

/// What one factor is worth, or how far two help each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Places of the factors: one, or two.
    pub of: Vec<usize>,
    /// Pairs of factors whose effect together is the same contrast: these runs cannot tell which of them it is.
    pub confounded: Vec<[usize; 2]>,
    /// Of one factor: its other level over the rule's. Of two: above 1 if both or neither at the other level do better than one
    /// of them.
    pub ratio: RatioEstimate,
}

/// What a factor beside the fraction is worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AloneEffect {
    /// The factor.
    #[serde(flatten)]
    pub of: AloneFactor,
    /// Its other level over the rule's, all else being as by rule; `None` if it could not be told.
    pub ratio: Option<RatioEstimate>,
}

/// What to do with the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Verdict {
    /// Apply this plan: in fresh pairs it was shown faster than the guest as found.
    Use {
        /// Id of the plan.
        arm: String,
    },
    /// Leave it as it is: in fresh pairs no plan was shown faster.
    Leave,
}

impl Verdict {
    /// The arm it speaks for.
    pub fn arm(&self) -> &str {
        match self {
            Self::Use { arm } => arm,
            Self::Leave => AS_FOUND,
        }
    }
}

impl Tuning {
    /// From the runs of both parts. `arms`: ids and levels of the race's arms, in its order.
    pub(super) fn of(
        request: &TuneRequest,
        results: &Results,
        race: &Race,
        arms: &[(String, Option<Vec<bool>>)],
        winner: &str,
        took: f64,
    ) -> Result<Self, MeasureError> {
        let metric = results.runs.first().and_then(|run| run.workload.rate()).unwrap_or_default();
        let raced: Vec<&Run> = results.runs.iter().filter(of_the_race).collect();
        let fresh: Vec<&Run> = results.runs.iter().filter(|run| run.purpose == Purpose::Pair).collect();
        let seed = results.seed;
        let of = |runs: &[&Run], subject: &str, reference: &str| {
            if subject == reference {
                return None;
            }
            ratio(&pairs(runs, &metric, subject, reference), CONFIDENCE, seed).ok()
        };
        let arm = |(place, (id, levels)): (usize, &(String, Option<Vec<bool>>))| TunedArm {
            id: id.clone(),
            levels: levels.clone(),
            fate: race.fates()[place],
            rounds: race.measured(place),
            to_found: of(&raced, id, AS_FOUND),
        };
        let (to_found, to_rule) = (of(&fresh, winner, AS_FOUND), of(&fresh, winner, PLANNED));
        let verdict = verdict(winner, to_found.as_ref(), to_rule.as_ref(), of(&fresh, PLANNED, AS_FOUND).as_ref());
        Ok(Self {
            kernel: results.provenance.get("host kernel").cloned().unwrap_or_else(|| "unknown".to_owned()),
            budget: request.budget,
            took,
            error: request.error,
            looks: nearmetal_stats::doubling_looks(super::FIRST_LOOK, request.looks),
            factors: request.factors.clone(),
            left_out: request.left_out.clone(),
            arms: arms.iter().enumerate().map(arm).collect(),
            effects: effects(&raced, &metric, request, seed)?,
            alone: request
                .alone
                .iter()
                .map(|own| AloneEffect { of: own.clone(), ratio: of(&raced, &own.arm, PLANNED) })
                .collect(),
            winner: winner.to_owned(),
            slack: race.slack(),
            to_found,
            to_rule,
            to_bare: of(&fresh, winner, crate::arm::BARE_SLICE),
            verdict,
        })
    }
}

/// The winner if it was shown faster than the guest as found, unless the rules' plan was shown better than it in the same
/// rounds: those are fresh, and the race may have picked its winner by luck.
fn verdict(
    winner: &str,
    to_found: Option<&RatioEstimate>,
    to_rule: Option<&RatioEstimate>,
    rule_to_found: Option<&RatioEstimate>,
) -> Verdict {
    let is_faster = |estimate: Option<&RatioEstimate>| estimate.is_some_and(|estimate| estimate.interval().low > 1.0);
    let is_slower = |estimate: Option<&RatioEstimate>| estimate.is_some_and(|estimate| estimate.interval().high < 1.0);
    match () {
        () if is_faster(rule_to_found) && is_slower(to_rule) => Verdict::Use { arm: PLANNED.to_owned() },
        () if is_faster(to_found) => Verdict::Use { arm: winner.to_owned() },
        () => Verdict::Leave,
    }
}

/// What each contrast of the fraction gave in the rounds in which all its plans ran.
fn effects(raced: &[&Run], metric: &str, request: &TuneRequest, seed: u64) -> Result<Vec<Effect>, MeasureError> {
    let fraction = Fraction::of(request.factors.len())?;
    let ids: Option<Vec<&str>> = fraction
        .runs()
        .iter()
        .map(|levels| request.arms.iter().find(|arm| arm.levels.as_ref() == Some(levels)).map(|arm| arm.id.as_str()))
        .collect();
    let Some(ids) = ids else { return Ok(Vec::new()) };
    let mut rounds: Vec<u32> = raced.iter().map(|run| run.round).collect();
    rounds.dedup();
    let value = |round: u32, id: &str| {
        let of = raced.iter().rev().filter(|run| run.round == round && run.arm == id);
        of.filter_map(|run| run.value(metric)).map(|metric| metric.value).next()
    };
    let all: Vec<Vec<Option<f64>>> =
        rounds.iter().map(|round| ids.iter().map(|id| value(*round, id)).collect()).collect();
    let effect = |contrast: nearmetal_stats::Contrast| {
        let sides: Vec<Pair> = all.iter().filter_map(|values| fraction.sides(values, &contrast.of)).collect();
        let ratio = ratio(&sides, CONFIDENCE, seed).ok()?;
        Some(Effect { of: contrast.of, confounded: contrast.confounded, ratio })
    };
    Ok(fraction.contrasts().into_iter().filter_map(effect).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio of about this in ten pairs that scatter a little.
    fn about(centre: f64) -> Option<RatioEstimate> {
        let pairs: Vec<Pair> = (0..10)
            .map(|pair| Pair { subject: centre * (1.0 + 0.01 * f64::from(pair % 3)), reference: 1.01 })
            .collect();
        ratio(&pairs, CONFIDENCE, 1).ok()
    }

    #[test]
    fn a_plan_is_used_only_if_fresh_pairs_showed_it_faster() {
        let of = |to_found, to_rule, rule: f64| {
            verdict("node.huge.rule.iothread", about(to_found).as_ref(), about(to_rule).as_ref(), about(rule).as_ref())
        };
        assert_eq!(of(1.3, 1.1, 1.2).arm(), "node.huge.rule.iothread");
        assert_eq!(of(1.0, 1.0, 1.0), Verdict::Leave, "when all are equal, it stays as it is");
        assert_eq!(of(0.8, 1.0, 0.8), Verdict::Leave);
        assert_eq!(of(1.2, 0.9, 1.35).arm(), PLANNED, "the race's winner was luck, the rules' plan is shown better");
        assert_eq!(verdict("x", None, None, None), Verdict::Leave, "nothing was measured again");
        assert_eq!(Verdict::Leave.arm(), AS_FOUND);
    }
}
