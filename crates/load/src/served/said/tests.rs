//! Of real servers of a standard tile on a laptop: nginx, Dovecot, MariaDB, and the application, each in the loads image.

use proptest::prelude::*;

use super::super::tests::job;
use super::*;
use crate::tile::{Rate, Role};

const WEB: &str = include_str!("../web.json");
const INFRA: &str = include_str!("../infra.json");
const MAIL: &str = include_str!("../mail.json");
const DB: &str = include_str!("../db.json");
const APP: &str = include_str!("../app.json");
const IDLE: &str = include_str!("../idle.json");
/// An idle guest, asked 20 times a second, that stood still for four seconds.
const SLOW: &str = include_str!("../slow.json");
/// A mail server that was killed in the middle.
const LOST: &str = include_str!("../lost.json");

/// The job that a fixture is of.
fn of(role: Role) -> ServedJob {
    let mut job = job(role, 1.0);
    (job.size.seconds, job.size.ramp) = (10, 2);
    let host = match role {
        Role::Infra => 2,
        Role::Web => 3,
        Role::Mail => 4,
        Role::App => 5,
        Role::Db => 6,
        Role::Idle => 7,
    };
    job.address = [10, 99, 0, host].into();
    job
}

fn slow() -> ServedJob {
    ServedJob { rate: Rate::try_from(20.0).unwrap(), ..of(Role::Idle) }
}

fn value(measured: &Measured, name: &str) -> Option<f64> {
    measured.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
}

#[test]
fn each_server_has_its_rate_its_times_and_its_share_in_time() {
    for (role, text) in [
        (Role::Web, WEB),
        (Role::Infra, INFRA),
        (Role::Mail, MAIL),
        (Role::Db, DB),
        (Role::App, APP),
        (Role::Idle, IDLE),
    ] {
        let job = of(role);
        let measured = job.read(text).unwrap_or_else(|error| panic!("{role}: {error}"));
        let (answered, offered) = (value(&measured, ANSWERED).unwrap(), value(&measured, OFFERED).unwrap());
        assert_eq!(answered, offered, "{role}");
        assert!((answered / job.rate.get() - 1.0).abs() < 0.1, "{role}: {answered}");
        for limit in role.limits() {
            assert_eq!(value(&measured, &limit.metric()), Some(1.0), "{role}");
        }
        let times: Vec<f64> = ["p50", "p90", "p95", "p99"]
            .iter()
            .filter_map(|name| value(&measured, &format!("latency.{name}")))
            .collect();
        assert!(times.is_sorted() && times.iter().all(|time| (1e4..1e9).contains(time)), "{role}: {times:?}");
        let window = job.window(text, 500.0).unwrap();
        assert_eq!(window.ended - window.began, 10_000.0);
        assert!(measured.notes.iter().any(|note| note.starts_with("99 % of the requests went out within")));
    }
}

#[test]
fn percentiles_need_requests() {
    let idle = of(Role::Idle).read(IDLE).unwrap();
    assert_eq!((value(&idle, "latency.p50").is_some(), value(&idle, "latency.p90")), (true, None), "10 requests");
    assert!(value(&of(Role::Web).read(WEB).unwrap(), "latency.p99.9").is_some());
}

#[test]
fn a_server_that_stood_still_is_a_result_and_every_request_of_that_time_counts() {
    let measured = slow().read(SLOW).unwrap();
    let share = value(&measured, "within-1000").unwrap();
    assert!((0.70..0.75).contains(&share), "4 of 10 s, of which the last second's were in time: {share}");
    assert!(value(&measured, "latency.p95").unwrap() > 3e9);
    assert!(
        measured.notes.iter().any(|note| note.contains("80 requests waited for one of 2 connections")),
        "{measured:?}"
    );
}

#[test]
fn a_server_that_is_gone_is_a_failed_sample_with_its_reason() {
    let why = of(Role::Mail).read(LOST).unwrap_err().to_string();
    assert!(why.contains("mail server of tile 2") && why.contains("Connection re"), "{why}");
    // None of its requests was under way when it died: only its connections say so.
    let only_lost = changed(LOST, |result| {
        result["failures"] = Value::Array(Vec::new());
        result["dropped"] = (result["dropped"].as_u64().unwrap() + result["failed"].as_u64().unwrap()).into();
        result["failed"] = 0.into();
    });
    let why = of(Role::Mail).read(&only_lost).unwrap_err().to_string();
    assert!(why.contains("Connection refused"), "{why}");
}

