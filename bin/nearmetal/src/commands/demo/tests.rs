//! The demo with its lab replaced by a directory of outputs: the same code to its last file, and broken on purpose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nearmetal_host::files;
use nearmetal_lab::ExecOutput;
use serde_json::Value;
use tempfile::TempDir;

use super::course::Course;
use super::finish::finish;
use super::job::{JOB, Job};
use super::lab::Ground;
use super::length::{Length, shortened};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// A lab that answers with files.
struct Recorded {
    directory: TempDir,
    /// Part of a script, the exit code it then has, and its words.
    fails: Vec<(&'static str, i32, &'static str)>,
    ran: Vec<String>,
}

impl Recorded {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/results/job-sample");
        for file in files::list(&sample).unwrap() {
            files::write(&directory.path().join(file.file_name().unwrap()), files::read(&file).unwrap()).unwrap();
        }
        let mut lab = Self { directory, fails: Vec::new(), ran: Vec::new() };
        lab.edit_runs(|runs| runs.retain(|run| run["outcome"]["outcome"] == "measured"));
        lab
    }

    fn failing(mut self, script: &'static str, code: i32, words: &'static str) -> Self {
        self.fails.push((script, code, words));
        self
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn text(&self, file: &str) -> String {
        files::read_to_string(&self.path(file)).unwrap()
    }

    fn edit_runs(&mut self, edit: impl FnOnce(&mut Vec<Value>)) {
        let mut results: Value = serde_json::from_str(&self.text("results.json")).unwrap();
        edit(results["runs"].as_array_mut().unwrap());
        files::write(&self.path("results.json"), results.to_string()).unwrap();
    }

    /// Sets a metric of the first run, or adds it.
    fn with_metric(mut self, name: &str, unit: &str, value: f64) -> Self {
        self.edit_runs(|runs| {
            let metrics = runs[0]["outcome"]["metrics"].as_array_mut().unwrap();
            metrics.retain(|metric| metric["name"] != name);
            metrics.push(serde_json::json!({"name": name, "unit": unit, "value": value}));
        });
        self
    }

    fn ran(&self, script: &str) -> bool {
        self.ran.iter().any(|ran| ran.contains(script))
    }
}

impl Ground for Recorded {
    fn run(&mut self, script: &str, _: Duration) -> anyhow::Result<ExecOutput> {
        self.ran.push(script.to_owned());
        if let Some((_, status, words)) = self.fails.iter().find(|(part, ..)| script.contains(part)) {
            return Ok(ExecOutput { status: *status, stdout: Vec::new(), stderr: words.as_bytes().to_vec() });
        }
        let stdout = match script {
            "nearmetal inspect --format json" if self.ran("verify") => self.text("host-after.json"),
            "nearmetal inspect --format json" => self.text("host-before.json"),
            _ if script.starts_with("nearmetal verify") => self.text("verification.json"),
            _ if script.starts_with("nearmetal rollback") => self.text("rollback.json"),
            _ if script.starts_with("ls ") => "plan.json\nresults.json\n".to_owned(),
            _ => String::new(),
        };
        Ok(ExecOutput { status: 0, stdout: stdout.into_bytes(), stderr: Vec::new() })
    }

    fn show(&mut self, script: &str, limit: Duration) -> anyhow::Result<i32> {
        Ok(self.run(script, limit)?.status)
    }

    fn push(&mut self, _: &Path, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn pull(&mut self, remote: &str, local: &Path) -> anyhow::Result<()> {
        let file = remote.strip_prefix(JOB).unwrap().trim_start_matches('/');
        anyhow::ensure!(
            !self.fails.iter().any(|(part, ..)| remote.ends_with(part)),
            "cannot copy `{remote}`: disk full"
        );
        Ok(files::write(local, self.text(file))?)
    }
}

/// What came of a demo.
struct Done {
    status: ExitStatus,
    words: String,
    in_force: bool,
    output: TempDir,
}

impl Done {
    fn text(&self, file: &str) -> String {
        files::read_to_string(&self.output.path().join(file)).unwrap_or_default()
    }

