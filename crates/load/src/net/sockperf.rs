//! sockperf's ping-pong: its arguments, and its output. The same binary runs on bare metal and in the guest.
//!
//! It keeps the time of every round trip, so it knows the 99.9th percentile, for which netperf has no selector. Checked against
//! 3.7 (Debian 12 and 13) and the source of 3.8 to 3.10. What it hides is looked for here: it ends with 0 whatever happens,
//! and a UDP message that gets lost stalls it to the end of the run without being counted as dropped.

use std::net::IpAddr;
use std::time::Duration;

use super::test::NetTest;
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// Its name, and that of Debian's package.
pub(super) const PROGRAM: &str = "sockperf";
/// How long it compares its clocks (0.1 s, `ticks.cpp`) and sleeps (2 s, `client.cpp`) before the run.
pub(super) const RAMP: Duration = Duration::from_millis(2100);
/// Seconds it takes beyond `-t`, and beyond one to start: 2.2 to 2.5 s in all, and from 3.8 on it warms up beside them.
pub(super) const BESIDE: u32 = 2;
/// Where its server listens; sockperf's own default, said aloud.
const PORT: &str = "11111";
/// Seconds at the beginning and the end of a run that it leaves out (`TEST_START_WARMUP_MSEC`, `TEST_END_COOLDOWN_MSEC`).
const LEFT_OUT: f64 = 0.4 + 0.05;
/// A last message that waited longer than this, in seconds, and twice as long as any that was answered, is lost.
const LOST_AFTER: f64 = 0.2;
/// Percentiles as it prints them, their names, and the observations without which there is none beyond: it would print the
/// largest value instead.
const PERCENTILES: [(&str, &str, f64); 4] =
    [("50.000", "p50", 2.0), ("90.000", "p90", 10.0), ("99.000", "p99", 100.0), ("99.900", "p99.9", 1000.0)];

/// What to do about messages that are lost.
const LOOK: &str = "look for errors on the port and on the peer's with `ip -statistics link`";
/// The lines of the run as a whole, and of what it counts.
const WHOLE: &str = "[Total Run]";
const VALID: &str = "[Valid Duration]";

/// What carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// What the peer must run.
    pub(super) fn server(self) -> String {
        format!("{PROGRAM} server{} -p {PORT} --daemonize", if self == Self::Tcp { " --tcp" } else { "" })
    }
}

/// The command, program first. Without `--full-rtt` it would print half round trips, which nobody measured.
pub(super) fn command(protocol: Protocol, peer: IpAddr, seconds: u32) -> Vec<String> {
    let words = [PROGRAM, "ping-pong", "-i", &peer.to_string(), "-p", PORT, "-t", &seconds.to_string(), "--full-rtt"];
    let tcp = (protocol == Protocol::Tcp).then_some("--tcp");
    words.into_iter().chain(tcp).map(str::to_owned).collect()
}

/// Reads what it printed: rate and percentiles of what it calls the valid part.
pub(super) fn read(test: NetTest, protocol: Protocol, text: &str) -> Result<Vec<Metric>, LoadError> {
    let text = &plain(text);
    let failed = |why: String| LoadError::WorkloadFailed { what: PROGRAM.to_owned(), why };
    let unreadable = |why: &str| LoadError::Unreadable {
        what: "sockperf's output".to_owned(),
        why: why.to_owned(),
        text: text.chars().take(200).collect(),
    };
    if let Some(why) = complaint(text, protocol) {
        return Err(failed(why));
    }
    let number = |line: &str, key: &str| {
        let found = text.lines().find(|found| found.contains(line)).and_then(|found| number_after(found, key));
        found.ok_or_else(|| unreadable(&format!("it has no line `{line}` with a number behind `{key}`")))
    };
    let (total, answers) = (number(WHOLE, "RunTime=")?, number(WHOLE, "ReceivedMessages=")?);
    let (valid, observations) = (number(VALID, "RunTime=")?, number(VALID, "ReceivedMessages=")?);
    if !text.contains("avg-rtt=") {
        return Err(unreadable("it does not speak of full round trips"));
    }
    if valid > total || observations > answers {
        return Err(unreadable("its valid part is more than the whole"));
    }
    let amiss = ["dropped", "duplicated", "out-of-order"].map(|kind| {
        let count = number("# dropped messages", &format!("{kind} messages ="))?;
        Ok((count > 0.0).then(|| format!("{count} {kind}")))
    });
    let amiss = amiss.into_iter().collect::<Result<Vec<_>, LoadError>>()?;
    let amiss: Vec<String> = amiss.into_iter().flatten().collect();
    if !amiss.is_empty() {
        return Err(failed(format!(
            "{} of {answers} messages, where one at a time over a cable there is none: {LOOK}",
            amiss.join(", ")
        )));
    }
    // The shortest is the last line: without it the output was cut, perhaps within a number.
    let (longest, shortest) = (number("<MAX> observation", "=")?, number("<MIN> observation", "=")?);
    let waited = total - valid - LEFT_OUT;
    if waited > LOST_AFTER && waited > 2.0 * longest / 1e6 {
        return Err(failed(format!(
            "a message was lost or held up after {answers}: the client waited the last {waited:.2} s for it, and {:.3} s at most for others: {LOOK}",
            longest / 1e6
        )));
    }
    let rate = Metric::new(&test.rate(), Unit::TransactionsPerSecond, observations / valid);
    let mut metrics = vec![rate.ok_or_else(|| unreadable("nothing was moved"))?];
    let mut last = shortest;
    for (key, name, least) in PERCENTILES {
        let value = number(&format!("percentile {key} "), "=")?;
        if value < last || value > longest {
            return Err(unreadable("its percentiles are not in order"));
        }
        last = value;
        if observations >= least {
            metrics.extend(Metric::new(&format!("{}.{name}", test.id()), Unit::Nanoseconds, value * 1e3));
        }
    }
    Ok(metrics)
}

/// What it says went wrong, and what to do about it. It ends with 0 all the same.
fn complaint(text: &str, protocol: Protocol) -> Option<String> {
    let start = || format!("start `{}` on the peer (package `{PROGRAM}`)", protocol.server());
    if text.contains("No messages were received") {
        return Some(format!("nothing answers on the peer's port {PORT}: {}", start()));
    }
    if text.contains("No valid observations found") {
        return Some(format!(
            "every answer came in the {LEFT_OUT} s it leaves out: a message was lost ({LOOK}), or the run was too short (--seconds)"
        ));
    }
    let line = text.lines().find(|line| line.contains("ERROR:") || line.contains("Invalid "))?;
    let words: String = line.trim_start_matches("sockperf:").trim().chars().take(200).collect();
    Some(if words.contains("connect socket") { format!("{words}: {}", start()) } else { words })
}

/// The text without the colours it always prints, and without other control characters.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            '\x1b' => drop(rest.find(char::is_ascii_alphabetic)),
            '\n' => plain.push(next),
            next if next.is_control() => {}
            next => plain.push(next),
        }
    }
    plain
}

/// The number behind a key: digits and a point, nothing else, so neither signs nor infinities.
fn number_after(line: &str, key: &str) -> Option<f64> {
    let (_, rest) = line.split_once(key)?;
    let rest = rest.trim_start();
    let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests;
