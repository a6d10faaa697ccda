//! What a tune is asked to do: plain data, composed by who knows the planner.

use std::collections::BTreeSet;

use nearmetal_load::{CommandJob, Workload};
use nearmetal_results::{AloneFactor, LeftOut, TuneFactor};
use serde::{Deserialize, Serialize};

use super::{FIRST_RUNG, KEPT, LEAST_PAIRS, MARGIN, PUTTING_BACK};
use nearmetal_place::Placement;

use crate::conditions::Conditions;
use crate::error::MeasureError;
use crate::pairing::Pairing;
use crate::stand::OnScratch;

/// Seconds of a sample beyond its own: starting the program, flushing, dropping the page cache.
pub(super) const BESIDE_A_SAMPLE: f64 = 2.0;
/// Seconds to boot a guest, as an estimate before any was booted.
const BOOT: f64 = 8.0;

/// A plan that races.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuneArm {
    /// The words of its choices, by which `plan` knows them again; `planned` for those of the rules.
    pub id: String,
    /// What a person calls it.
    pub title: String,
    /// One sentence.
    pub description: String,
    /// The domain as this plan has it.
    pub xml: String,
    /// For each factor, whether it is at its other level; `None` for a plan beside the fraction.
    pub levels: Option<Vec<bool>>,
}

/// In what the plans race. A document says which by what it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TuneOn {
    /// Clones on a scratch device, beside the bare slice. Of the workloads in pairs the first is run; the rounds are those of the
    /// fresh pairs at most.
    Scratch(OnScratch),
    /// The guest itself, which is shut down and started for each sample, and runs a command of its user's. No bare slice runs that:
    /// it is a command of the guest's own system.
    Itself {
        /// Domain.
        guest: String,
        /// Where the plan by rule puts it.
        placement: Placement,
        /// Its XML as found.
        xml_found: String,
        /// The command.
        command: CommandJob,
        /// Fresh rounds at most.
        rounds: u32,
        /// Few fresh rounds.
        quick: bool,
    },
}

impl TuneOn {
    /// Domain.
    pub fn guest(&self) -> &str {
        match self {
            Self::Scratch(on) => &on.guest,
            Self::Itself { guest, .. } => guest,
        }
    }

    /// Its XML as found.
    pub fn xml_found(&self) -> &str {
        match self {
            Self::Scratch(on) => &on.xml_found,
            Self::Itself { xml_found, .. } => xml_found,
        }
    }

    /// What is run, and how often at most.
    pub(super) fn pairing(&self) -> Pairing {
        match self {
            Self::Scratch(on) => on.pairing.clone(),
            Self::Itself { command, rounds, quick, .. } => Pairing {
                paired: vec![Workload::from(command.clone())],
                rounds: *rounds,
                resolve: None,
                same_arm_pairs: 0,
                single_shot: Vec::new(),
                memory: Vec::new(),
                quick: *quick,
                accesses: false,
                reasons: false,
            },
        }
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneRequest {
    /// The guest as found and as planned by rule, and where it is measured with what.
    #[serde(flatten)]
    pub on: TuneOn,
    /// The factors of the fraction.
    pub factors: Vec<TuneFactor>,
    /// Those for which the time did not suffice: each has a plan of its own, with all else as by rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alone: Vec<AloneFactor>,
    /// The plans, that by rule first.
    pub arms: Vec<TuneArm>,
    /// What could have been a factor or a level and is not, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Seconds for all of it, boots included.
    pub budget: u32,
    /// Probability with which the best plan may be lost.
    pub error: f64,
    /// Looks of the race: after 3, 6, 12 and so on rounds.
    pub looks: u32,
    /// Under what.
    pub conditions: Conditions,
}

impl TuneRequest {
    /// Whether it can be done at all.
    pub(super) fn possible(&self) -> Result<(), MeasureError> {
        let ids: BTreeSet<&str> = self.arms.iter().map(|arm| arm.id.as_str()).collect();
        if ids.len() != self.arms.len() {
            return Err(MeasureError::Asked("two plans of a tune have the same word".to_owned()));
        }
        if self.arms.len() < 2 {
            return Err(MeasureError::Asked(format!(
                "nothing is left to tune of `{}`: every factor was dropped, see --dry-run for the reasons",
                self.on.guest()
            )));
        }
        let least = least_seconds(self);
        if self.budget < least {
            return Err(MeasureError::Asked(format!(
                "{} plans beside the guest as found take at least {least} s, and the budget is {} s: raise --budget, or leave \
                 factors out (--without)",
                self.arms.len(),
                self.budget
            )));
        }
        Ok(())
    }
}

/// Seconds without which there is no answer, if a boot takes 8 s, beside those for writing the regions, which hang on the drive: every arm
/// booted once to be read back and in each round of the first rung, and the fresh rounds. A command of the user's takes nothing here, as
/// nobody knows how long it runs.
pub fn least_seconds(request: &TuneRequest) -> u32 {
    let length = request.on.pairing().paired.first().map(|workload| workload.load().reckoned());
    let sample = length.unwrap_or_default().as_secs_f64() + BESIDE_A_SAMPLE;
    let bare = match request.on {
        TuneOn::Scratch(_) => sample,
        TuneOn::Itself { .. } => 0.0,
    };
    let guest = BOOT + sample;
    let guests = (request.arms.len() + 2) as f64;
    let rung = guests * guest * FIRST_RUNG;
    let pairs = f64::from(LEAST_PAIRS) * (3.0 * guest + bare) * MARGIN;
    let seconds = (rung + pairs).max(rung / (1.0 - KEPT)) + guests * BOOT + PUTTING_BACK;
    seconds.ceil() as u32
}
