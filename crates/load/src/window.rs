//! When a job ran, and how much of it ran beside the others.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LoadError;

/// The measured part of one job, in ms since 1970 on the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Its begin, ramp left out.
    pub began: f64,
    /// Its end.
    pub ended: f64,
}

impl Window {
    fn length(self) -> f64 {
        self.ended - self.began
    }

    /// The part of this one that is within another, from 0 to 1; none at all of one without a length.
    pub fn within(self, other: Self) -> f64 {
        let shared = self.ended.min(other.ended) - self.began.max(other.began);
        if self.length() > 0.0 { (shared / self.length()).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Reads it from fio's JSON: `job_start` (ms since 1970 on the clock of who ran it, since fio 3.34; set when measuring
/// begins) and `job_runtime` (ms). `ahead` is how far that clock is before the host's, in ms.
///
/// # Errors
/// Not fio's JSON, or a fio that does not say when its job began.
pub(crate) fn of_fio(output: &str, ahead: f64) -> Result<Window, LoadError> {
    let unreadable = |why: &str| LoadError::Unreadable {
        what: "the times in fio's output".into(),
        why: why.into(),
        text: output.chars().take(200).collect(),
    };
    let start = output.find('{').ok_or_else(|| unreadable("no JSON in it"))?;
    let document: Value = serde_json::from_str(&output[start..]).map_err(|error| unreadable(&error.to_string()))?;
    let number = |name: &str| {
        let value = document.pointer(&format!("/jobs/0/{name}")).and_then(Value::as_f64);
        value
            .filter(|value| *value > 0.0)
            .ok_or_else(|| unreadable(&format!("no `{name}` in it: fio 3.34 or newer is needed")))
    };
    let began = number("job_start")? - ahead;
    Ok(Window { began, ended: began + number("job_runtime")? })
}

/// Reads it from netperf's `ELAPSED_TIME` (s) and the stamps around the process (`BEGAN`, `ENDED`: ns since 1970 on the clock
/// of who ran it). netperf says how long it measured and not when, so the window is the one that surely was within the
/// measured part: from the latest it can have begun to the earliest it can have ended.
///
/// # Errors
/// One of them is missing, or setting up took longer than measuring.
pub(crate) fn of_netperf(output: &str, ahead: f64) -> Result<Window, LoadError> {
    let unreadable = |why: String| LoadError::Unreadable {
        what: "the times around netperf".into(),
        why,
        text: output.chars().take(200).collect(),
    };
    let number = |key: &str| {
        let found = output.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        let found = found.and_then(|value| value.trim().parse::<f64>().ok()).filter(|value| *value > 0.0);
        found.ok_or_else(|| unreadable(format!("no `{key}` in it")))
    };
    let (began, ended) = (number("BEGAN")? / 1e6 - ahead, number("ENDED")? / 1e6 - ahead);
    let measured = number("ELAPSED_TIME")? * 1e3;
    let window = Window { began: ended - measured, ended: began + measured };
    if window.length() > 0.0 {
        Ok(window)
    } else {
        Err(unreadable(format!(
            "it measured {measured:.0} ms and was there for {:.0} ms: longer samples are needed (--seconds)",
            ended - began
        )))
    }
}

/// The part of the longest job during which all ran, from 0 to 1. None at all where one began after another had ended.
pub fn overlap(windows: &[Window]) -> f64 {
    let latest = windows.iter().map(|window| window.began).fold(f64::NEG_INFINITY, f64::max);
    let earliest = windows.iter().map(|window| window.ended).fold(f64::INFINITY, f64::min);
    let longest = windows.iter().map(|window| window.length()).fold(0.0, f64::max);
    if longest > 0.0 { ((earliest - latest) / longest).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(began: f64, ended: f64) -> Window {
        Window { began, ended }
    }

    #[test]
    fn the_overlap_is_what_all_share() {
        assert_eq!(overlap(&[window(0.0, 100.0)]), 1.0);
        assert_eq!(overlap(&[window(0.0, 100.0), window(10.0, 110.0), window(5.0, 105.0)]), 0.9);
        assert_eq!(overlap(&[window(0.0, 100.0), window(100.0, 200.0)]), 0.0);
        assert_eq!(overlap(&[window(0.0, 100.0), window(300.0, 400.0)]), 0.0);
        // One that stopped early is as bad as one that came late.
        assert_eq!(overlap(&[window(0.0, 100.0), window(0.0, 50.0)]), 0.5);
        assert_eq!(overlap(&[]), 0.0);
    }

    #[test]
    fn a_part_of_the_time_is_within_another_or_is_not() {
        assert_eq!(window(10.0, 20.0).within(window(0.0, 100.0)), 1.0);
        assert_eq!(window(10.0, 20.0).within(window(15.0, 100.0)), 0.5);
        assert_eq!(window(10.0, 20.0).within(window(0.0, 12.0)), 0.2);
        assert_eq!(window(10.0, 20.0).within(window(20.0, 30.0)), 0.0);
        assert_eq!(window(10.0, 20.0).within(window(50.0, 60.0)), 0.0);
        assert_eq!(window(10.0, 10.0).within(window(0.0, 30.0)), 0.0);
    }

    #[test]
    fn netperf_surely_measured_between_the_latest_begin_and_the_earliest_end() {
        // Half a second to set up, three of measuring.
        let text = "ELAPSED_TIME=3.00\nBEGAN=1000000000000\nENDED=1003500000000\n";
        assert_eq!(of_netperf(text, 0.0).unwrap(), window(1_000_500.0, 1_003_000.0));
        assert_eq!(of_netperf(text, 500.0).unwrap(), window(1_000_000.0, 1_002_500.0));
        let slow = "ELAPSED_TIME=1.00\nBEGAN=1000000000000\nENDED=1003000000000\n";
        assert!(of_netperf(slow, 0.0).unwrap_err().to_string().contains("--seconds"));
        for junk in
            ["", "ELAPSED_TIME=3\n", "ELAPSED_TIME=x\nBEGAN=1\nENDED=2\n", "ELAPSED_TIME=nan\nBEGAN=1\nENDED=2\n"]
        {
            assert!(of_netperf(junk, 0.0).is_err(), "{junk}");
        }
    }

    #[test]
    fn moments_that_no_clock_shows_are_refused() {
        let job = crate::NetJob { test: crate::NetTest::TcpStream, peer: [192, 0, 2, 1].into(), seconds: 3 };
        let text = "ELAPSED_TIME=3.00\nBEGAN=1e400\nENDED=1003500000000\n";
        let why = crate::Workload::from(job).window(text, 0.0).unwrap_err().to_string();
        assert!(why.contains("are not finite numbers"), "{why}");
    }

    #[test]
    fn fio_tells_when_it_measured_on_its_own_clock() {
        let text = r#"{"jobs":[{"job_start":1795324708891,"job_runtime":3002}]}"#;
        assert_eq!(of_fio(text, 1000.0).unwrap(), window(1_795_324_707_891.0, 1_795_324_710_893.0));
        for junk in ["", "{}", r#"{"jobs":[{"job_runtime":3002}]}"#, r#"{"jobs":[{"job_start":0,"job_runtime":3002}]}"#]
        {
            assert!(of_fio(junk, 0.0).is_err(), "{junk}");
        }
    }
}
