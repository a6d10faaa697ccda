//! Of nginx 1.26.3 and wrk 4.1.0 of the loads image, on a file of a machine with two processors that were busy with other things too.

use proptest::prelude::*;

use super::*;

const SAID: &str = include_str!("../said.txt");

fn job() -> WebJob {
    WebJob::small()
}

fn why(said: &str) -> String {
    read(&job(), said).unwrap_err().to_string()
}

/// With another value in the last line of this name: the measured part's.
fn with(name: &str, value: &str) -> String {
    let at = SAID.rfind(&format!("\n{name} ")).unwrap() + 1;
    let end = at + SAID[at..].find('\n').unwrap();
    format!("{}{name} {value}{}", &SAID[..at], &SAID[end..])
}

#[test]
fn requests_a_second_are_those_of_wrks_own_report() {
    let measured = read(&job(), SAID).unwrap();
    let found = |name: &str| measured.metrics.iter().find(|metric| metric.name == name).unwrap();
    let own = SAID.lines().filter_map(|line| line.strip_prefix("Requests/sec:")).next_back().unwrap();
    let own: f64 = own.trim().parse().unwrap();
    assert_eq!(found(RATE).unit, Unit::TransactionsPerSecond);
    assert!((found(RATE).value - own).abs() < 0.01, "{own}");
    // MB of 2^20 bytes.
    let own = SAID.lines().filter_map(|line| line.strip_prefix("Transfer/sec:")).next_back().unwrap();
    let own: f64 = own.trim().strip_suffix("MB").unwrap().parse().unwrap();
    assert!((found("bandwidth").value / f64::from(1 << 20) - own).abs() < 0.01, "{own}");
    let times = ["service.p50", "service.p95", "service.p99"].map(|name| found(name).value);
    assert!(times[0] >= 1e3 && times[0] < times[1] && times[1] < times[2], "{times:?}");
    assert!(times.iter().all(|time| *time < 10e9));
}

#[test]
fn a_reader_is_told_the_server_and_whose_times_they_are() {
    let notes = read(&job(), SAID).unwrap().notes;
    assert_eq!(notes[0], "nginx/1.26.3, workers: 2");
    assert!(notes[1].contains("those of a closed loop of 16 connections"), "{notes:?}");
}

#[test]
fn the_window_is_the_measured_parts() {
    let found = window(SAID, 90.0).unwrap();
    let ended: f64 =
        SAID.lines().filter_map(|line| line.strip_prefix("ended_ms ")).next_back().unwrap().parse().unwrap();
    assert_eq!(found.ended, ended - 90.0);
    assert!((found.ended - found.began - 4_000.0).abs() < 200.0, "{found:?}");
    assert!(window("", 0.0).is_err() && window(&with("duration_us", "0"), 0.0).is_err());
    assert!(window(&with("duration_us", "99999999999999999"), 0.0).is_err());
}

#[test]
fn what_wrk_only_counts_fails_the_sample_even_in_the_load_before() {
    for (name, what) in ERRORS {
        assert!(why(&with(name, "3")).contains(&format!("in the measured part, 3 {what}")));
        let before = SAID.replacen(&format!("\n{name} 0"), &format!("\n{name} 7"), 1);
        assert!(why(&before).contains(&format!("before the measured part, 7 {what}")), "{}", why(&before));
    }
    assert!(why(&with("other_answers", "5")).contains("5 answers were not 200"));
    assert!(why(&with("requests", "0")).contains("no request was answered"));
}

#[test]
fn a_network_that_was_tuned_is_no_arm_and_the_script_sets_what_is_asked_for() {
    let script = include_str!("../../../../../lab/loads/web/load");
    for (name, asked) in OF_ITS_NETWORK {
        assert!(script.lines().any(|line| line.replace('\'', "") == format!("set_tcp {name} {asked}")), "{name}");
        let tuned = SAID.replace(&format!("setting.{name} {asked}"), &format!("setting.{name} other"));
        assert!(why(&tuned).contains(&format!("{name} = other, and {asked}")), "{}", why(&tuned));
    }
}

