//! `nearmetal report`, run on the invented job of fixtures/results/job-sample and on broken copies of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use nearmetal_host::files;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of the sample job that a test may break.
struct Job {
    directory: TempDir,
}

impl Job {
    fn sample() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/results/job-sample");
        for file in files::list(&sample).unwrap() {
            files::write(&directory.path().join(file.file_name().unwrap()), files::read(&file).unwrap()).unwrap();
        }
        Self { directory }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn text(&self, file: &str) -> String {
        files::read_to_string(&self.path(file)).unwrap()
    }

    fn remove(self, file: &str) -> Self {
        files::remove(&self.path(file)).unwrap();
        self
    }

    fn replace(self, file: &str, from: &str, to: &str) -> Self {
        let text = self.text(file);
        assert!(text.contains(from), "{file} has no {from}");
        files::write(&self.path(file), text.replace(from, to)).unwrap();
        self
    }

    /// Exit code, stdout and stderr of `nearmetal report`.
    fn report(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
        let output = command.arg("report").arg(self.directory.path()).args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn summary(&self) -> Value {
        serde_json::from_str(&self.text("summary.json")).unwrap()
    }

    /// The report as data.
    fn view(&self) -> Value {
        let (code, stdout, stderr) = self.report(&["--format", "json"]);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    }
}

fn figure<'a>(summary: &'a Value, arm: &str, reference: &str, metric: &str) -> &'a Value {
    let arms = summary["arms"].as_array().unwrap();
    arms.iter().find(|row| row["arm"] == arm && row["reference"] == reference && row["metric"] == metric).unwrap()
}

