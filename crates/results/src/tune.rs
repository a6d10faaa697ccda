//! What a tune leaves beside its runs: how each plan fared, what each factor is worth, and what to do.

use nearmetal_stats::{Fate, RatioEstimate};
use serde::{Deserialize, Serialize};

use crate::arm::AS_FOUND;
use crate::left_out::LeftOut;

/// What a plan can decide in two ways or more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuneFactor {
    /// Its word: `pages`.
    pub id: String,
    /// The rule's level first, then the other one of the fraction, for people.
    pub levels: [String; 2],
}

/// A factor beside the fraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AloneFactor {
    /// What it decides.
    #[serde(flatten)]
    pub factor: TuneFactor,
    /// Id of the plan that has its other level, and all else as by rule.
    pub arm: String,
}

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
    pub effects: Vec<TuneEffect>,
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
    /// The plan by rule over the guest as found, in fresh pairs; `None` also in documents of earlier versions.
    #[serde(default)]
    pub rule_to_found: Option<RatioEstimate>,
    /// The plan by rule over its bare slice, in fresh pairs; `None` also in documents of earlier versions.
    #[serde(default)]
    pub rule_to_bare: Option<RatioEstimate>,
    /// What to do.
    pub verdict: TuneVerdict,
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
pub struct TuneEffect {
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
pub enum TuneVerdict {
    /// Apply this plan: in fresh pairs it was shown faster than the guest as found.
    Use {
        /// Id of the plan.
        arm: String,
    },
    /// Leave it as it is: in fresh pairs no plan was shown faster.
    Leave,
}

impl TuneVerdict {
    /// The arm it speaks for.
    pub fn arm(&self) -> &str {
        match self {
            Self::Use { arm } => arm,
            Self::Leave => AS_FOUND,
        }
    }
}
