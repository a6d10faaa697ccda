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
    /// By case name.
    cases: BTreeMap<String, CaseRecord>,
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
            _ => Self {
                schema: SCHEMA.to_owned(),
                build: build.to_owned(),
                passed: 0,
                failed: 0,
                skipped: 0,
                cases: BTreeMap::new(),
                path: path.to_owned(),
            },
        }
    }

    /// Whether a case passed already in this build.
    pub fn has_passed(&self, name: &str) -> bool {
        self.cases.get(name).is_some_and(|case| case.outcome == Outcome::Passed)
    }

    /// Adds a case and writes the file.
    pub fn add(&mut self, name: &str, case: CaseRecord) -> anyhow::Result<()> {
        self.cases.insert(name.to_owned(), case);
        let count = |outcome| self.cases.values().filter(|case| case.outcome == outcome).count();
        (self.passed, self.failed, self.skipped) =
            (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped));
        if let Some(parent) = self.path.parent() {
            files::create_dir_all(parent)?;
        }
        files::write_atomic(&self.path, serde_json::to_string_pretty(self)?)?;
        Ok(())
    }

    /// (passed, failed, skipped).
    pub fn totals(&self) -> (usize, usize, usize) {
        (self.passed, self.failed, self.skipped)
    }
}
