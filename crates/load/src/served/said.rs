//! What `nearmetal-probe load` prints (docs/reference/probe.md), as values.

use serde_json::Value;

use super::{ANSWERED, OFFERED, ServedJob};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};
use crate::tile::Limit;
use crate::{Load as _, Measured, Window};

/// Percentiles by their names in the output, what they are called here, and the requests without which there is none.
const PERCENTILES: [(&str, &str, u64); 5] = [
    ("p50", "latency.p50", 10),
    ("p90", "latency.p90", 30),
    ("p95", "latency.p95", 30),
    ("p99", "latency.p99", 100),
    ("p99_9", "latency.p99.9", 1000),
];
/// The failure that is a slow server's, and no broken one's.
const TIMEOUT: &str = "timeout";

/// Reads all of it.
///
/// # Errors
/// It is no such document, or not of this job; nothing was answered; or a request failed for another reason than its time.
pub(super) fn read(job: &ServedJob, output: &str) -> Result<Measured, LoadError> {
    let said = Said::of(output)?;
    said.is_of(job)?;
    let (offered, answered) = (said.whole("offered")?, said.whole("answered")?);
    let (dropped, failed) = (said.whole("dropped")?, said.whole("failed")?);
    if offered == 0 || answered.checked_add(dropped).and_then(|sum| sum.checked_add(failed)) != Some(offered) {
        return Err(said.unreadable(&format!(
            "of {offered} requests {answered} were answered, {dropped} dropped, and {failed} failed: it does not add up"
        )));
    }
    let is_broken = |failure: &&Failure| failure.kind != TIMEOUT;
    if let Some(broken) = said.failures("failures")?.iter().find(is_broken) {
        let why = format!("{} requests were not answered as they must: {}", broken.count, broken.first);
        return Err(failed_sample(job, why));
    }
    // A server that only is slow keeps its connections.
    if let Some(broken) = said.failures("lost")?.iter().find(is_broken) {
        let why = format!("{} connections were lost or could not be made: {}", broken.count, broken.first);
        return Err(failed_sample(job, why));
    }
    if answered == 0 {
        return Err(failed_sample(job, format!("none of {offered} requests was answered: is the server still there?")));
    }
    let seconds = f64::from(job.size.seconds);
    let mut metrics: Vec<Metric> = [
        Metric::new(ANSWERED, Unit::TransactionsPerSecond, answered as f64 / seconds),
        Metric::new(OFFERED, Unit::TransactionsPerSecond, offered as f64 / seconds),
        Metric::new("bytes", Unit::BytesPerSecond, said.number("bytes_per_second")?),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (place, limit) in job.within.iter().enumerate() {
        let within = said.within(place, *limit)?;
        if within > answered {
            return Err(said.unreadable(&format!("{within} of {answered} answers within {limit} ms")));
        }
        metrics.extend(Metric::new(&Limit::name(*limit), Unit::Share, within as f64 / offered as f64));
    }
    for (name, ours, fewest) in PERCENTILES {
        // `null` where it falls among those without an answer.
        let value = said.0.pointer(&format!("/result/latency/{name}")).and_then(Value::as_f64);
        metrics
            .extend(value.filter(|_| offered >= fewest).and_then(|value| Metric::new(ours, Unit::Nanoseconds, value)));
    }
    Ok(Measured { metrics, notes: notes(job, &said, (offered, answered))? })
}

/// When it measured.
///
/// # Errors
/// It does not say.
pub(super) fn window(output: &str, ahead: f64) -> Result<Window, LoadError> {
    let said = Said::of(output)?;
    let (began, ended) = (said.number("began_ms")?, said.number("ended_ms")?);
    match began > 0.0 && ended > began {
        true => Ok(Window { began: began - ahead, ended: ended - ahead }),
        false => Err(said.unreadable("it ended before it began")),
    }
}

/// What a reader of its figures must know.
fn notes(job: &ServedJob, said: &Said<'_>, (offered, answered): (u64, u64)) -> Result<Vec<String>, LoadError> {
    let mut notes = Vec::new();
    if answered < offered {
        notes.push(format!(
            "{} of {offered} requests had no answer within {} s and count as too late",
            offered - answered,
            job.timeout() / 1000
        ));
    }
    let (late, reconnects) = (said.whole("late")?, said.whole("reconnects")?);
    if late > 0 {
        notes.push(format!("{late} requests waited for one of {} connections; that time counts", job.connections()));
    }
    if reconnects > 0 {
        notes.push(format!("{reconnects} connections were made anew"));
    }
    let lag = said.0.pointer("/result/generator/lag/p99").and_then(Value::as_f64);
    let lag = lag.ok_or_else(|| said.unreadable("it does not say how late the generator was"))?;
    notes.push(format!("99 % of the requests went out within {:.2} ms of when they were due", lag / 1e6));
    Ok(notes)
}

/// One kind of failure.
struct Failure {
    kind: String,
    count: u64,
    first: String,
}

/// What the program said, and the same read.
struct Said<'o>(Value, &'o str);

