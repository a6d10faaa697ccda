//! What came of the cases: one JSON file, from which an interrupted run resumes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nearmetal_host::files;
use serde::{Deserialize, Serialize};

/// Schema of the file.
const SCHEMA: &str = "nearmetal.lab-cases/1";

/// The record of one build's cases.
#[derive(Debug, Serialize, Deserialize)]
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
    /// Wall seconds of each case when it last ran, in whatever build: what a run may take.
    #[serde(default)]
    times: BTreeMap<String, f64>,
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
            other => Self {
                schema: SCHEMA.to_owned(),
                build: build.to_owned(),
                passed: 0,
                failed: 0,
                skipped: 0,
                seconds: 0.0,
                cases: BTreeMap::new(),
                times: other.map(|record| record.times).unwrap_or_default(),
                path: path.to_owned(),
            },
        }
    }

    /// Wall seconds of a case when it last ran.
    pub fn time(&self, name: &str) -> Option<f64> {
        self.times.get(name).copied()
    }

    /// What these cases took when they last ran, in words: `5 to run: about 12 min, and 2 of them never ran here`.
    pub fn estimate<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> String {
        let times: Vec<Option<f64>> = names.into_iter().map(|name| self.time(name)).collect();
        // The sum of no floats is -0.
        let minutes = times.iter().flatten().fold(0.0, |sum, seconds| sum + seconds) / 60.0;
        let unknown = times.iter().filter(|time| time.is_none()).count();
        match times.len() {
            all if all == unknown => format!("{all} to run, and none of them ever ran here"),
            all if unknown == 0 => format!("{all} to run: about {minutes:.0} min"),
            all => format!("{all} to run: about {minutes:.0} min, and {unknown} of them never ran here"),
        }
    }

    /// Whether a case passed already in this build.
    pub fn has_passed(&self, name: &str) -> bool {
        self.cases.get(name).is_some_and(|case| case.outcome == Outcome::Passed)
    }

    /// Adds a case and writes the file.
    pub fn add(&mut self, name: &str, case: CaseRecord) -> anyhow::Result<()> {
        // A skipped case says nothing of how long it takes.
        if case.outcome != Outcome::Skipped {
            self.times.insert(name.to_owned(), case.seconds);
        }
        self.cases.insert(name.to_owned(), case);
        self.seconds = self.cases.values().map(|case| case.seconds).sum();
        let count = |outcome| self.cases.values().filter(|case| case.outcome == outcome).count();
        (self.passed, self.failed, self.skipped) =
            (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped));
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

    fn took(outcome: Outcome, seconds: f64) -> CaseRecord {
        CaseRecord { outcome, detail: String::new(), first_attempt: None, seconds }
    }

    #[test]
    fn another_build_has_no_results_and_knows_how_long_cases_took() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases.json");
        let mut record = Record::resume(&path, "one");
        record.add("a", took(Outcome::Passed, 90.0)).unwrap();
        record.add("b", took(Outcome::Failed, 30.0)).unwrap();
        record.add("c", took(Outcome::Skipped, 0.1)).unwrap();
        let same = Record::resume(&path, "one");
        assert_eq!((same.seconds(), same.totals(), same.has_passed("a")), (120.1, (1, 1, 1), true));
        let mut other = Record::resume(&path, "two");
        assert_eq!((other.seconds(), other.totals(), other.has_passed("a")), (0.0, (0, 0, 0), false));
        assert_eq!((other.time("a"), other.time("b"), other.time("c")), (Some(90.0), Some(30.0), None));
        assert_eq!(other.estimate(["a", "b", "c"]), "3 to run: about 2 min, and 1 of them never ran here");
        assert_eq!(other.estimate(["a", "b"]), "2 to run: about 2 min");
        assert_eq!(other.estimate(["c"]), "1 to run, and none of them ever ran here");
        other.add("a", took(Outcome::Passed, 60.0)).unwrap();
        assert_eq!((other.time("a"), other.time("b"), other.seconds()), (Some(60.0), Some(30.0), 60.0));
    }
}
