//! netperf: its arguments, and its output. The same binary runs on bare metal and in the guest.

use std::net::IpAddr;

use super::test::NetTest;
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// Its name.
pub(super) const PROGRAM: &str = "netperf";

/// What is asked for beside the rate. Latencies are microseconds (netperf 2.7, "Omni Output Selectors").
const LATENCIES: [(&str, &str); 3] = [("P50_LATENCY", "p50"), ("P90_LATENCY", "p90"), ("P99_LATENCY", "p99")];

/// The command for its test `name`, program first.
pub(super) fn command(name: &str, stream: bool, peer: IpAddr, seconds: u32) -> Vec<String> {
    let mut keys = vec!["THROUGHPUT", "THROUGHPUT_UNITS", "ELAPSED_TIME"];
    if !stream {
        keys.extend(LATENCIES.map(|(key, _)| key));
    }
    let words = [PROGRAM, "-H", &peer.to_string(), "-t", name, "-l", &seconds.to_string(), "-P", "0"];
    // A format that is named makes bits of transactions too (netperf 2.7.1); streams want one.
    let format = if stream { &["-f", "m"][..] } else { &[] };
    let words = words.iter().chain(format).chain(&["--", "-k"]).map(|word| (*word).to_owned());
    words.chain([keys.join(",")]).collect()
}

/// A few transactions, to see that the peer answers and to fill the tables of neighbours.
pub fn greeting(peer: IpAddr) -> Vec<String> {
    [PROGRAM, "-H", &peer.to_string(), "-t", "TCP_RR", "-l", "-20", "-P", "0"].map(str::to_owned).to_vec()
}

/// Reads `KEY=VALUE` lines.
pub(super) fn read(test: NetTest, stream: bool, text: &str) -> Result<Vec<Metric>, LoadError> {
    let unreadable = |why: String| LoadError::Unreadable {
        what: "netperf's output".to_owned(),
        why,
        text: text.chars().take(200).collect(),
    };
    let value = |key: &str| {
        let found = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        found.map(str::trim).ok_or_else(|| unreadable(format!("it has no {key}")))
    };
    let number = |key: &str| {
        let found = value(key)?;
        let parsed = found.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        parsed.ok_or_else(|| unreadable(format!("{key} is `{found}`, no number")))
    };
    let rate = number("THROUGHPUT")?;
    // When it measured is read apart; without it nothing shows that it did.
    number("ELAPSED_TIME")?;
    let (unit, factor) = match (stream, value("THROUGHPUT_UNITS")?) {
        (true, "10^6bits/s") => (Unit::BitsPerSecond, 1e6),
        (false, "Trans/s") => (Unit::TransactionsPerSecond, 1.0),
        (_, other) => return Err(unreadable(format!("its rate is in `{other}`"))),
    };
    let mut metrics: Vec<Metric> = Metric::new(&test.rate(), unit, rate * factor).into_iter().collect();
    if metrics.is_empty() {
        return Err(unreadable("nothing was moved".to_owned()));
    }
    if !stream {
        for (key, name) in LATENCIES {
            let name = format!("{}.{name}", test.id());
            metrics.extend(Metric::new(&name, Unit::Nanoseconds, number(key)? * 1e3));
        }
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::super::test::read;
    use super::*;

    #[test]
    fn a_stream_and_a_round_trip_are_read_with_their_units() {
        let stream = "THROUGHPUT=941.25\nTHROUGHPUT_UNITS=10^6bits/s\nELAPSED_TIME=2.00\n";
        let moved = read(NetTest::TcpStream, stream).unwrap();
        assert_eq!(moved[0], Metric::new("tcp-stream.rate", Unit::BitsPerSecond, 941.25e6).unwrap());
        let round = "THROUGHPUT=2500.00\nTHROUGHPUT_UNITS=Trans/s\nELAPSED_TIME=2.00\nP50_LATENCY=380\nP90_LATENCY=500\nP99_LATENCY=900\n";
        let moved = read(NetTest::UdpRr, round).unwrap();
        let p99 = moved.iter().find(|metric| metric.name == "udp-rr.p99").unwrap();
        assert_eq!((p99.value, p99.unit), (900_000.0, Unit::Nanoseconds));
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for junk in [
            "",
            "THROUGHPUT=1\n",
            "THROUGHPUT=-nan\nTHROUGHPUT_UNITS=10^6bits/s\nELAPSED_TIME=2\n",
            "THROUGHPUT=0.0\nTHROUGHPUT_UNITS=10^6bits/s\nELAPSED_TIME=2\n",
            "THROUGHPUT=5\nTHROUGHPUT_UNITS=Trans/s\nELAPSED_TIME=2\n",
        ] {
            assert!(read(NetTest::TcpStream, junk).is_err(), "{junk:?}");
        }
    }
}