impl<'o> Said<'o> {
    fn of(output: &'o str) -> Result<Self, LoadError> {
        // What it says to people comes before or after the document where both outputs are one.
        let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let document: Value = serde_json::from_str(line).map_err(|error| unreadable(&error.to_string(), output))?;
        let said = Self(document, output);
        match said.0.pointer("/schema").and_then(Value::as_str) {
            Some("nearmetal-probe") if said.text("pace")? == "open" => Ok(said),
            Some("nearmetal-probe") => Err(said.unreadable("it is of a closed loop, which gives no times")),
            _ => Err(said.unreadable("it is not of the schema `nearmetal-probe`")),
        }
    }

    /// Refuses the figures of another job.
    fn is_of(&self, job: &ServedJob) -> Result<(), LoadError> {
        let asked = (job.endpoint().to_string(), job.rate.get(), u64::from(job.size.seconds));
        let found = (self.text("address")?.to_owned(), self.number("rate")?, self.whole("seconds")?);
        match found == asked {
            true => Ok(()),
            false => Err(self.unreadable(&format!("{asked:?} was asked for, and it is of {found:?}"))),
        }
    }

    fn unreadable(&self, why: &str) -> LoadError {
        unreadable(why, self.1)
    }

    fn at(&self, name: &str) -> Option<&Value> {
        self.0.pointer(&format!("/result/{name}"))
    }

    fn text(&self, name: &str) -> Result<&str, LoadError> {
        self.at(name).and_then(Value::as_str).ok_or_else(|| self.unreadable(&format!("no `{name}` in it")))
    }

    fn number(&self, name: &str) -> Result<f64, LoadError> {
        self.at(name).and_then(Value::as_f64).ok_or_else(|| self.unreadable(&format!("no `{name}` in it")))
    }

    fn whole(&self, name: &str) -> Result<u64, LoadError> {
        self.at(name).and_then(Value::as_u64).ok_or_else(|| self.unreadable(&format!("no `{name}` in it")))
    }

    /// Requests answered within a limit, the limits being in the order in which they were asked for.
    fn within(&self, place: usize, limit: u32) -> Result<u64, LoadError> {
        match self.whole(&format!("within/{place}/limit_ms"))? == u64::from(limit) {
            true => self.whole(&format!("within/{place}/count")),
            false => Err(self.unreadable(&format!("its limit {place} is not {limit} ms"))),
        }
    }

    /// Failures, by the name of their list.
    fn failures(&self, name: &str) -> Result<Vec<Failure>, LoadError> {
        let all =
            self.at(name).and_then(Value::as_array).ok_or_else(|| self.unreadable(&format!("no `{name}` in it")))?;
        let read = |failure: &Value| {
            let text = |name: &str| failure.get(name)?.as_str().map(|text| text.chars().take(200).collect::<String>());
            Some(Failure { kind: text("kind")?, count: failure.get("count")?.as_u64()?, first: text("first")? })
        };
        let read =
            |failure| read(failure).ok_or_else(|| self.unreadable("a failure without its kind, count or reason"));
        all.iter().map(read).collect()
    }
}

fn failed_sample(job: &ServedJob, why: String) -> LoadError {
    LoadError::WorkloadFailed { what: job.label(), why }
}

fn unreadable(why: &str, output: &str) -> LoadError {
    crate::unreadable("what `nearmetal-probe load` printed", why, output)
}

#[cfg(test)]
mod tests;
