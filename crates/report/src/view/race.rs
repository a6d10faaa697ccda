//! A race of ways to a disk or a network: what each way did, what became of it, and what to use.

use nearmetal_stats::{Fate, RatioEstimate};
use serde::{Deserialize, Serialize};

use super::Bounds;

/// A race, or a read-back of ways that were not raced (then no arm has a round).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RaceView {
    /// What the ways lead to: "ways to a disk on `QEMU NVMe Ctrl`, kernel 6.12, QEMU 10.0".
    pub ways: String,
    /// What the advice speaks of, in one word: `disk`, `card`.
    pub thing: String,
    /// What every run ran: "4 KiB random 50/50 read/write, queue depth 32"; `None` if nothing ran.
    pub load: Option<String>,
    /// What the ratios are of, for an axis: "IOPS", "Transactions a second".
    pub quantity: String,
    /// What the other arms are compared with, in words: "QEMU's default".
    pub reference_name: String,
    /// Number of that arm.
    pub reference: usize,
    /// Number of the winner; `None` if no arm could win.
    pub winner: Option<usize>,
    /// The arms, by the numbers used above.
    pub arms: Vec<RaceArm>,
    /// Rounds after which arms could leave.
    pub looks: Vec<u32>,
    /// Probability, stated beforehand, with which the best arm may be lost.
    pub error: f64,
    /// The factor by which an arm not shown worse may be better than the winner; `None` if it cannot be told.
    pub slack: Option<f64>,
    /// Seconds it took.
    pub took: f64,
    /// What to use; `None` if nothing was raced.
    pub advice: Option<AdviceView>,
    /// Ways that were not measured.
    pub left_out: Vec<LeftOutRow>,
    /// What the machine and the other end did without a guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceiling: Vec<CeilingRow>,
    /// What each setting is worth, where the arms combine settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectRow>,
}

/// What one setting is worth, or how far two help each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectRow {
    /// Of what: `pages: small over huge`.
    pub what: String,
    /// The ratio.
    pub ratio: RatioView,
    /// What the same runs cannot tell it from; empty if nothing.
    pub confounded: String,
}

/// One way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RaceArm {
    /// Its id in documents and options.
    pub id: String,
    /// What a person calls it.
    pub title: String,
    /// What was read back before its first run.
    pub read_back: RaceReadBack,
    /// Why it is measured and cannot win; `None` if it can.
    pub cannot_win: Option<String>,
    /// How far it came; `None` if it did not run.
    pub fate: Option<Fate>,
    /// Whether its rate may be the other end's; `None` if that is unknown.
    pub peer_bound: Option<bool>,
    /// Rounds it was measured in.
    pub rounds: usize,
    /// Median of its rates.
    pub median: Option<Rate>,
    /// Against the reference in the same rounds.
    pub to_reference: Option<RatioView>,
    /// Against bare metal in the same rounds.
    pub to_bare: Option<RatioView>,
}

/// What was read back of a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "read_back", rename_all = "kebab-case")]
pub enum RaceReadBack {
    /// It took effect.
    Shown {
        /// What shows it, one line each.
        evidence: Vec<String>,
    },
    /// It did not, or nothing shows it.
    NotShown {
        /// What was found instead.
        why: String,
    },
}

/// A value with its unit, as shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The value.
    pub value: f64,
    /// `IOPS`, `Mbit/s`, `trans/s`.
    pub unit: String,
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioView {
    /// The ratio.
    pub ratio: f64,
    /// Its interval.
    pub interval: Bounds,
    /// Pairs.
    pub n: u32,
}

impl From<&RatioEstimate> for RatioView {
    fn from(estimate: &RatioEstimate) -> Self {
        let ends = estimate.interval();
        Self {
            ratio: estimate.ratio,
            interval: Bounds { low: ends.low, high: ends.high },
            n: u32::try_from(estimate.n).unwrap_or(u32::MAX),
        }
    }
}

/// What to use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceView {
    /// What may be said.
    pub kind: AdviceKind,
    /// The arm it speaks of, as people call it.
    pub arm: Option<String>,
    /// That arm over the reference, in fresh pairs.
    pub to_reference: Option<RatioView>,
    /// That arm over bare metal, in fresh pairs.
    pub to_bare: Option<RatioView>,
    /// The lines of the domain XML that make it so.
    pub definition: Option<String>,
    /// What else it takes or costs, one sentence each.
    pub further: Vec<String>,
}

/// What may be said at the end of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceKind {
    /// Use the arm: it was shown faster than the reference.
    Use,
    /// The best arm was not shown faster than the reference.
    NoneFaster,
    /// The default is the best.
    Default,
    /// The default took no effect, and nothing was shown better than the first way that did.
    Reference,
    /// No winner was measured again.
    Unknown,
}

/// A way that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutRow {
    /// Which.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What one test gave without a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CeilingRow {
    /// The test.
    pub test: String,
    /// Unit of the values.
    pub unit: String,
    /// On all PUs.
    pub unconfined: Vec<f64>,
    /// On the guest's PUs and node.
    pub confined: Vec<f64>,
}
