use super::super::tests::job;
use super::*;

/// The lines that matter of a run with one point, in the format of kits of 2005; the flags are those of OpenJDK 21.
const OF_2005: &str = include_str!("../said.txt");

fn of_2015() -> String {
    let (own, _) = OF_2005.split_once("said\n").unwrap();
    format!(
        "{own}said\nReport directory is result/specjbb2015-C-20220610-00001/report-00001\n\
         RUN RESULT: hbIR (max attempted) = 556, hbIR (settled) = 522, max-jOPS = 484, critical-jOPS = 63\n"
    )
}

fn values(edition: KitEdition, output: &str) -> Vec<(String, f64)> {
    let metrics = read(&job(edition), output).unwrap().metrics;
    metrics.into_iter().map(|metric| (metric.name, metric.value)).collect()
}

fn why(edition: KitEdition, output: &str) -> String {
    read(&job(edition), output).unwrap_err().to_string()
}

#[test]
fn the_score_of_each_edition_is_read_and_is_said_not_to_be_specs() {
    assert_eq!(values(KitEdition::Of2005, OF_2005), [("score".to_owned(), 1624.2)]);
    assert_eq!(
        values(KitEdition::Of2015, &of_2015()),
        [("score".to_owned(), 484.0), ("score.critical".to_owned(), 63.0)]
    );
    for (edition, output) in [(KitEdition::Of2005, OF_2005.to_owned()), (KitEdition::Of2015, of_2015())] {
        let notes = read(&job(edition), &output).unwrap().notes;
        assert!(notes[0].contains(&format!("not a compliant run of {}", edition.title())), "{notes:?}");
        assert!(notes[0].contains("not a result of SPEC's") && notes[1].starts_with("OpenJDK"), "{notes:?}");
    }
}

#[test]
fn a_rate_under_the_limits_may_be_missing_and_the_most_may_not() {
    for other in ["0", "N/A", "NaN"] {
        let output = of_2015().replace("critical-jOPS = 63", &format!("critical-jOPS = {other}"));
        assert_eq!(values(KitEdition::Of2015, &output), [("score".to_owned(), 484.0)]);
        assert!(read(&job(KitEdition::Of2015), &output).unwrap().notes[1].contains("no rate of it met"));
        let output = of_2015().replace("max-jOPS = 484", &format!("max-jOPS = {other}"));
        assert!(why(KitEdition::Of2015, &output).contains("no max-jOPS above zero"), "{other}");
    }
    let none = of_2015().replace(", critical-jOPS = 63", "");
    assert!(why(KitEdition::Of2015, &none).contains("no critical-jOPS"));
}

#[test]
fn a_thread_that_ended_by_an_exception_fails_the_sample_though_the_others_went_on() {
    let output = OF_2005
        .replace("exceptions 0", "exceptions 1")
        .replace("\nCalculating", "Exception in thread \"Thread-1040\" java.lang.NullPointerException\n\nCalculating");
    let why = why(KitEdition::Of2005, &output);
    assert!(why.contains("1 threads of it ended") && why.contains("java.lang.NullPointerException"), "{why}");
}

#[test]
fn a_kit_that_does_not_trust_itself_or_its_jvm_fails_the_sample() {
    let output = OF_2005.replace("Calculating results", "VALIDATION ERROR: the JVM's strings are wrong");
    assert!(why(KitEdition::Of2005, &output).contains("the kit found: VALIDATION ERROR: the JVM's strings"));
}

#[test]
fn a_jvm_with_other_flags_or_that_does_not_say_them_is_no_sample() {
    let output = OF_2005.replace("MaxHeapSize 134217728", "MaxHeapSize 67108864");
    assert!(why(KitEdition::Of2005, &output).contains("told MaxHeapSize=134217728, and ran with MaxHeapSize=67108864"));
    let silent = OF_2005.replace("flag.UseParallelGC true\n", "");
    assert!(why(KitEdition::Of2005, &silent).contains("flag.UseParallelGC"));
    // A kit that prints a flag itself is not the JVM.
    let forged = silent.replace("said\n", "said\nflag.UseParallelGC true\nexceptions 0\n");
    assert!(why(KitEdition::Of2005, &forged).contains("flag.UseParallelGC"));
}

#[test]
fn two_results_and_none_are_no_result() {
    let line = "           throughput =     1624.20 SPECjbb2005 bops\n";
    let twice = OF_2005.replace(line, &line.repeat(2));
    assert!(why(KitEdition::Of2005, &twice).contains("2 points"));
    assert!(why(KitEdition::Of2005, &OF_2005.replace(line, "")).contains("0 points"));
    assert!(why(KitEdition::Of2005, &of_2015()).contains("0 points"), "it is the other edition's");
    assert!(why(KitEdition::Of2015, OF_2005).contains("0 results"));
    let result = of_2015();
    let line = result.lines().last().unwrap();
    assert!(why(KitEdition::Of2015, &format!("{result}{line}\n")).contains("2 results"));
}

#[test]
fn junk_is_an_error_and_never_a_figure() {
    for junk in ["", "said", "\nsaid\n", "x", &OF_2005[..120], &OF_2005.replace("said", "sad")] {
        for edition in KitEdition::ALL {
            assert!(read(&job(edition), junk).is_err(), "{junk}");
        }
    }
    for wrong in ["0", "-5", "inf", "NaN", "many", "1e999", ""] {
        assert!(read(&job(KitEdition::Of2005), &OF_2005.replace("1624.20", wrong)).is_err(), "{wrong}");
    }
    let long = OF_2005.replace("1624.20", &"9".repeat(100_000));
    assert!(why(KitEdition::Of2005, &long).len() < 2_000);
}