#[test]
fn a_job_becomes_a_page_a_summary_and_two_pictures() {
    let job = Job::sample();
    let (code, stdout, stderr) = job.report(&[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("SAMPLE DATA") && stdout.contains("lab: emulated time"), "{stdout}");
    assert!(stderr.contains("report.html") && stderr.contains("Planned against the VM as found: 2."), "{stderr}");
    for picture in ["machine-before.svg", "machine-after.svg"] {
        assert!(job.text(picture).starts_with("<svg"), "{picture}");
    }
    let page = job.text("report.html");
    for words in ["web1", "vCPU 0 (thread 3303)", "io_uring", "lab: emulated time"] {
        assert!(page.contains(words), "{words}");
    }
    let summary = job.summary();
    assert_eq!(summary["schema"], "nearmetal.summary/1");
    for (field, value) in
        [("lab", true), ("sample_data", true), ("quick", true), ("verified", true), ("rolled_back", true)]
    {
        assert_eq!(summary[field], value, "{field}");
    }
    assert_eq!(summary["headline_metric"], "fio-randrw-4k-iops");
    assert_eq!(summary["stages"].as_array().unwrap().len(), 4);
    let gain = figure(&summary, "planned", "as-found", "fio-randrw-4k-iops");
    let (ratio, low, high) =
        (gain["ratio"].as_f64().unwrap(), gain["low"].as_f64().unwrap(), gain["high"].as_f64().unwrap());
    assert!(low < ratio && ratio < high && low > 2.0 && high < 3.0, "{gain}");
    assert_eq!((&gain["n"], &gain["unit"], &gain["single_shot"]), (&json!(6), &json!("IOPS"), &json!(false)));
    let single = figure(&summary, "planned", "bare-slice", "fio-randrw-8k-iops");
    assert_eq!((&single["single_shot"], &single["low"]), (&json!(true), &Value::Null));
}

#[test]
fn figures_are_shown_in_the_units_of_the_screen() {
    let job = Job::sample();
    job.view();
    let summary = job.summary();
    let iops = figure(&summary, "planned", "bare-slice", "fio-randrw-4k-iops");
    let bandwidth = figure(&summary, "planned", "bare-slice", "fio-randrw-4k-bandwidth");
    let latency = figure(&summary, "planned", "bare-slice", "fio-randrw-4k-read-mean");
    let value = |row: &Value| row["value"].as_f64().unwrap();
    assert_eq!((&bandwidth["unit"], &latency["unit"]), (&json!("MB/s"), &json!("µs")));
    assert!((value(bandwidth) - value(iops) * 4096.0 / 1e6).abs() < 0.01, "{bandwidth}");
    assert!((value(latency) - 32.0 * 0.97 / value(iops) * 1e6).abs() < 1.0, "{latency}");
    assert!(latency["verdict"].as_str().unwrap().contains("takes longer than"), "{latency}");
    assert!(iops["verdict"].as_str().unwrap().contains("does less than"), "{iops}");
}

#[test]
fn the_slice_before_and_after_is_what_the_kernel_had() {
    let view = Job::sample().view();
    let (before, after) = (&view["slice_before"], &view["slice_after"]);
    assert!(before["threads"].as_array().unwrap().iter().all(|thread| thread["floating"] == true));
    assert_eq!((&before["strict"], &before["page_size"]), (&json!(false), &Value::Null));
    assert_eq!(before["pages"].as_array().unwrap().len(), 3, "pages on three nodes");
    assert_eq!((&after["strict"], &after["nodes"], &after["page_size"]), (&json!(true), &json!("2"), &json!(2 << 20)));
    assert_eq!(after["pages"], json!([{"node": 2, "size": 2 << 20, "pages": 256}]));
    let vcpus: Vec<&Value> =
        after["threads"].as_array().unwrap().iter().filter(|thread| thread["role"] == "vcpu").collect();
    assert_eq!(
        (&vcpus[0]["cpus"], &vcpus[1]["cpus"], &vcpus[0]["floating"]),
        (&json!("4"), &json!("5"), &json!(false))
    );
    assert_eq!(
        after["devices"][0],
        json!({"name": "nvme0n1", "pci": "0000:80:00.0", "node": 2, "purpose": "disk vda"})
    );
}

#[test]
fn memory_rows_pair_the_pages_of_both_sides() {
    let view = Job::sample().view();
    let rows = view["memory"]["rows"].as_array().unwrap();
    let pair = |row: &Value| (row["side"].clone(), row["page"].as_u64(), row["backing"].as_u64());
    let (small, huge) = (Some(4096), Some(2 << 20));
    for wanted in [
        (json!("bare"), small, None),
        (json!("bare"), huge, None),
        (json!("guest"), small, small),
        (json!("guest"), huge, small),
        (json!("guest"), small, huge),
        (json!("guest"), huge, huge),
    ] {
        assert!(rows.iter().any(|row| pair(row) == wanted), "{wanted:?} in {rows:#?}");
    }
    // The run that failed has no row: as found, bandwidth.
    assert!(!rows.iter().any(|row| row["backing"] == 4096 && row["bandwidth_mb_s"].is_f64()), "{rows:#?}");
    let caveats = view["caveats"].to_string();
    assert!(caveats.contains("1 of 49 runs failed"), "{caveats}");
    assert!(!caveats.contains("another shape"), "the plan is of the host that was inspected: {caveats}");
}

#[test]
fn secrets_of_a_definition_do_not_reach_the_report() {
    let job = Job::sample();
    assert!(job.text("plan.json").contains("sample-secret"));
    let view = job.view().to_string();
    assert!(!view.contains("sample-secret") && view.contains("passwd"), "masked, not left out");
    for file in ["report.html", "summary.json", "machine-before.svg", "machine-after.svg"] {
        assert!(!job.text(file).contains("sample-secret"), "{file}");
    }
}

#[test]
fn what_was_not_done_is_said_and_not_invented() {
    let optional = ["job.json", "host-after.json", "verification.json", "results.json", "rollback.json"];
    let job = optional.into_iter().fold(Job::sample(), Job::remove);
    let view = job.view();
    assert_eq!((&view["comparisons"], &view["rolled_back"]), (&json!([]), &Value::Null));
    assert_eq!(view["slice_after"]["threads"], json!([]));
    let summary = job.summary();
    for field in ["verified", "rolled_back", "headline_metric"] {
        assert_eq!(summary[field], Value::Null, "{field}");
    }
    let caveats = view["caveats"].to_string();
    for file in optional {
        assert!(caveats.contains(file), "{file} in {caveats}");
    }
    let no_host = Job::sample().remove("host-before.json").remove("host-after.json").view();
    assert_eq!(no_host["slice_before"]["threads"], json!([]));
}

#[test]
fn of_several_read_backs_the_guests_own_is_taken() {
    let job = Job::sample();
    let one: Value = serde_json::from_str(&job.text("verification.json")).unwrap();
    let mut other = one.clone();
    other["guest"] = json!("db1");
    other["checks"][0]["outcome"] = json!("mismatch");
    files::write(&job.path("verification.json"), json!([other, one]).to_string()).unwrap();
    job.view();
    assert_eq!(job.summary()["verified"], true);
    let mut broken = one.clone();
    broken["taken"] = json!(7);
    files::write(&job.path("verification.json"), json!([one, broken]).to_string()).unwrap();
    let (code, _, stderr) = job.report(&[]);
    assert!(code == 2 && stderr.contains("`[1].taken`"), "{stderr}");
}

#[test]
fn a_guest_that_was_off_has_no_pages() {
    let job = Job::sample().replace("host-before.json", "7c3f1f8e", "00000000");
    let before = &job.view()["slice_before"];
    assert_eq!(before["pages"], Value::Null);
    assert_eq!(
        before["threads"].as_array().unwrap().len(),
        3,
        "two vCPUs and the emulator thread, from the definition"
    );
}

#[test]
fn hostile_names_are_shown_as_text() {
    let name = "<script>alert(1)</script>";
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;";
    let mut job = Job::sample();
    for file in ["host-before.json", "host-after.json", "verification.json", "results.json", "job.json"] {
        job = job.replace(file, "web1", name);
    }
    let in_xml = format!("<name>{escaped}</name>");
    job = job.replace("plan.json", "web1", name).replace("plan.json", &format!("<name>{name}</name>"), &in_xml);
    job = job.replace("results.json", &format!("<name>nearmetal-{name}"), &format!("<name>nearmetal-{escaped}"));
    let (code, stdout, stderr) = job.report(&[]);
    assert_eq!(code, 0, "{stderr}");
    for file in ["report.html", "machine-before.svg", "machine-after.svg"] {
        assert!(!job.text(file).contains("<script>alert"), "{file}");
    }
    assert!(job.text("report.html").contains(escaped));
    let controls = Job::sample().replace("job.json", "web1 on quad", "\\u001b[31mweb1");
    assert!(!controls.report(&[]).1.contains('\u{1b}') && stdout.contains("script"));
}

/// What stands before the value of a rate.
const RATE: &str = r#""name": "iops", "unit": "IOPS", "value": "#;

#[test]
fn a_cost_of_zero_is_a_value_and_a_rate_of_zero_is_none() {
    let cost = r#"{"name": "cost.exits.all", "unit": "1/IO", "value": 0.0}, {"#;
    let job = Job::sample().replace("results.json", &format!("{{{RATE}"), &format!("{cost}{RATE}"));
    let view = job.view();
    assert_eq!(view["costs"][0]["figures"][0], json!({"name": "all", "unit": "", "value": 0.0}));
    assert!(job.text("report.html").contains("all 0.00"), "the page shows it");
    let rate = Job::sample().replace("results.json", &format!("{RATE}6071.041"), &format!("{RATE}0.0"));
    let (code, _, stderr) = rate.report(&[]);
    assert!(
        code == 2 && stderr.contains("runs[0].metrics[0].value") && stderr.contains("`iops` is 0 IOPS"),
        "{stderr}"
    );
}

#[test]
fn an_arm_that_lost_a_sample_is_named_at_the_top() {
    let job = Job::sample();
    let (code, stdout, stderr) = job.report(&[]);
    assert_eq!(code, 0, "{stderr}");
    let lost = &job.summary()["incomplete"];
    assert_eq!((&lost[0]["arm"], &lost[0]["failed"], &lost[1]), (&json!("as-found"), &json!(1), &Value::Null));
    let sentence = "The arm `as found` is incomplete: 1 of its ";
    assert!(stdout.lines().take(12).any(|line| line.contains(sentence)), "{stdout}");
    assert!(job.text("report.html").contains("class=\"warning\""));
}

#[test]
fn a_sample_that_was_made_good_by_another_try_is_not_lost() {
    // The lost single shot, and behind it one that was measured, in the same round and position.
    let incomplete = |purpose: &str| {
        let job = Job::sample();
        let mut results: Value = serde_json::from_str(&job.text("results.json")).unwrap();
        let runs = results["runs"].as_array_mut().unwrap();
        let place = |outcome: &str| {
            let is_it = |run: &Value| run["arm"] == "as-found" && run["purpose"] == "single-shot";
            runs.iter().position(|run| is_it(run) && run["outcome"]["outcome"] == outcome).unwrap()
        };
        let (failed, measured) = (place("failed"), place("measured"));
        let mut good = runs[measured].clone();
        good["purpose"] = json!(purpose);
        for field in ["round", "position"] {
            good[field] = runs[failed][field].clone();
        }
        runs.insert(failed + 1, good);
        files::write(&job.path("results.json"), results.to_string()).unwrap();
        let (code, _, stderr) = job.report(&[]);
        assert_eq!(code, 0, "{stderr}");
        job.summary()["incomplete"].clone()
    };
    assert_eq!(incomplete("single-shot"), json!([]));
    // Rounds of a race and those behind it have the same numbers, and are not the same.
    assert_eq!(incomplete("race")[0]["failed"], json!(1));
}

#[test]
fn broken_files_are_named_with_their_field() {
    let value = r#""name": "iops", "unit": "IOPS", "value": "#;
    let cases: Vec<(Job, &[&str])> = vec![
        (Job::sample().remove("plan.json"), &["no `plan.json`"]),
        (
            Job::sample().replace("results.json", "nearmetal.results/1", "nearmetal.results/9"),
            &["results.json", "schema", "nearmetal.results/9"],
        ),
        (
            Job::sample().replace("results.json", value, &format!("{value}-")),
            &["results.json", "runs[0].metrics[0].value", "`iops` is -", "above 0"],
        ),
        (
            Job::sample().replace("results.json", r#""cpus": "4-5""#, r#""cpus": "5-4""#),
            &["results.json", "slice.cpus", "5-4"],
        ),
        (
            Job::sample().replace("host-before.json", r#""online": true"#, r#""online": 7"#),
            &["host-before.json", "host.processors[0].online"],
        ),
        (Job::sample().replace("job.json", r#""quick""#, r#""quik""#), &["job.json", "quik"]),
        (
            Job::sample().replace("job.json", r#""machine": "quad""#, r#""machine": "two""#),
            &["job.json", "results.json", "belong to different jobs"],
        ),
        (
            Job::sample().replace("verification.json", r#""guest": "web1""#, r#""guest": "db1""#),
            &["verification.json", "db1"],
        ),
        (
            Job::sample().replace("results.json", r#""guest": "web1""#, r#""guest": "db1""#),
            &["results.json", "db1", "web1"],
        ),
        (
            Job::sample().replace("plan.json", "<vcpu placement='static'>2", "<vcpu placement='static'>x"),
            &["plan.json", "domains[0].xml_before", "line 6"],
        ),
        (Job::sample().replace("rollback.json", "{", "["), &["rollback.json", "not JSON"]),
    ];
    for (job, words) in cases {
        let (code, stdout, stderr) = job.report(&[]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{word} in {stderr}");
        }
        assert!(!job.path("report.html").exists(), "{words:?}: nothing is written");
    }
}

#[test]
fn a_plan_alone_or_something_else_than_a_file_is_no_job() {
    let every =
        ["job.json", "host-before.json", "host-after.json", "verification.json", "results.json", "rollback.json"];
    let (code, _, stderr) = every.into_iter().fold(Job::sample(), Job::remove).report(&[]);
    assert!(code == 2 && stderr.contains("holds only a plan"), "{stderr}");
    let job = Job::sample().remove("results.json");
    files::create_dir_all(&job.path("results.json")).unwrap();
    let (code, _, stderr) = job.report(&[]);
    assert!(code == 2 && stderr.contains("not a regular file"), "{stderr}");
    let job = Job::sample().remove("results.json");
    files::write(&job.path("results.json"), [0xff, 0xfe]).unwrap();
    let (code, _, stderr) = job.report(&[]);
    assert!(code == 2 && stderr.contains("not UTF-8"), "{stderr}");
}

#[test]
fn the_files_go_where_they_are_asked_to() {
    let job = Job::sample();
    let elsewhere = tempfile::tempdir().unwrap();
    let directory = elsewhere.path().join("deep/report");
    let (code, stdout, stderr) = job.report(&["-o", directory.to_str().unwrap(), "--format", "html"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(directory.join("report.html").exists() && !job.path("report.html").exists());
    assert_eq!(stdout.trim_end(), files::read_to_string(&directory.join("report.html")).unwrap().trim_end());
    let (code, _, stderr) = job.report(&["--domain", "db1"]);
    assert!(code == 2 && stderr.contains("`db1`") && stderr.contains("`web1`"), "{stderr}");
}
