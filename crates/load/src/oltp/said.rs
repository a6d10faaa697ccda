//! What the program says: the server's settings, then for each part what was offered, two moments and sysbench's report.

use super::{Offered, OltpJob, RATE};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};
use crate::server::{Said, database as failed};
use crate::{Measured, Window};

/// Settings without which a transaction need not be on the drive when it is committed, or a torn page would be lost: with
/// another value an arm could win by not writing.
pub(super) const ASKED: [(&str, &str); 4] = [
    ("innodb_flush_log_at_trx_commit", "1"),
    ("innodb_flush_method", "O_DIRECT"),
    ("innodb_data_file_buffering", "OFF"),
    ("innodb_doublewrite", "ON"),
];

/// Percentiles, and the transactions without which there is none.
const PERCENTILES: [(&str, f64, u64); 3] = [("p50", 0.50, FEWEST), ("p95", 0.95, FEWEST), ("p99", 0.99, 100)];

/// The least part of what was offered that must have been done, beside three times the scatter of arrivals: with less of it
/// the queue grows, and the times are those of the sample's length.
const KEPT_UP: f64 = 0.98;
/// Transactions without which nobody can tell: they scatter by a fifth.
const FEWEST: u64 = 30;

/// What one part printed.
struct Part<'o> {
    /// The line behind `offered`.
    offered: &'o str,
    text: &'o str,
}

fn said(text: &str) -> Said<'_> {
    Said { what: "what the database's load printed", text }
}

/// Reads all of it.
///
/// # Errors
/// The server does not wait for its drive, its memory or its rows are not what was asked for, a part is missing or did
/// nothing, or a transaction failed.
pub(super) fn read(job: &OltpJob, output: &str) -> Result<Measured, LoadError> {
    said(output).settings(&ASKED, ("innodb_buffer_pool_size", job.pool))?;
    let asked = u64::from(job.tables) * u64::from(job.rows);
    let rows = said(output).value("rows")?;
    if rows.parse() != Ok(asked) {
        return Err(failed(format!("{rows} rows are left of {asked}")));
    }
    let parts = parts(output);
    let wanted: Vec<Option<Offered>> = match job.is_closed_loop() {
        true => vec![None],
        false => job.offered.iter().copied().map(Some).collect(),
    };
    if parts.len() != wanted.len() {
        return Err(unreadable(output, &format!("{} parts in it, and {} were asked for", parts.len(), wanted.len())));
    }
    let mut measured = Measured { metrics: Vec::new(), notes: notes(output) };
    for (part, wanted) in parts.iter().zip(wanted) {
        if part.offered.parse() != Ok(wanted.map_or(0, |wanted| wanted.rate)) {
            return Err(unreadable(part.text, &format!("{} were offered", part.offered)));
        }
        clean(part)?;
        let (done, rate) = transactions(part)?;
        match wanted {
            None => measured.metrics.extend(Metric::new(RATE, Unit::TransactionsPerSecond, rate)),
            Some(offered) => at_a_rate(part, offered, (done, rate), job.threads, &mut measured)?,
        }
    }
    Ok(measured)
}

/// The times of transactions of one part, where what was offered was done.
fn at_a_rate(
    part: &Part<'_>,
    offered: Offered,
    (done, rate): (u64, f64),
    threads: u32,
    measured: &mut Measured,
) -> Result<(), LoadError> {
    let at = format!("at-{}", offered.percent);
    measured.metrics.extend(Metric::new(&format!("{RATE}.{at}"), Unit::TransactionsPerSecond, rate));
    if done < FEWEST {
        measured.notes.push(format!(
            "{done} transactions at {} % of bare metal's rate are too few to tell whether it kept up, so it has no times there: \
             take longer samples (--seconds)",
            offered.percent
        ));
        return Ok(());
    }
    // Arrivals are random: their number scatters by its root. By that of those that were to come, since of few that were done the root
    // would excuse that they are few.
    let seconds = done as f64 / rate;
    let due = f64::from(offered.rate) * seconds;
    if (done as f64) < due * KEPT_UP - 3.0 * due.sqrt() {
        measured.notes.push(format!(
            "did not keep up with {} % of bare metal's rate: {} transactions/s were offered and {rate:.1} done, so it has no \
             times there",
            offered.percent, offered.rate
        ));
        return Ok(());
    }
    let histogram = histogram(part)?;
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    // A thread counts what it did, and then its time: at either end of the part each can be between the two.
    if all.abs_diff(done) > 2 * u64::from(threads) {
        return Err(unreadable(part.text, &format!("{done} transactions, and the times of {all}")));
    }
    for (name, quantile, fewest) in PERCENTILES {
        let milliseconds = (all >= fewest).then(|| percentile(&histogram, all, quantile)).flatten();
        let metric =
            milliseconds.and_then(|value| Metric::new(&format!("latency.{name}.{at}"), Unit::Nanoseconds, value * 1e6));
        measured.metrics.extend(metric);
    }
    Ok(())
}

