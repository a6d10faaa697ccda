//! What came of the cases: one JSON file, from which an interrupted run resumes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nearmetal_host::files;
use serde::{Deserialize, Serialize};

use crate::cases::Case;
use crate::labs::Labs;

/// Schema of the file.
const SCHEMA: &str = "nearmetal.lab-cases/1";

/// The record of one build's cases.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    schema: String,
    /// SHA-256 over the programs under test: results of another build are not taken over.
    build: String,
    /// Totals, for a reader in a hurry.
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Wall seconds of all cases together.
    #[serde(default)]
    seconds: f64,
    /// By case name.
    cases: BTreeMap<String, CaseRecord>,
    /// Wall seconds of the attempt by which each case last passed, in whatever build and without the boot of shared labs: what
    /// a run may take.
    #[serde(default)]
    times: BTreeMap<String, f64>,
    /// Wall seconds of the last boot of each kind of shared labs, by its name.
    #[serde(default)]
    boots: BTreeMap<String, f64>,
    /// Name of the kind of shared labs that `--keep-lab` left running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
    #[serde(skip)]
    path: PathBuf,
}

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseRecord {
    /// What came of it.
    pub outcome: Outcome,
    /// Failure or reason for skipping; what was measured, for a pass that measured something.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// How a first attempt failed, where a second one in a fresh lab was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_attempt: Option<String>,
    /// Wall seconds, both attempts together.
    pub seconds: f64,
}

/// What came of a case. Not run is an outcome of its own: the case is then absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It held.
    Passed,
    /// It did not.
    Failed,
    /// It could not be tried; the detail says why.
    Skipped,
}

