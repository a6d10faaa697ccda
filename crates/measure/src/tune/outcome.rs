//! What is told of a tune at its end: how each plan fared, what each factor is worth, and what to do.

use nearmetal_results::{
    AS_FOUND, AloneEffect, BARE_SLICE, CONFIDENCE, PLANNED, Purpose, Results, Run, TuneEffect, TuneVerdict, TunedArm,
    Tuning, pairs_of_runs,
};
use nearmetal_stats::{Fraction, Pair, Race, RatioEstimate, ratio};

use super::{TuneRequest, of_the_race};
use crate::error::MeasureError;

/// From the runs of both parts. `arms`: ids and levels of the race's arms, in its order.
pub(super) fn tuning(
    request: &TuneRequest,
    results: &Results,
    race: &Race,
    arms: &[(String, Option<Vec<bool>>)],
    winner: &str,
    took: f64,
) -> Result<Tuning, MeasureError> {
    let metric = results.runs.first().and_then(|run| run.workload.rate()).unwrap_or_default();
    let raced: Vec<&Run> = results.runs.iter().filter(of_the_race).collect();
    let fresh: Vec<&Run> = results.runs.iter().filter(|run| run.purpose == Purpose::Pair).collect();
    let seed = results.seed;
    let of = |runs: &[&Run], subject: &str, reference: &str| {
        if subject == reference {
            return None;
        }
        ratio(&pairs_of_runs(runs, &metric, subject, reference), CONFIDENCE, seed).ok()
    };
    let arm = |(place, (id, levels)): (usize, &(String, Option<Vec<bool>>))| TunedArm {
        id: id.clone(),
        levels: levels.clone(),
        fate: race.fates()[place],
        rounds: race.measured(place),
        to_found: of(&raced, id, AS_FOUND),
    };
    let (to_found, to_rule) = (of(&fresh, winner, AS_FOUND), of(&fresh, winner, PLANNED));
    let rule_to_found = of(&fresh, PLANNED, AS_FOUND);
    let verdict = verdict(winner, to_found.as_ref(), to_rule.as_ref(), rule_to_found.as_ref());
    Ok(Tuning {
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
        to_bare: of(&fresh, winner, BARE_SLICE),
        rule_to_found,
        rule_to_bare: of(&fresh, PLANNED, BARE_SLICE),
        verdict,
    })
}

/// The winner if it was shown faster than the guest as found, unless the rules' plan was shown better than it in the same
/// rounds: those are fresh, and the race may have picked its winner by luck. Then the rules' plan if that was shown faster.
fn verdict(
    winner: &str,
    to_found: Option<&RatioEstimate>,
    to_rule: Option<&RatioEstimate>,
    rule_to_found: Option<&RatioEstimate>,
) -> TuneVerdict {
    let is_faster = |estimate: Option<&RatioEstimate>| estimate.is_some_and(|estimate| estimate.interval().low > 1.0);
    let is_slower = |estimate: Option<&RatioEstimate>| estimate.is_some_and(|estimate| estimate.interval().high < 1.0);
    match () {
        () if is_faster(rule_to_found) && (is_slower(to_rule) || !is_faster(to_found)) => {
            TuneVerdict::Use { arm: PLANNED.to_owned() }
        }
        () if is_faster(to_found) => TuneVerdict::Use { arm: winner.to_owned() },
        () => TuneVerdict::Leave,
    }
}

/// What each contrast of the fraction gave in the rounds in which all its plans ran.
fn effects(raced: &[&Run], metric: &str, request: &TuneRequest, seed: u64) -> Result<Vec<TuneEffect>, MeasureError> {
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
        Some(TuneEffect { of: contrast.of, confounded: contrast.confounded, ratio })
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
        assert_eq!(of(1.0, 1.0, 1.0), TuneVerdict::Leave, "when all are equal, it stays as it is");
        assert_eq!(of(0.8, 1.0, 0.8), TuneVerdict::Leave);
        assert_eq!(of(1.2, 0.9, 1.35).arm(), PLANNED, "the race's winner was luck, the rules' plan is shown better");
        assert_eq!(of(1.0, 1.0, 1.2).arm(), PLANNED, "only the rules' plan was shown faster");
        assert_eq!(verdict("x", None, None, None), TuneVerdict::Leave, "nothing was measured again");
        assert_eq!(TuneVerdict::Leave.arm(), AS_FOUND);
    }
}