/// When the one part of a closed loop was measured: its last seconds.
///
/// # Errors
/// It does not say when it ended.
pub(super) fn window(job: &OltpJob, output: &str, ahead: f64) -> Result<Window, LoadError> {
    said(output).last(job.seconds, ahead)
}

/// What is worth keeping of the server.
fn notes(output: &str) -> Vec<String> {
    let version = said(output).find("setting.version").map(|version| format!("MariaDB {version}"));
    let kib = |name: &str| said(output).whole(name).ok();
    let pages = kib("pages.resident_kib").zip(kib("pages.large_kib"));
    let pages =
        pages.map(|(all, large)| format!("before the load the server had {all} KiB, {large} of them in large pages"));
    version.into_iter().chain(pages).collect()
}

fn parts(output: &str) -> Vec<Part<'_>> {
    let mut begins: Vec<usize> = output.match_indices("\noffered ").map(|(at, _)| at + 1).collect();
    begins.push(output.len());
    let texts = begins.windows(2).map(|ends| &output[ends[0]..ends[1]]);
    texts.map(|text| Part { offered: said(text).find("offered").unwrap_or_default(), text }).collect()
}

/// Numbers behind a name that sysbench prints in each of its reports: that of the ramp, then that of what counts.
fn counted(part: &Part<'_>, name: &str) -> Result<[u64; 2], LoadError> {
    let numbers: Vec<u64> = part
        .text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        .collect();
    <[u64; 2]>::try_from(numbers)
        .map_err(|found| unreadable(part.text, &format!("`{name}` {} times in it, and twice is needed", found.len())))
}

/// What sysbench starts again by itself, without a word but this count, is not the same work.
fn clean(part: &Part<'_>) -> Result<(), LoadError> {
    for (name, what) in
        [("ignored errors:", "transactions failed and were started again"), ("reconnects:", "connections broke")]
    {
        let count: u64 = counted(part, name)?.iter().sum();
        if count > 0 {
            return Err(failed(format!(
                "{count} {what}: it is not the work that was asked for; give more rows (--span)"
            )));
        }
    }
    Ok(())
}

/// Transactions of what counts, and how many a second: `transactions:  2020   (403.00 per sec.)`.
fn transactions(part: &Part<'_>) -> Result<(u64, f64), LoadError> {
    const NAME: &str = "transactions:";
    let [_, done] = counted(part, NAME)?;
    let mut lines = part.text.lines().filter_map(|line| line.trim().strip_prefix(NAME));
    let rate =
        lines.next_back().and_then(|line| line.split_once('(')?.1.split_once(" per sec.")?.0.parse::<f64>().ok());
    match rate {
        Some(rate) if rate > 0.0 && rate.is_finite() && done > 0 => Ok((done, rate)),
        Some(_) => Err(failed("no transaction was done in the measured seconds".to_owned())),
        None => Err(unreadable(part.text, "no rate of transactions in it")),
    }
}