impl Record {
    /// The record at `path` if it is of the same build, else an empty one.
    pub fn resume(path: &Path, build: &str) -> Self {
        let old = files::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Self>(&text).ok());
        match old {
            Some(record) if record.schema == SCHEMA && record.build == build => {
                Self { path: path.to_owned(), ..record }
            }
            other => {
                let other = other.unwrap_or_default();
                Self {
                    schema: SCHEMA.to_owned(),
                    build: build.to_owned(),
                    times: other.times,
                    boots: other.boots,
                    kept: other.kept,
                    path: path.to_owned(),
                    ..Self::default()
                }
            }
        }
    }

    /// Wall seconds of a case when it last passed.
    pub fn time(&self, name: &str) -> Option<f64> {
        self.times.get(name).copied()
    }

    /// Wall seconds that a case may take, the boot of its labs included unless they are the ones that are up; `None` if it
    /// never passed.
    pub fn needs(&self, case: &Case, up: Option<Labs>) -> Option<f64> {
        let boot = case.labs().filter(|labs| Some(*labs) != up).and_then(|labs| self.boots.get(labs.name()));
        Some(self.time(case.name)? + boot.copied().unwrap_or_default())
    }

    /// What these cases took when they last passed, one after the other, in words: `5 to run: about 12 min one after the other, and 2 of them never
    /// passed here`.
    pub fn estimate(&self, cases: &[&Case], mut up: Option<Labs>) -> String {
        let mut known = Vec::new();
        for case in cases {
            known.extend(self.needs(case, up));
            up = case.labs();
        }
        let unknown = cases.len() - known.len();
        if known.is_empty() {
            return format!("{unknown} to run: how long they take nobody knows, since none of them ever passed here");
        }
        let minutes = known.iter().sum::<f64>() / 60.0;
        let beside = if unknown > 0 { format!(", and {unknown} of them never passed here") } else { String::new() };
        format!("{} to run: about {minutes:.0} min one after the other{beside}", cases.len())
    }

    /// The shared labs that an earlier run left running. They are this run's from now on.
    pub fn take_kept(&mut self) -> Option<Labs> {
        self.kept.take().and_then(|name| Labs::named(&name))
    }

    /// Writes down which shared labs stay.
    pub fn keep(&mut self, labs: Option<Labs>) -> anyhow::Result<()> {
        self.kept = labs.map(|labs| labs.name().to_owned());
        self.write()
    }

    /// A boot of shared labs took so many seconds.
    pub fn booted(&mut self, labs: Labs, seconds: f64) {
        self.boots.insert(labs.name().to_owned(), seconds);
    }

    /// Whether a case passed already in this build.
    pub fn has_passed(&self, name: &str) -> bool {
        self.cases.get(name).is_some_and(|case| case.outcome == Outcome::Passed)
    }

    /// Adds a case, whose last attempt took so many wall seconds without the boot of shared labs, and writes the file.
    pub fn add(&mut self, name: &str, case: CaseRecord, took: f64) -> anyhow::Result<()> {
        // One that failed, or was skipped, says nothing of how long it takes.
        if case.outcome == Outcome::Passed {
            self.times.insert(name.to_owned(), took);
        }
        self.cases.insert(name.to_owned(), case);
        self.seconds = self.cases.values().map(|case| case.seconds).sum();
        let count = |outcome| self.cases.values().filter(|case| case.outcome == outcome).count();
        (self.passed, self.failed, self.skipped) =
            (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped));
        self.write()
    }

    fn write(&self) -> anyhow::Result<()> {
        if let Some(parent) = self.path.parent() {
            files::create_dir_all(parent)?;
        }
        files::write_atomic(&self.path, serde_json::to_string_pretty(self)?)?;
        Ok(())
    }

    /// Wall seconds of all cases together.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// (passed, failed, skipped).
    pub fn totals(&self) -> (usize, usize, usize) {
        (self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Body, HOLDS, Room};

    fn ended(outcome: Outcome, seconds: f64) -> CaseRecord {
        CaseRecord { outcome, detail: String::new(), first_attempt: None, seconds }
    }

    fn case(name: &'static str, labs: Option<Labs>) -> Case {
        let body = match labs {
            Some(labs) => Body::Shared(labs, |_| Ok(HOLDS)),
            None => Body::Own(Room::Beside, || Ok(HOLDS)),
        };
        Case { name, body, long: true }
    }

    #[test]
    fn another_build_has_no_results_and_knows_how_long_cases_took() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases.json");
        let mut record = Record::resume(&path, "one");
        record.add("a", ended(Outcome::Passed, 390.0), 90.0).unwrap();
        record.add("b", ended(Outcome::Failed, 30.0), 15.0).unwrap();
        record.add("c", ended(Outcome::Skipped, 0.1), 0.1).unwrap();
        let same = Record::resume(&path, "one");
        assert_eq!((same.seconds(), same.totals(), same.has_passed("a")), (420.1, (1, 1, 1), true));
        let mut other = Record::resume(&path, "two");
        assert_eq!((other.seconds(), other.totals(), other.has_passed("a")), (0.0, (0, 0, 0), false));
        assert_eq!((other.time("a"), other.time("b"), other.time("c")), (Some(90.0), None, None));
        other.add("a", ended(Outcome::Failed, 900.0), 900.0).unwrap();
        assert_eq!((other.time("a"), other.seconds()), (Some(90.0), 900.0));
    }

    #[test]
    fn each_kind_of_labs_is_booted_once_in_an_estimate() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases.json");
        let mut record = Record::resume(&path, "one");
        record.booted(Labs::Plain, 60.0);
        record.add("a", ended(Outcome::Passed, 120.0), 60.0).unwrap();
        record.add("b", ended(Outcome::Passed, 60.0), 60.0).unwrap();
        record.add("alone", ended(Outcome::Passed, 300.0), 300.0).unwrap();
        let record = Record::resume(&path, "two");
        let (a, b, alone) = (case("a", Some(Labs::Plain)), case("b", Some(Labs::Plain)), case("alone", None));
        let unknown = case("c", Some(Labs::Loads));
        assert_eq!((record.needs(&a, None), record.needs(&a, Some(Labs::Plain))), (Some(120.0), Some(60.0)));
        assert_eq!((record.needs(&alone, None), record.needs(&unknown, None)), (Some(300.0), None));
        assert_eq!(
            record.estimate(&[&a, &b, &alone], Some(Labs::Counting)),
            "3 to run: about 8 min one after the other"
        );
        assert_eq!(record.estimate(&[&a, &b], Some(Labs::Plain)), "2 to run: about 2 min one after the other");
        assert_eq!(
            record.estimate(&[&a, &unknown], None),
            "2 to run: about 2 min one after the other, and 1 of them never passed here"
        );
        assert!(record.estimate(&[&unknown], None).starts_with("1 to run: how long they take nobody knows"));
    }

    #[test]
    fn labs_that_were_kept_are_handed_to_one_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases.json");
        Record::resume(&path, "one").keep(Some(Labs::Cabled)).unwrap();
        let mut record = Record::resume(&path, "two");
        assert_eq!((record.take_kept(), record.take_kept()), (Some(Labs::Cabled), None));
        record.keep(None).unwrap();
        assert_eq!(Record::resume(&path, "two").take_kept(), None);
    }
}
