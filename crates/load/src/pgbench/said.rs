//! What the program says: the server's settings, two moments around pgbench's report, and what is in the tables afterwards.

use super::{ACCOUNTS, PgbenchJob, RATE};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};
use crate::server::{Said, database as failed};
use crate::{Measured, Window};

/// Settings without which a transaction need not be on the drive when it is committed, or a torn page would be lost: with another
/// value an arm could win by not writing. And that the server takes no pages from a pool, which a host may have and a clone has not.
pub(super) const ASKED: [(&str, &str); 4] =
    [("fsync", "on"), ("synchronous_commit", "on"), ("full_page_writes", "on"), ("huge_pages", "off")];

/// Where pgbench's report is.
const BEGINS: &str = "\nsaid\n";
const ENDS: &str = "\nend\n";

fn said(text: &str) -> Said<'_> {
    Said { what: "what pgbench's load printed", text }
}

/// Reads all of it.
///
/// # Errors
/// The server does not wait for its drive, its memory is not what was asked for, a transaction failed or is missing in the tables, or
/// nothing was done.
pub(super) fn read(job: &PgbenchJob, output: &str) -> Result<Measured, LoadError> {
    let (before, rest) = output.split_once(BEGINS).ok_or_else(|| unreadable(output, "no report of pgbench in it"))?;
    let (report, after) =
        rest.split_once(ENDS).ok_or_else(|| unreadable(output, "a report of pgbench without its end"))?;
    said(before).settings(&ASKED, ("shared_buffers", job.buffers))?;
    let done = transactions(report)?;
    whole(job, done, after)?;
    let rate = number(report, "tps =")?;
    let average = number(report, "latency average =")?;
    let metric = |name: &str, unit, value: f64| {
        Metric::new(name, unit, value)
            .ok_or_else(|| failed("no transaction was done in the measured seconds".to_owned()))
    };
    let metrics = vec![
        metric(RATE, Unit::TransactionsPerSecond, rate)?,
        metric("latency.average", Unit::Nanoseconds, average * 1e6)?,
    ];
    let mut notes: Vec<String> = said(before)
        .find("setting.server_version")
        .map(|version| format!("PostgreSQL {version}"))
        .into_iter()
        .collect();
    if job.clients > job.scale {
        notes.push(format!(
            "{} clients write to {} branches, so they wait for each other's rows as well as for the drive",
            job.clients, job.scale
        ));
    }
    Ok(Measured { metrics, notes })
}

/// When it was measured: its last seconds.
///
/// # Errors
/// It does not say when it ended.
pub(super) fn window(job: &PgbenchJob, output: &str, ahead: f64) -> Result<Window, LoadError> {
    let before = output.split_once(BEGINS).map_or("", |(before, _)| before);
    said(before).last(job.seconds, ahead)
}

/// Transactions that were done; one that failed and was not done again is not the work that was asked for.
fn transactions(report: &str) -> Result<u64, LoadError> {
    let count = |name: &str| {
        let text = lines(report, name).next().and_then(|rest| rest.split_whitespace().next());
        text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| unreadable(report, &format!("no `{name}` in it")))
    };
    let lost = count("number of failed transactions:")?;
    if lost > 0 {
        return Err(failed(format!("{lost} transactions failed: it is not the work that was asked for")));
    }
    if let Some(line) = report.lines().find(|line| line.contains("aborted")) {
        return Err(failed(line.trim().chars().take(200).collect()));
    }
    match count("number of transactions actually processed:")? {
        0 => Err(failed("no transaction was done in the measured seconds".to_owned())),
        done => Ok(done),
    }
}

/// Whether everything that was done is in the tables.
fn whole(job: &PgbenchJob, done: u64, after: &str) -> Result<(), LoadError> {
    let after = said(after);
    let (ramp, history, accounts) = (after.whole("ramp")?, after.whole("history")?, after.whole("accounts")?);
    let all = ramp.checked_add(done);
    if all != Some(history) {
        return Err(failed(format!("{history} transactions are in its history, and {ramp} and {done} were done")));
    }
    let asked = u64::from(job.scale) * ACCOUNTS;
    if accounts != asked {
        return Err(failed(format!("{accounts} accounts are left of {asked}")));
    }
    match after.value("balanced")? {
        "true" => Ok(()),
        _ => Err(failed("its balances do not agree: some of what was committed is lost".to_owned())),
    }
}

/// A number above zero behind a name; pgbench writes its unit, or what it is without, behind it.
fn number(report: &str, name: &str) -> Result<f64, LoadError> {
    let found: Vec<f64> =
        lines(report, name).filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).collect();
    match found[..] {
        [only] if only.is_finite() && only > 0.0 => Ok(only),
        [_] => Err(unreadable(report, &format!("`{name}` is not above zero"))),
        _ => Err(unreadable(report, &format!("`{name}` {} times in it, and once is needed", found.len()))),
    }
}

/// What is behind a name, in each line that begins with it.
fn lines<'o>(text: &'o str, name: &str) -> impl Iterator<Item = &'o str> {
    text.lines().filter_map(move |line| line.strip_prefix(name))
}

fn unreadable(output: &str, why: &str) -> LoadError {
    said(output).unreadable(why)
}