#[test]
fn a_server_with_other_workers_or_other_files_is_no_arm() {
    let one = SAID.replace("server.workers 2", "server.workers 1");
    assert!(why(&one).contains("1 workers, and 2 were asked for"), "{}", why(&one));
    let wrong = r#""failures":[{"kind":"wrong-answer","count":9,"first":"the answer has 5 bytes"}]"#;
    assert!(why(&SAID.replace(r#""failures":[]"#, wrong)).contains("the answer has 5 bytes"));
    let lost = r#""lost":[{"kind":"closed","count":9,"first":"the server closed it"}]"#;
    assert!(why(&SAID.replace(r#""lost":[]"#, lost)).contains("the server closed it"));
    let (before, after) = SAID.split_once(r#""finished":"#).unwrap();
    let none = format!(r#"{before}"finished":0{}"#, &after[after.find(',').unwrap()..]);
    assert!(why(&none).contains("answered nothing"), "{}", why(&none));
    assert!(why(&SAID.replace("load http", "load imap")).contains("not of `nearmetal-probe load http`"));
    for field in [r#""failures":"#, r#""lost":"#, r#""finished":"#] {
        assert!(read(&job(), &SAID.replacen(field, r#""other":"#, 1)).is_err(), "{field}");
    }
}

#[test]
fn times_that_are_not_of_all_requests_are_no_times() {
    assert!(why(&with("times", "3")).contains("and the times of 3"));
    for wrong in ["0", "-1", "nan", "1e3", "18446744073709551616", "fast"] {
        assert!(read(&job(), &with("time_us.p95", wrong)).is_err(), "{wrong}");
    }
    assert!(read(&job(), &with("time_us.p95", "1")).is_err(), "below the median");
}

#[test]
fn few_requests_have_a_rate_and_no_percentiles() {
    let few = |count: &str| {
        let said = with("requests", count);
        let at = said.rfind("\ntimes ").unwrap();
        let rest = &said[at + 1..];
        let said = format!("{}\ntimes {count}{}", &said[..at], &rest[rest.find('\n').unwrap()..]);
        read(&job(), &said).unwrap()
    };
    assert_eq!(few("29").metrics.len(), 2);
    assert!(few("29").notes[1].contains("29 requests are too few"), "{:?}", few("29").notes);
    let names = |measured: Measured| measured.metrics.into_iter().map(|metric| metric.name).collect::<Vec<_>>();
    assert_eq!(names(few("30"))[2..], ["service.p50", "service.p95"]);
    assert_eq!(names(few("100")).len(), 5);
}

#[test]
fn a_shorter_run_than_was_asked_for_is_refused() {
    assert!(why(&with("duration_us", "3900000")).contains("it measured 3.9 s, and 4 were asked for"));
    assert!(read(&job(), &with("duration_us", "0")).is_err());
}

#[test]
fn no_line_may_be_missing() {
    for name in
        ["server.workers", "requests", "bytes", "duration_us", "times", "time_us.p50", "time_us.p99", "other_answers"]
    {
        let without = SAID.replace(&format!("\n{name} "), &format!("\nother.{name} "));
        assert!(read(&job(), &without).is_err(), "{name}");
    }
    for part in ["load ramp", "load measured"] {
        assert!(read(&job(), &SAID.replace(part, "load")).is_err(), "{part}");
    }
    for junk in ["", "web", "{}", "load ramp\nload measured\n", &SAID[..SAID.len() / 2]] {
        assert!(read(&job(), junk).is_err(), "{junk}");
    }
}

proptest! {
    /// Damage gives an error or sound figures, and never ends the program.
    #[test]
    fn damaged_output_is_an_error_or_sound_figures(
        at in 0..SAID.len(), count in 0..40usize, put in "[\\PC\n]{0,12}",
    ) {
        let mut bytes = SAID.as_bytes().to_vec();
        bytes.splice(at..(at + count).min(SAID.len()), put.into_bytes());
        let said = String::from_utf8_lossy(&bytes);
        let _ = window(&said, 0.0);
        if let Ok(measured) = read(&job(), &said) {
            prop_assert!(measured.metrics.iter().all(|metric| metric.sound().is_ok()), "{measured:?}");
        }
    }
}