/// Lines such as `       9.222 |**                     2`: milliseconds, and how many transactions took about that long.
/// Neighbouring values are 1.8 % apart.
fn histogram(part: &Part<'_>) -> Result<Vec<(f64, u64)>, LoadError> {
    let one = |line: &str| {
        let (value, rest) = line.split_once('|')?;
        Some((value.trim().parse::<f64>().ok()?, rest.split_whitespace().last()?.parse::<u64>().ok()?))
    };
    let found: Vec<(f64, u64)> = part.text.lines().filter_map(one).collect();
    match found.is_empty() {
        true => Err(unreadable(part.text, "no times of transactions in it")),
        false => Ok(found),
    }
}

/// As sysbench reckons its own: the first value up to which so many were done.
fn percentile(histogram: &[(f64, u64)], all: u64, quantile: f64) -> Option<f64> {
    let enough = (all as f64 * quantile + 0.5).floor() as u64;
    let mut until = 0;
    histogram.iter().find_map(|(value, count)| {
        until += count;
        (until >= enough).then_some(*value)
    })
}

fn unreadable(output: &str, why: &str) -> LoadError {
    said(output).unreadable(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of MariaDB 11.8.9 and sysbench 1.0.20 on a laptop's file; 122 and 244 transactions.
    const SAID: &str = include_str!("said.txt");

    fn rated() -> OltpJob {
        let offered = |percent, rate| Offered { percent, rate };
        OltpJob { seconds: 3, ramp: 1, offered: vec![offered(50, 40), offered(90, 80)], ..OltpJob::small() }
    }

    /// The first part, as a closed loop prints it.
    fn closed() -> String {
        let (first, rest) = SAID.split_once("offered 80").unwrap();
        format!("{}{}", first.replace("offered 40", "offered 0"), &rest[rest.find("rows ").unwrap()..])
    }

    fn closed_job() -> OltpJob {
        OltpJob { offered: Vec::new(), ..rated() }
    }

    fn why(said: &str) -> String {
        read(&rated(), said).unwrap_err().to_string()
    }

    #[test]
    fn a_closed_loop_has_a_rate_and_the_ramp_is_not_in_it() {
        let measured = read(&closed_job(), &closed()).unwrap();
        let [rate] = measured.metrics.as_slice() else { panic!("{measured:?}") };
        assert_eq!((rate.name.as_str(), rate.value), (RATE, 40.07));
        assert!(measured.notes[0].starts_with("MariaDB 11.8.9"), "{:?}", measured.notes);
        let window = window(&closed_job(), &closed(), 90.0).unwrap();
        assert_eq!((window.began, window.ended), (1_795_622_019_000.0, 1_795_622_022_000.0));
    }

    #[test]
    fn each_part_of_bare_metals_rate_has_its_times() {
        let measured = read(&rated(), SAID).unwrap();
        let value = |name: &str| measured.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
        assert_eq!((value("transactions.at-50"), value("transactions.at-90")), (Some(40.07), Some(81.25)));
        for at in ["at-50", "at-90"] {
            let times = ["p50", "p95", "p99"].map(|name| value(&format!("latency.{name}.{at}")).unwrap());
            assert!(times[0] < times[1] && times[1] < times[2], "{times:?}");
        }
        // What sysbench itself says of the last part, in ms.
        let own = SAID.lines().filter_map(|line| line.trim().strip_prefix("99th percentile:")).next_back().unwrap();
        let own: f64 = own.trim().parse().unwrap();
        assert!((value("latency.p99.at-90").unwrap() / 1e6 - own).abs() < 0.01, "{own}");
        assert_eq!(value(RATE), None);
    }

    #[test]
    fn who_does_not_keep_up_has_no_times() {
        let mut job = rated();
        job.offered[1].rate = 200;
        let measured = read(&job, &SAID.replace("offered 80", "offered 200")).unwrap();
        assert!(measured.metrics.iter().any(|metric| metric.name == "transactions.at-90"));
        assert!(
            !measured.metrics.iter().any(|metric| metric.name.starts_with("latency") && metric.name.ends_with("90"))
        );
        assert!(measured.notes.iter().any(|note| note.contains("200 transactions/s were offered and 81.2 done")));
    }

    #[test]
    fn half_of_few_is_not_kept_up_with_however_few_they_are() {
        let mut job = rated();
        job.offered[0].rate = 20;
        let few = SAID.replacen("122    (40.07 per sec.)", "30     (10.00 per sec.)", 1);
        let measured = read(&job, &few.replace("offered 40", "offered 20")).unwrap();
        assert!(
            measured.notes.iter().any(|note| note.contains("20 transactions/s were offered and 10.0 done")),
            "{:?}",
            measured.notes
        );
    }

    #[test]
    fn a_part_of_few_transactions_does_not_tell_who_kept_up() {
        // 122 in the first part.
        let few = SAID.replacen("122    (40.07 per sec.)", "29     (9.53 per sec.)", 1);
        let measured = read(&rated(), &few).unwrap();
        assert!(
            !measured.metrics.iter().any(|metric| metric.name.starts_with("latency") && metric.name.ends_with("50"))
        );
        assert!(measured.metrics.iter().any(|metric| metric.name == "latency.p99.at-90"));
        assert!(measured.notes.iter().any(|note| note.contains("29 transactions at 50 %")), "{:?}", measured.notes);
    }

    #[test]
    fn a_server_that_does_not_wait_for_its_drive_is_no_arm() {
        for (name, other) in ASKED.map(|(name, asked)| (name, if asked == "1" { "2" } else { "fsync" })) {
            let asked = said(SAID).find(&format!("setting.{name}")).unwrap();
            let said = SAID.replace(&format!("setting.{name} {asked}"), &format!("setting.{name} {other}"));
            assert!(why(&said).contains(&format!("{name} = {other}")), "{}", why(&said));
            let silent = SAID.replace(&format!("setting.{name} "), "setting.other ");
            assert!(why(&silent).contains(name), "{}", why(&silent));
        }
        let small = SAID.replace("setting.innodb_buffer_pool_size 67108864", "setting.innodb_buffer_pool_size 8388608");
        assert!(why(&small).contains("8388608"));
    }

    #[test]
    fn an_error_that_sysbench_ignores_fails_the_sample_even_one_in_the_ramp() {
        let first = |name: &str| {
            let line = SAID.lines().find(|line| line.trim().starts_with(name)).unwrap();
            SAID.replacen(line, &line.replacen(" 0 ", " 3 ", 1), 1)
        };
        assert!(why(&first("ignored errors:")).contains("3 transactions failed and were started again"));
        assert!(why(&first("reconnects:")).contains("3 connections broke"));
    }

    #[test]
    fn rows_that_are_lost_and_parts_that_are_missing_fail_the_sample() {
        assert!(why(&SAID.replace("rows 2000", "rows 1999")).contains("1999 rows are left of 2000"));
        assert!(why(&SAID.replace("rows 2000", "")).contains("no `rows` in it"));
        assert!(why(&closed().replace("offered 0", "offered 40")).contains("1 parts in it, and 2"));
        assert!(why(&SAID.replace("offered 80", "offered 81")).contains("81 were offered"));
        let idle = SAID.replace("244    (81.25 per sec.)", "0      (0.00 per sec.)");
        assert!(why(&idle).contains("no transaction was done"), "{}", why(&idle));
        for junk in ["", "oltp", "offered 0\n", &SAID[..SAID.len() / 2]] {
            assert!(read(&rated(), junk).is_err() && read(&closed_job(), junk).is_err());
        }
        assert!(window(&closed_job(), "began_ms 5\nended_ms 6\n", 0.0).is_err());
    }

    #[test]
    fn times_that_are_not_of_all_transactions_are_no_times() {
        let lines = || SAID.lines().filter(|line| line.contains(" |*"));
        let count = |line: &&str| line.rsplit(' ').find_map(|word| word.parse::<u64>().ok()).unwrap();
        let most = lines().max_by_key(count).unwrap();
        assert!(why(&SAID.replacen(most, "", 1)).contains("the times of"), "{most}");
        // One that each thread had counted, and not its time.
        let one = lines().find(|line| count(line) == 1).unwrap();
        assert!(read(&rated(), &SAID.replacen(one, "", 1)).is_ok(), "{one}");
    }
}
