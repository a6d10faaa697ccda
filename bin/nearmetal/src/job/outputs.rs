//! The JSON that commands print and a report reads back.

use nearmetal_host::Host;
use nearmetal_report::view::CheckRow;
use serde::{Deserialize, Serialize};

/// Value of [`RollbackOutput::schema`].
pub(crate) const ROLLBACK_SCHEMA: &str = "nearmetal.rollback/1";

/// What a report needs of `nearmetal inspect --format json`; its summary and contradictions are for people.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct HostOutput {
    /// [`nearmetal_host::SCHEMA`].
    pub schema: String,
    /// The host.
    pub host: Host,
}

/// What `nearmetal rollback --format json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RollbackOutput {
    /// [`ROLLBACK_SCHEMA`].
    pub schema: String,
    /// Whether the former state was found again.
    pub ok: bool,
    /// Number of the transaction that was taken back; `None`: what a killed measurement had left, and no transaction.
    pub transaction: Option<u32>,
    /// One sentence per change, in the order in which they were taken back.
    pub notes: Vec<String>,
    /// One sentence for each guest that is not as it was before.
    #[serde(default)]
    pub left: Vec<String>,
    /// What was looked at afterwards, if anything was.
    #[serde(default)]
    pub checks: Vec<CheckRow>,
}

/// Value of [`InForceOutput::schema`].
pub(crate) const IN_FORCE_SCHEMA: &str = "nearmetal.in-force/1";

/// What `nearmetal rollback --list --format json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct InForceOutput {
    /// [`IN_FORCE_SCHEMA`].
    pub schema: String,
    /// What can be undone, the next one first.
    pub transactions: Vec<TransactionOutput>,
}

/// A transaction that is in force, wholly or in part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TransactionOutput {
    /// Its number.
    pub number: u32,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// `plan`, `fixes` or `devices`.
    pub kind: String,
    /// What it is, in words.
    pub what: String,
    /// Domains of a plan; empty for others.
    pub domains: Vec<String>,
    /// Whether it has not come to its end.
    pub unfinished: bool,
    /// Whether a nearmetal is at work on it; unfinished and not this: it was interrupted.
    pub at_work: bool,
}

/// Value of [`ChangesOutput::schema`].
pub(crate) const CHANGES_SCHEMA: &str = "nearmetal.changes/1";

/// What `nearmetal apply --dry-run --format json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChangesOutput {
    /// [`CHANGES_SCHEMA`].
    pub schema: String,
    /// Changes in the order in which they would be made; empty: there is nothing to change.
    pub changes: Vec<ChangeOutput>,
}

/// A change that would be made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChangeOutput {
    /// The change in words.
    pub what: String,
    /// The domain whose definition it writes; `None` for all other changes.
    pub domain: Option<String>,
    /// How the definition changes; passwords are masked. Empty for all other changes.
    pub diff: Vec<nearmetal_domain::DiffLine>,
}

/// Value of [`ApplyEvent::schema`].
pub(crate) const APPLY_EVENT_SCHEMA: &str = "nearmetal.apply-event/1";

/// A line of `nearmetal apply --progress`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ApplyEvent<'a> {
    /// [`APPLY_EVENT_SCHEMA`].
    pub schema: &'static str,
    /// What happened.
    #[serde(flatten)]
    pub event: Event<'a>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// The plan was checked, and these changes are made next.
    Begun {
        /// In words, in order.
        changes: Vec<String>,
    },
    /// A change begins; the one before it is made and in the journal.
    Change {
        /// Its number, from 1.
        number: usize,
        /// It in words.
        what: &'a str,
    },
    /// Something else to know, such as what a rollback undoes.
    Note {
        /// The sentence.
        text: &'a str,
    },
    /// The end of an apply that came to its end; the process then ends with the exit code 0 or 1.
    Ended {
        /// Its number; `None`: nothing had to change.
        transaction: Option<u32>,
        /// Whether it was rolled back, because the read-back differs from the plan.
        rolled_back: bool,
        /// Checks that differ from the plan.
        mismatches: usize,
        /// What was read back, one for each guest.
        verifications: &'a [nearmetal_change::verify::Verification],
    },
}

/// Value of [`HistoryOutput::schema`].
pub(crate) const HISTORY_SCHEMA: &str = "nearmetal.history/1";

/// What `nearmetal bench history --format json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HistoryOutput {
    /// [`HISTORY_SCHEMA`].
    pub schema: String,
    /// Measurements, the newest first.
    pub measurements: Vec<MeasurementOutput>,
}

/// A measurement of the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MeasurementOutput {
    /// Its number in the store.
    pub id: i64,
    /// Which experiment.
    pub experiment: String,
    /// Its guests.
    pub guests: Vec<String>,
    /// When it began, RFC 3339 in UTC.
    pub created: String,
    /// Version of nearmetal.
    pub nearmetal: String,
    /// On what the figures were taken.
    pub environment: nearmetal_results::Environment,
    /// Release of the host's kernel.
    pub kernel: String,
    /// Version of QEMU.
    pub qemu: String,
    /// Model of the drive or card, where a winner holds for that alone.
    pub device: Option<String>,
    /// The plan, by when it was made.
    pub plan: Option<String>,
    /// `done`, `failed`, or `running`: it runs, or was killed.
    pub state: String,
    /// Why it failed.
    pub problem: Option<String>,
    /// Id of the arm that won, where there was a race.
    pub winner: Option<String>,
    /// Runs written down.
    pub runs: u32,
    /// The rate of each workload, as one arm over another; `None`: the runs cannot be compared.
    pub ratios: Option<Vec<RatioOutput>>,
}

/// A ratio of two arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RatioOutput {
    /// The workload in words.
    pub workload: String,
    /// Guests at once.
    pub count: usize,
    /// The arm in the numerator, in words.
    pub subject: String,
    /// The arm in the denominator, in words.
    pub reference: String,
    /// Subject over reference.
    pub ratio: f64,
    /// Lower end of the 95 % interval; `None` for a single shot.
    pub low: Option<f64>,
    /// Its upper end; `None` for a single shot.
    pub high: Option<f64>,
    /// Pairs; 1 for a single shot.
    pub pairs: usize,
    /// What may be said; `None` for a single shot, of which nothing is claimed.
    pub verdict: Option<String>,
}