    fn summary(&self) -> Value {
        serde_json::from_str(&self.text("summary.json")).unwrap()
    }
}

fn demo_into(output: TempDir, lab: &mut Recorded) -> Done {
    let mut printer = Printer::new(true);
    let mut course = Course::new(&mut printer);
    let job = Job { output: output.path(), programs: &[], length: &Length::SHORT, borrowed: true };
    let in_force = job.run(lab, &mut course).in_force;
    finish(&job, &mut course);
    let words = course.last_words(output.path()).join("\n");
    Done { status: course.conclude(output.path()), words, in_force, output }
}

fn demo(lab: &mut Recorded) -> Done {
    demo_into(tempfile::tempdir().unwrap(), lab)
}

#[test]
fn a_demo_without_trouble_ends_with_a_page_and_a_lab_as_it_was() {
    let mut lab = Recorded::new();
    let done = demo(&mut lab);
    assert_eq!((done.status, done.words.as_str(), done.in_force), (ExitStatus::Done, "", false));
    let summary = done.summary();
    assert_eq!((&summary["rolled_back"], &summary["incomplete"]), (&true.into(), &Value::Array(vec![])));
    assert!(done.text("report.html").contains("as planned"));
    let places = ["rollback --restart", "virsh -q undefine", "rm -rf /var/lib/nearmetal", &format!("rm -rf {JOB}")]
        .map(|script| lab.ran.iter().rposition(|ran| ran.contains(script)).unwrap_or_else(|| panic!("{script}")));
    assert!(places.is_sorted(), "{:?}", lab.ran);
}

#[test]
fn what_was_shortened_is_said_by_what_ran() {
    let done = demo(&mut Recorded::new());
    let manifest: Value = serde_json::from_str(&done.text("job.json")).unwrap();
    let results = nearmetal_results::Results::parse(&done.text("results.json")).unwrap();
    let words = shortened(&results);
    assert_eq!(manifest["shortened"], serde_json::json!(words));
    for phrase in ["only 4 KiB is paired", "5 s samples", "6 pairs", "4 A/A pairs"] {
        assert!(words.iter().any(|word| word == phrase), "`{phrase}` in {words:?}");
    }
    let mut less = results.clone();
    less.runs.retain(|run| run.round < 2);
    assert!(shortened(&less) != words);
}

#[test]
fn a_cost_of_zero_is_a_value_and_a_rate_of_zero_fails_the_demo_in_a_sentence() {
    let done = demo(&mut Recorded::new().with_metric("cost.exits.all", "1/IO", 0.0));
    assert_eq!((done.status, done.words.as_str()), (ExitStatus::Done, ""));
    let done = demo(&mut Recorded::new().with_metric("iops", "IOPS", 0.0));
    assert_eq!(done.status, ExitStatus::Refused);
    assert!(done.words.contains("stage `report`") && done.words.contains("made no report"), "{}", done.words);
    assert!(done.words.contains("next: once its cause is gone, `nearmetal report "), "{}", done.words);
    assert_eq!(done.text("report.html"), "", "no page, and none is named");
}

#[test]
fn an_arm_without_a_sample_is_named_at_the_top_and_the_demo_ends_with_1() {
    let mut lab = Recorded::new();
    lab.edit_runs(|runs| {
        for run in runs.iter_mut().filter(|run| run["arm"] == "as-found") {
            run["outcome"] = serde_json::json!({"outcome": "failed", "why": "the agent did not answer"});
        }
    });
    let done = demo(&mut lab);
    assert_eq!(done.status, ExitStatus::Findings);
    assert!(done.words.contains("the arm `as-found` is incomplete") && done.words.contains("the agent did not answer"));
    let page = done.text("report.html");
    let place = |words: &str| page.find(words).unwrap_or_else(|| panic!("`{words}` is missing"));
    assert!(place("samples failed, so it has no figures") < place("<h1>"));
    assert_eq!(done.summary()["incomplete"][0]["arm"], "as-found");
}

#[test]
fn a_report_that_cannot_be_written_fails_the_demo_and_is_not_named() {
    let output = tempfile::tempdir().unwrap();
    files::create_dir_all(&output.path().join("report.html")).unwrap();
    let done = demo_into(output, &mut Recorded::new());
    assert_eq!(done.status, ExitStatus::Refused);
    assert!(done.words.contains("stage `report`") && done.words.contains("report.html"), "{}", done.words);
    assert!(done.words.contains("next: what was collected is in"), "{}", done.words);
}

#[test]
fn a_rollback_that_refuses_fails_the_demo_and_leaves_the_journal() {
    let mut lab = Recorded::new().failing("nearmetal rollback", 3, "error: the guest did not shut down within 120 s");
    let done = demo(&mut lab);
    assert_eq!((done.status, done.in_force), (ExitStatus::Refused, true));
    assert!(done.words.contains("stage `rollback`: `nearmetal rollback` ended with 3: the guest did not shut down"));
    assert!(!lab.ran("rm -rf /var/lib/nearmetal") && !lab.ran("undefine"), "the way back is kept: {:?}", lab.ran);
    assert_eq!(done.summary()["rolled_back"], Value::Null, "the page does not say that it was");
}

#[test]
fn a_guest_that_dies_while_it_is_measured_fails_the_demo_after_the_rollback() {
    let mut lab = Recorded::new().failing("nearmetal bench", 3, "error: arm `as-found`: the agent does not answer");
    files::remove(&lab.path("results.json")).unwrap();
    lab.fails.push(("ls ", 0, ""));
    let done = demo(&mut lab);
    assert_eq!((done.status, done.in_force), (ExitStatus::Refused, false));
    assert!(done.words.contains("stage `bench`") && done.words.contains("ended with 3"), "{}", done.words);
    assert!(lab.ran("nearmetal rollback") && lab.ran("virsh -q undefine"), "{:?}", lab.ran);
}

#[test]
fn a_guest_that_never_answers_ends_the_demo_before_anything_is_changed() {
    let mut lab = Recorded::new().failing("guest-ping", 1, "");
    let done = demo(&mut lab);
    assert_eq!(done.status, ExitStatus::Refused);
    assert!(done.words.contains("the agent of `web1` did not answer"), "{}", done.words);
    assert!(done.words.contains("next: there is no report"), "{}", done.words);
    assert!(!lab.ran("nearmetal apply") && lab.ran("virsh -q undefine"), "{:?}", lab.ran);
}

#[test]
fn findings_of_the_read_back_and_a_file_that_stays_in_the_lab_are_said() {
    let mut lab = Recorded::new();
    lab.fails.push(("results.json", 0, ""));
    let done = demo(&mut lab);
    assert_eq!(done.status, ExitStatus::Refused);
    assert!(done.words.contains("stage `collect`: cannot copy `/root/nearmetal-demo/results.json`"), "{}", done.words);
    let mut lab = Recorded::new().failing("nearmetal apply", 1, "");
    let done = demo(&mut lab);
    assert_eq!(done.status, ExitStatus::Findings);
    assert!(done.words.contains("`apply` read back something else") && lab.ran("nearmetal rollback"));
}