#[cfg(test)]
mod tests {
    use nearmetal_units::Bytes;

    use super::*;

    /// Of PostgreSQL 17.12 in memory, on a machine that was busy with something else.
    const SAID: &str = include_str!("said.txt");

    fn job() -> PgbenchJob {
        PgbenchJob { buffers: Bytes::from_mib(128), scale: 1, clients: 4, threads: 2, prepare: 60, ramp: 2, seconds: 4 }
    }

    fn why(said: &str) -> String {
        read(&job(), said).unwrap_err().to_string()
    }

    #[test]
    fn the_rate_and_the_average_time_are_read_and_the_ramp_is_not_in_them() {
        let Measured { metrics, notes } = read(&job(), SAID).unwrap();
        let values: Vec<(&str, f64)> = metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
        assert_eq!(values, [("transactions", 2435.991447), ("latency.average", 1.642 * 1e6)]);
        assert_eq!(notes[0], "PostgreSQL 17.12 (Debian 17.12-0+deb13u1)");
        assert!(notes[1].contains("4 clients write to 1 branches"), "{notes:?}");
        // The time of a closed loop: what its clients make of the rate, but for the moment in which they connect.
        assert!((values[0].1 * values[1].1 / 1e9 - 4.0).abs() < 0.01);
    }

    #[test]
    fn it_measured_in_the_last_seconds_between_its_moments() {
        let window = window(&job(), SAID, 90.0).unwrap();
        assert_eq!((window.began, window.ended), (1_795_843_349_350.0, 1_795_843_353_350.0));
        for (from, to) in
            [("began_ms", "x"), ("ended_ms 1795843353440", "ended_ms 1795843349200"), ("ended_ms 1", "ended_ms -1")]
        {
            assert!(super::window(&job(), &SAID.replace(from, to), 0.0).is_err(), "{from}");
        }
    }

    #[test]
    fn a_server_that_does_not_wait_for_its_drive_is_no_arm() {
        for (name, asked) in ASKED {
            let other = if asked == "on" { "off" } else { "on" };
            let said = SAID.replace(&format!("setting.{name} {asked}"), &format!("setting.{name} {other}"));
            assert!(why(&said).contains(&format!("{name} = {other}, and {asked} is")), "{}", why(&said));
            let silent = SAID.replace(&format!("setting.{name} "), "setting.other ");
            assert!(why(&silent).contains(&format!("does not say its `{name}`")), "{}", why(&silent));
        }
        // `local` waits for the drive and not for a replica; what else there is does not wait.
        assert!(why(&SAID.replace("synchronous_commit on", "synchronous_commit local")).contains("= local"));
        assert!(why(&SAID.replace("shared_buffers 134217728", "shared_buffers 8388608")).contains("8388608 bytes"));
    }

    #[test]
    fn a_transaction_that_failed_or_is_missing_fails_the_sample() {
        let failed = SAID.replace("failed transactions: 0 (0.000%)", "failed transactions: 3 (0.030%)");
        assert!(why(&failed).contains("3 transactions failed"));
        let aborted = SAID.replace("duration: 4 s", "pgbench: error: client 2 script 0 aborted in command 5");
        assert!(why(&aborted).contains("client 2 script 0 aborted"));
        assert!(why(&SAID.replace("history 15143", "history 15142")).contains("15142 transactions are in its history"));
        assert!(why(&SAID.replace("accounts 100000", "accounts 99999")).contains("99999 accounts are left of 100000"));
        assert!(why(&SAID.replace("balanced true", "balanced false")).contains("balances do not agree"));
        let idle = SAID.replace("processed: 9883", "processed: 0").replace("history 15143", "history 5260");
        assert!(why(&idle).contains("no transaction was done"));
    }

    #[test]
    fn what_pgbench_prints_cannot_pass_for_what_the_server_says() {
        let silent = SAID.replace("setting.fsync on\n", "").replace("\nsaid\n", "\nsaid\nsetting.fsync on\n");
        assert!(why(&silent).contains("does not say its `fsync`"));
        let unchecked = SAID.replace("balanced true\n", "").replace("\nend\n", "\nbalanced true\nend\n");
        assert!(why(&unchecked).contains("no `balanced`"));
    }

    #[test]
    fn junk_is_an_error_and_never_a_figure() {
        for junk in ["", "said", "\nsaid\n\nend\n", &SAID[..SAID.len() / 2], &SAID.replace("tps =", "tps:")] {
            assert!(read(&job(), junk).is_err(), "{junk}");
        }
        for wrong in ["0", "-1", "inf", "NaN", "1e999", "many", ""] {
            assert!(read(&job(), &SAID.replace("2435.991447", wrong)).is_err(), "{wrong}");
            assert!(read(&job(), &SAID.replace("1.642", wrong)).is_err(), "{wrong}");
        }
        let twice = SAID.replace("tps = 2435.991447", "tps = 2435.991447\ntps = 1");
        assert!(why(&twice).contains("`tps =` 2 times"));
        let huge = SAID.replace("ramp 5260", "ramp 18446744073709551615");
        assert!(why(&huge).contains("were done"));
    }
}
