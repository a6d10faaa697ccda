//! What the program says: the JVM's flags, how many exceptions ended a thread, then the last of what the kit printed.
//!
//! Nobody who has no licence can try a kit, so its lines are those of published logs and of programs that read them:
//! `throughput =     177460.44 SPECjbb2005 bops` for a point of 2005 (many a letter to linux-mm of 2012), and
//! `RUN RESULT: hbIR (max attempted) = 307, hbIR (settled) = 273, max-jOPS = 359, critical-jOPS = 0` at the end of a run of 2015.

use super::{KitEdition, SCORE, SpecJbbJob};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};
use crate::{Load as _, Measured};

/// Where the kit's own words begin: what is before it nothing in a kit can write.
const KIT_SAID: &str = "\nsaid\n";
/// What begins the one line of a point of 2005, and what ends it.
const POINT: (&str, &str) = ("throughput =", "SPECjbb2005 bops");
/// What begins the line of a run of 2015.
const RESULT: &str = "RUN RESULT:";
/// What a kit prints where its own checks of the JVM, or of itself, fail.
const INVALID: &str = "VALIDATION ERROR";

/// Reads all of it.
///
/// # Errors
/// The JVM ran with other settings, a thread of it ended by an exception, the kit does not trust it, or there is not one result.
pub(super) fn read(job: &SpecJbbJob, output: &str) -> Result<Measured, LoadError> {
    let (own, kit) = output.split_once(KIT_SAID).ok_or_else(|| unreadable(output, "the kit said nothing"))?;
    let value = |name: &str| {
        let found = own.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim);
        found.map(str::to_owned).ok_or_else(|| unreadable(own, &format!("no `{name}` in it")))
    };
    job.settings().check(&job.label(), |flag| value(&format!("flag.{flag}")))?;
    let failed = |why: String| LoadError::WorkloadFailed { what: job.label(), why };
    let exceptions = value("exceptions")?;
    if exceptions != "0" {
        // Its other threads go on, and the kit prints what they did as if it were the work of all.
        return Err(failed(format!("{exceptions} threads of it ended by an exception: {}", first_exception(kit))));
    }
    if let Some(line) = kit.lines().find(|line| line.contains(INVALID)) {
        return Err(failed(format!("the kit found: {}", short(line))));
    }
    let title = job.kit.edition.title();
    let mut notes = vec![format!(
        "this is not a compliant run of {title}, so it is not a result of SPEC's and may not be published as one"
    )];
    let metrics = match job.kit.edition {
        KitEdition::Of2005 => vec![one_point(kit)?],
        KitEdition::Of2015 => {
            let (most, critical) = run_result(kit)?;
            if critical.is_none() {
                notes.push("no rate of it met the kit's time limits, so it has no score under them".to_owned());
            }
            std::iter::once(most).chain(critical).collect()
        }
    };
    notes.push(value("vm")?);
    Ok(Measured { metrics, notes })
}

/// Operations a second of the only point.
fn one_point(kit: &str) -> Result<Metric, LoadError> {
    let found: Vec<&str> =
        kit.lines().filter_map(|line| line.trim().strip_prefix(POINT.0)?.strip_suffix(POINT.1)).collect();
    let [only] = found[..] else {
        return Err(unreadable(kit, &format!("{} points with a throughput in it, and there must be one", found.len())));
    };
    let score = only.trim().parse::<f64>().ok().and_then(score);
    score.ok_or_else(|| unreadable(only, "a throughput that is not a number above zero"))
}

/// The most operations a second, and those under the kit's time limits, where any were.
fn run_result(kit: &str) -> Result<(Metric, Option<Metric>), LoadError> {
    let found: Vec<&str> = kit.lines().filter_map(|line| line.trim().strip_prefix(RESULT)).collect();
    let [only] = found[..] else {
        return Err(unreadable(kit, &format!("{} results of a run in it, and there must be one", found.len())));
    };
    let value = |name: &str| {
        let mut parts = only.split(',').filter_map(|part| part.split_once('='));
        parts.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
    };
    let most = value("max-jOPS").and_then(|text| text.parse::<f64>().ok()).and_then(score);
    let most = most.ok_or_else(|| unreadable(only, "no max-jOPS above zero in it"))?;
    // It is 0, or a word, where no rate met the limits.
    let critical = value("critical-jOPS").ok_or_else(|| unreadable(only, "no critical-jOPS in it"))?;
    let critical =
        critical.parse().ok().and_then(|value| Metric::new("score.critical", Unit::TransactionsPerSecond, value));
    Ok((most, critical))
}

fn score(value: f64) -> Option<Metric> {
    Metric::new(SCORE, Unit::TransactionsPerSecond, value)
}

/// The line of the first exception that is left of what the kit printed.
fn first_exception(kit: &str) -> String {
    kit.lines().find(|line| line.contains("Exception in thread")).map_or_else(|| "see its log".to_owned(), short)
}

fn short(line: &str) -> String {
    line.trim().chars().take(200).collect()
}

fn unreadable(output: &str, why: &str) -> LoadError {
    crate::unreadable("what the kit printed", why, output)
}

#[cfg(test)]
mod tests;
