//! Paired ratios with intervals; every formula cited.
//!
//! Pure functions: no input or output, no clock, no hidden randomness. What is random takes a seed and gives the same
//! result for the same seed on every machine. No NaN and no infinity leaves this crate: a figure that cannot be had is
//! a [`StatsError`] or `None`.
//!
//! The unit of replication is the **pair**: one run of the subject and one of the reference, close in time, in random
//! order. What is averaged is the logarithm of their ratio, so that swapping the arms gives exactly the reciprocal
//! (Fleming and Wallace 1986, "How not to lie with statistics", CACM 29(3):218-221). Iterations within a run are
//! averaged or merged before they come here; they are never counted as pairs (Kalibera and Jones 2013, "Rigorous
//! benchmarking in reasonable time", ISMM).
//!
//! | Question | Function |
//! |---|---|
//! | How much faster is the subject, and how sure is that? | [`ratio`] |
//! | How large a ratio do two equal arms show? | [`noise_floor`] |
//! | May the gain be claimed? | [`verdict`] |
//! | How many pairs are needed? | [`pairs_needed`] |
//! | Which of many arms is best, and which may leave early? | [`Race`] |
//! | What is each of several settings worth, and which help each other? | [`Fraction`] |
//! | Had the run warmed up? | [`warm_up_drift`] |
//! | What is the 99th percentile over several histograms? | [`MergedCounts`] |
//! | How is a ratio with its interval written? | [`ShownRatio`] |

mod bootstrap;
mod drift;
mod error;
mod fraction;
mod merged;
mod noise;
mod pair;
mod planning;
mod quantile;
mod race;
mod ratio;
mod sample;
mod shown;

#[cfg(test)]
mod coverage;

pub use drift::{Drift, warm_up_drift};
pub use error::StatsError;
pub use fraction::{Contrast, Fraction, MOST_FACTORS};
pub use merged::MergedCounts;
pub use noise::{NoiseFloor, Verdict, noise_floor, verdict};
pub use pair::{Interval, Pair};
pub use planning::{MAXIMUM_PAIRS, PILOT_PAIRS, PairsNeeded, pairs_needed};
pub use race::{Fate, Race, doubling_looks};
pub use ratio::{IntervalKind, RESAMPLES, RatioEstimate, ratio};
pub use sample::Sample;
pub use shown::{ShownRatio, interval_text};
