//! What races of ways to a disk and of ways to a network share.

use std::path::PathBuf;

use crate::exit_status::WrongUse;
use crate::results_store::StoreArgs;
use crate::style::Format;

/// Seconds of one sample of a race.
pub(super) const RACE_SECONDS: u32 = 3;

/// Which ways are left out.
#[derive(Debug, clap::Args)]
pub(super) struct WithoutArgs {
    /// Leave out the ways with this word, such as `writethrough`, `virtio-scsi` or `macvtap`; repeat it for more words.
    /// The default way always stays
    #[arg(long, value_name = "WORD")]
    pub(super) without: Vec<String>,
}

impl WithoutArgs {
    /// Refuses a word that fits no way on any machine: hours later its arms would have been measured all the same.
    ///
    /// # Errors
    /// [`WrongUse`] with the words there are.
    pub(super) fn check(&self, known: &[String]) -> Result<(), WrongUse> {
        match self.without.iter().find(|word| !known.contains(word)) {
            None => Ok(()),
            Some(word) => {
                Err(WrongUse(format!("--without: no way is called `{word}`; write one of {}", known.join(", "))))
            }
        }
    }
}

/// What the time of a race comes from.
#[derive(Debug, clap::Args)]
pub(super) struct BudgetArgs {
    /// Seconds of one sample [default: 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// The time for all of it: seconds, or with `m` or `h` behind the number
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = budget)]
    pub(super) budget: u32,
}

impl BudgetArgs {
    /// Seconds of one sample.
    pub(super) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(RACE_SECONDS)
    }

    /// Whether the length of a sample was asked for.
    pub(super) fn has_seconds(&self) -> bool {
        self.seconds.is_some()
    }
}

/// What only a race takes.
#[derive(Debug, clap::Args)]
pub(super) struct RaceArgs {
    #[command(flatten)]
    pub(super) budget: BudgetArgs,
    /// Probability in percent that the best way is dropped by mistake, over all ways and looks together
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = error_percent)]
    pub(super) error: f64,
    /// Seed of the order and of the intervals' bootstrap; the same seed gives the same order
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write the chart here as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) chart: Option<PathBuf>,
    #[command(flatten)]
    pub(super) store: StoreArgs,
}

/// How a race or a read-back is shown.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// What is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    /// Write everything here as JSON
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

pub(super) fn error_percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=20.0).contains(&value) => Ok(value),
        _ => Err("write a number from 0.1 to 20, such as 5".to_owned()),
    }
}

/// The time for all of it, in seconds: a minute at least and a day at most.
pub(super) fn budget(text: &str) -> Result<u32, String> {
    match nearmetal_units::seconds(text) {
        Ok(seconds @ 60..=86_400) => Ok(seconds),
        _ => Err("write a time from 60s to 24h, such as 30m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_measure::path_words;

    #[test]
    fn a_word_that_fits_no_way_is_refused_with_those_there_are() {
        let words = |word: &str| WithoutArgs { without: vec![word.to_owned()] }.check(&path_words());
        assert!(words("main-loop").is_ok() && words("qcow2-falloc").is_ok());
        let error = words("main-lop").unwrap_err();
        assert!(error.to_string().contains("main-loop"), "{error}");
    }

    #[test]
    fn a_budget_is_a_number_with_a_unit() {
        assert_eq!((budget("90"), budget("30m"), budget("2h")), (Ok(90), Ok(1800), Ok(7200)));
        for junk in ["", "m", "59", "25h", "-1m", "4294967295h", "30 m", "1d"] {
            assert!(budget(junk).is_err(), "{junk}");
        }
    }
}
