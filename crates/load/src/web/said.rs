//! What the program says: what the server runs with, the probe's proof that it serves what was written, then a part for the load
//! before the measured one and a part for that.

use serde_json::Value;

use super::{RATE, WebJob};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};
use crate::server::Said;
use crate::{Load as _, Measured, Window};

/// Service times by wrk's numbers, their names here, and the requests without which there is none. A closed loop has no other times.
const TIMES: [(&str, &str, u64); 3] = [
    ("time_us.p50", "service.p50", FEWEST),
    ("time_us.p95", "service.p95", FEWEST),
    ("time_us.p99", "service.p99", 100),
];
/// Requests without which a percentile says nothing.
const FEWEST: u64 = 30;

/// What wrk counts beside answers, and what each is.
const ERRORS: [(&str, &str); 5] = [
    ("errors.connect", "connections could not be made"),
    ("errors.read", "connections were lost before their answer was whole"),
    ("errors.write", "connections were lost before their request was sent"),
    ("errors.status", "requests were refused by the server"),
    ("errors.timeout", "answers took longer than wrk waits for one"),
];

/// Settings of the network that the run has for itself: a host may have been tuned, and a clone's guest was not.
pub const OF_ITS_NETWORK: [(&str, &str); 3] =
    [("tcp_congestion_control", "reno"), ("tcp_rmem", "4096 131072 6291456"), ("tcp_wmem", "4096 16384 4194304")];

/// How much shorter than it was asked to be a run may be by wrk's clock: it sleeps whole seconds.
const SHORTEST: f64 = 0.99;

/// Reads all of it.
///
/// # Errors
/// The server has other workers than were asked for, served something else than was written, answered otherwise than with 200, lost
/// a connection, or was asked nothing; or a part is missing.
pub(super) fn read(job: &WebJob, output: &str) -> Result<Measured, LoadError> {
    let workers = whole(output, "server.workers")?;
    if workers != u64::from(job.workers) {
        let why = format!(
            "the server has {workers} workers, and {} were asked for, one a vCPU: has this side as many PUs?",
            job.workers
        );
        return Err(failed(job, why));
    }
    for (name, asked) in OF_ITS_NETWORK {
        let found = said(output).value(&format!("setting.{name}"))?;
        if found != asked {
            return Err(failed(job, format!("its network has {name} = {found}, and {asked} is what all sides have")));
        }
    }
    proof(job, output)?;
    let (ramp, measured) = parts(output)?;
    clean(job, ramp, "before the measured part")?;
    clean(job, measured, "in the measured part")?;
    let others = whole(output, "other_answers")?;
    if others > 0 {
        return Err(failed(job, format!("{others} answers were not 200")));
    }
    let requests = whole(measured, "requests")?;
    if requests == 0 {
        return Err(failed(job, "no request was answered in the measured part".to_owned()));
    }
    let seconds = whole(measured, "duration_us")? as f64 / 1e6;
    if seconds < f64::from(job.seconds) * SHORTEST {
        return Err(unreadable(output, &format!("it measured {seconds} s, and {} were asked for", job.seconds)));
    }
    let metric = |name, unit, value: f64| {
        Metric::new(name, unit, value).ok_or_else(|| unreadable(measured, &format!("`{name}` would be {value}")))
    };
    let mut metrics = vec![
        metric(RATE, Unit::TransactionsPerSecond, requests as f64 / seconds)?,
        metric("bandwidth", Unit::BytesPerSecond, whole(measured, "bytes")? as f64 / seconds)?,
    ];
    metrics.extend(times(measured, requests)?);
    Ok(Measured { metrics, notes: notes(job, output, requests) })
}

/// When the load was measured.
///
/// # Errors
/// It does not say.
pub(super) fn window(output: &str, ahead: f64) -> Result<Window, LoadError> {
    let (_, measured) = parts(output)?;
    let ended = whole(measured, "ended_ms")? as f64;
    let began = ended - whole(measured, "duration_us")? as f64 / 1e3;
    match began > 0.0 && ended > began {
        true => Ok(Window { began: began - ahead, ended: ended - ahead }),
        false => Err(unreadable(output, "it ended before it began")),
    }
}

