//! How long a sample takes and how many pairs there are, where arms are compared in pairs.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use nearmetal_load::Workload;
use nearmetal_measure::Pairing;
use nearmetal_units::Bytes;

/// Pairs with --quick: enough for an interval, few enough for minutes.
const QUICK_PAIRS: u32 = 6;
/// Pairs otherwise. `bench slice` takes them as a pilot, from whose scatter it fixes the number of pairs.
const PAIRS: u32 = 10;
/// Seconds of a sample with --quick.
const QUICK_SECONDS: u32 = 5;
/// Seconds of a sample otherwise.
const SECONDS: u32 = 30;
/// A/A pairs of each arm that has them.
pub(super) const SAME_ARM_PAIRS: u32 = 2;

/// The lengths of a comparison in pairs.
#[derive(Debug, clap::Args)]
pub(super) struct RoundArgs {
    /// Take minutes instead of hours: 6 pairs of 5 s samples
    #[arg(long)]
    pub(super) quick: bool,
    /// Seconds of one sample [default: 30, with --quick 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Exact number of pairs; a single pair has no interval [default: 6 with --quick; else 10, and `slice` adds what
    /// --resolve needs]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) pairs: Option<u32>,
    /// Seed of the order and of the intervals' bootstrap; the same seed gives the same order
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,
}

impl RoundArgs {
    /// Seconds of one sample.
    pub(super) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { QUICK_SECONDS } else { SECONDS })
    }

    /// Whether the length of a sample was asked for.
    pub(super) fn has_seconds(&self) -> bool {
        self.seconds.is_some()
    }

    /// Seconds that a workload runs before a sample begins.
    pub(super) fn ramp(&self) -> u32 {
        if self.quick { 1 } else { 5 }
    }

    /// Pairs.
    pub(super) fn pairs(&self) -> u32 {
        self.pairs.unwrap_or(if self.quick { QUICK_PAIRS } else { PAIRS })
    }

    /// These workloads in pairs, with A/A pairs. Without a fixed number the pairs are a pilot where `resolve` is given, from
    /// which their number is fixed.
    pub(super) fn pairing(&self, paired: Vec<Workload>, resolve: Option<f64>) -> Pairing {
        Pairing {
            paired,
            rounds: self.pairs(),
            resolve: resolve.filter(|_| self.pairs.is_none() && !self.quick).map(|percent| percent / 100.0),
            same_arm_pairs: SAME_ARM_PAIRS,
            single_shot: Vec::new(),
            memory: Vec::new(),
            quick: self.quick,
            accesses: true,
            reasons: true,
        }
    }
}

/// One of these, by its id; `--help` lists them.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    id: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|one| id(*one)))
        .try_map(move |word| all.iter().copied().find(|one| id(*one) == word).ok_or("not one of the possible values"))
}

/// A number of A/A pairs: none, or enough for a noise floor.
pub(crate) fn same_arm_pairs(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ (0 | 2..=1000)) => Ok(number),
        _ => Err("write 0, or a number from 2 to 1000: one pair has no scatter".to_owned()),
    }
}

/// Percent from 0.1 to 100.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=100.0).contains(&value) => Ok(value),
        _ => Err("write a number from 0.1 to 100, such as 5".to_owned()),
    }
}

/// What a drive can be asked for at once with O_DIRECT: whole sectors, 16 MiB at most.
pub(super) fn block_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: nearmetal_units::ParseError| error.to_string())?;
    if size.get() == 0 || size.get() % 512 != 0 || size > Bytes::from_mib(16) {
        return Err(format!("{size} is not a block size: write a multiple of 512 B up to 16 MiB, such as 4KiB"));
    }
    Ok(size)
}