fn changed(text: &str, change: impl Fn(&mut Value)) -> String {
    let mut document: Value = serde_json::from_str(text).unwrap();
    change(&mut document["result"]);
    document.to_string()
}

#[test]
fn only_a_wrong_answer_fails_a_sample_and_not_a_late_one() {
    let failures = |kind: &str, all: bool| {
        changed(APP, |result| {
            let offered = result["offered"].as_u64().unwrap();
            let failed = if all { offered } else { 5 };
            result["answered"] = (offered - failed).into();
            result["failed"] = failed.into();
            result["within"][0]["count"] = (offered - failed).into();
            result["failures"] = serde_json::json!([{"kind": kind, "count": failed, "first": "status 500"}]);
        })
    };
    let late = of(Role::App).read(&failures("timeout", false)).unwrap();
    let share = value(&late, "within-2000").unwrap();
    assert!(share < 1.0 && share > 0.98, "{share}");
    assert!(late.notes.iter().any(|note| note.starts_with("5 of 515 requests had no answer within 10 s")), "{late:?}");
    for kind in ["refused", "wrong-answer", "closed", "connect", "malformed", "something new"] {
        let why = of(Role::App).read(&failures(kind, false)).unwrap_err().to_string();
        assert!(why.contains("5 requests") && why.contains("status 500"), "{why}");
    }
    let why = of(Role::App).read(&failures("timeout", true)).unwrap_err().to_string();
    assert!(why.contains("none of 515 requests was answered"), "{why}");
}

#[test]
fn none_in_time_is_no_metric_and_no_failure() {
    let none = changed(APP, |result| result["within"][0]["count"] = 0.into());
    let measured = of(Role::App).read(&none).unwrap();
    assert_eq!(value(&measured, "within-2000"), None);
    assert!(value(&measured, ANSWERED).is_some());
}

#[test]
fn the_figures_of_another_run_are_refused() {
    assert!(of(Role::Infra).read(WEB).unwrap_err().to_string().contains("was asked for, and it is of"));
    let job = ServedJob { rate: Rate::try_from(1.0).unwrap(), ..of(Role::Web) };
    assert!(job.read(WEB).is_err());
    for (what, change) in [
        ("closed loop", Box::new(|result: &mut Value| result["pace"] = "closed".into()) as Box<dyn Fn(&mut Value)>),
        ("add up", Box::new(|result| result["answered"] = 1.into())),
        ("its limit 0", Box::new(|result| result["within"][0]["limit_ms"] = 9.into())),
        ("answers within", Box::new(|result| result["within"][1]["count"] = 1_000_000.into())),
        ("no `offered`", Box::new(|result| result["offered"] = Value::Null)),
        ("a failure without", Box::new(|result| result["failures"] = serde_json::json!([{"kind": 3}]))),
        ("how late the generator was", Box::new(|result| result["generator"]["lag"] = Value::Null)),
    ] {
        let why = of(Role::Web).read(&changed(WEB, change)).unwrap_err().to_string();
        assert!(why.contains(what), "{what}: {why}");
    }
    for junk in ["", "{}", "{", "nginx: cannot bind", r#"{"schema":"nearmetal-jvm","result":{"pace":"open"}}"#] {
        assert!(of(Role::Web).read(junk).is_err() && of(Role::Web).window(junk, 0.0).is_err(), "{junk}");
    }
    let backwards = changed(WEB, |result| result["ended_ms"] = 1.0.into());
    assert!(of(Role::Web).window(&backwards, 0.0).is_err());
}

#[test]
fn remarks_around_the_document_do_not_matter() {
    let text = format!("nearmetal-probe: 4895 of 4895 requests answered\n{WEB}\nmore\n");
    assert_eq!(of(Role::Web).read(&text).unwrap(), of(Role::Web).read(WEB).unwrap());
}

proptest! {
    #[test]
    fn damaged_output_is_an_error_or_sound_figures(at in 0usize..2_400, byte in any::<u8>(), cut in 0usize..2_400) {
        let mut bytes = WEB.as_bytes().to_vec();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        for text in [bytes.as_slice(), bytes.get(..cut).unwrap_or_default()] {
            let text = String::from_utf8_lossy(text);
            if let Ok(measured) = of(Role::Web).read(&text) {
                for metric in &measured.metrics {
                    prop_assert!(metric.sound().is_ok(), "{metric:?}");
                    prop_assert!(metric.unit != Unit::Share || metric.value <= 1.0, "{metric:?}");
                }
            }
            let _ = of(Role::Web).window(&text, 0.0);
        }
    }
}