/// The service times, which must be of as many requests as were answered: what wrk adds to them is out again.
fn times(measured: &str, requests: u64) -> Result<Vec<Metric>, LoadError> {
    let all = whole(measured, "times")?;
    if all != requests {
        return Err(unreadable(measured, &format!("{requests} requests, and the times of {all}")));
    }
    let mut metrics: Vec<Metric> = Vec::new();
    for (name, ours, _) in TIMES.iter().filter(|(_, _, fewest)| requests >= *fewest) {
        let nanoseconds = whole(measured, name)? as f64 * 1e3;
        let metric = Metric::new(ours, Unit::Nanoseconds, nanoseconds)
            .filter(|metric| metrics.last().is_none_or(|below| below.value <= metric.value));
        metrics.push(metric.ok_or_else(|| unreadable(measured, &format!("`{name}` is {nanoseconds} ns")))?);
    }
    Ok(metrics)
}

/// Of a part, that nothing went wrong which wrk only counts.
fn clean(job: &WebJob, part: &str, when: &str) -> Result<(), LoadError> {
    for (name, what) in ERRORS {
        let count = whole(part, name)?;
        if count > 0 {
            return Err(failed(job, format!("{when}, {count} {what}")));
        }
    }
    Ok(())
}

/// What the probe found when it asked for files itself and held each against what it must be.
fn proof(job: &WebJob, output: &str) -> Result<(), LoadError> {
    let line = output.lines().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| unreadable(output, "no proof in it that the server serves what was written"))?;
    let document: Value = serde_json::from_str(line).map_err(|error| unreadable(line, &error.to_string()))?;
    if document.pointer("/command").and_then(Value::as_str) != Some("load http") {
        return Err(unreadable(line, "it is not of `nearmetal-probe load http`"));
    }
    for list in ["failures", "lost"] {
        let found = document.pointer(&format!("/result/{list}")).and_then(Value::as_array);
        let found = found.ok_or_else(|| unreadable(line, &format!("no `{list}` in it")))?;
        if let Some(first) = found.first() {
            let first = first.get("first").and_then(Value::as_str).unwrap_or("it does not say why");
            let first: String = first.chars().take(200).collect();
            return Err(failed(job, format!("the server does not serve what was written: {first}")));
        }
    }
    match document.pointer("/result/finished").and_then(Value::as_u64) {
        Some(0) => Err(failed(job, "the server answered nothing before the load".to_owned())),
        Some(_) => Ok(()),
        None => Err(unreadable(line, "no `finished` in it")),
    }
}

/// What is worth keeping of the server, and what its times are.
fn notes(job: &WebJob, output: &str, requests: u64) -> Vec<String> {
    let version = said(output).find("server.version").map(|version| version.chars().take(80).collect::<String>());
    let server = version.map(|version| format!("{version}, workers: {}", job.workers));
    let times = if requests < FEWEST {
        format!("{requests} requests are too few for service times: take longer samples (--seconds)")
    } else {
        format!(
            "service times are those of a closed loop of {} connections: a server that stands still is not asked meanwhile",
            job.connections
        )
    };
    server.into_iter().chain([times]).collect()
}

/// What was said of the load before the measured one, and of that.
fn parts(output: &str) -> Result<(&str, &str), LoadError> {
    let (_, rest) = output
        .split_once("\nload ramp\n")
        .ok_or_else(|| unreadable(output, "no load before the measured one in it"))?;
    rest.split_once("\nload measured\n").ok_or_else(|| unreadable(output, "no measured load in it"))
}

/// A number of one of its lines.
fn whole(text: &str, name: &str) -> Result<u64, LoadError> {
    said(text).whole(name)
}

fn said(text: &str) -> Said<'_> {
    Said { what: "what the web server's load printed", text }
}

fn failed(job: &WebJob, why: String) -> LoadError {
    LoadError::WorkloadFailed { what: job.label(), why }
}

fn unreadable(output: &str, why: &str) -> LoadError {
    said(output).unreadable(why)
}

#[cfg(test)]
mod tests;
