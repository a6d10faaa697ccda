//! Reading a job directory. Its files are hostile until parsed: other machines and other versions write them too.

use std::io::{ErrorKind, Read};
use std::path::Path;

use nearmetal_change::PlanFile;
use nearmetal_change::verify::{VERIFICATION_SCHEMA, Verification};
use nearmetal_host::{Host, files};
use nearmetal_load::Metric;
use nearmetal_results::{Outcome, Results};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{JobError, cut, short};
use super::manifest::{JOB_SCHEMA, Manifest};
use super::outputs::{HostOutput, ROLLBACK_SCHEMA, RollbackOutput};

/// Names of the files in a job directory.
pub(crate) const PLAN: &str = "plan.json";
/// See [`JobFiles::host_before`].
pub(crate) const HOST_BEFORE: &str = "host-before.json";
/// See [`JobFiles::host_after`].
pub(crate) const HOST_AFTER: &str = "host-after.json";
/// See [`JobFiles::verification`].
pub(crate) const VERIFICATION: &str = "verification.json";
/// See [`JobFiles::results`].
pub(crate) const RESULTS: &str = "results.json";
/// See [`JobFiles::rollback`].
pub(crate) const ROLLBACK: &str = "rollback.json";

/// The largest file read. The model of a host with a thousand PUs and as many devices has a few MiB.
const LARGEST: u64 = 64 << 20;

/// What a job left behind.
#[derive(Debug)]
pub(crate) struct JobFiles {
    /// `job.json`.
    pub manifest: Option<Manifest>,
    /// `nearmetal inspect` before any change.
    pub host_before: Option<Host>,
    /// `nearmetal inspect` while the planned guest ran.
    pub host_after: Option<Host>,
    /// `nearmetal plan`.
    pub plan: PlanFile,
    /// `nearmetal verify` after the change: one entry per domain it was asked about; empty if nothing was read back.
    pub verification: Vec<Verification>,
    /// `nearmetal bench`.
    pub results: Option<Results>,
    /// `nearmetal rollback`.
    pub rollback: Option<RollbackOutput>,
}

impl JobFiles {
    /// Reads and checks a job directory: `plan.json` and at least one more file.
    ///
    /// # Errors
    /// The file, and the field in it: see [`JobError`].
    pub(crate) fn load(directory: &Path) -> Result<Self, JobError> {
        let text = read(&directory.join(PLAN))?;
        let text = text.ok_or_else(|| JobError::Missing { directory: directory.to_owned(), file: PLAN })?;
        let plan = PlanFile::parse(&text, &format!("`{}`", directory.join(PLAN).display()))?;
        let host = |file| {
            Ok::<_, JobError>(load::<HostOutput>(directory, file, nearmetal_host::SCHEMA)?.map(|found| found.host))
        };
        let job = Self {
            manifest: load(directory, Manifest::FILE, JOB_SCHEMA)?,
            host_before: host(HOST_BEFORE)?,
            host_after: host(HOST_AFTER)?,
            plan,
            verification: verifications(directory)?,
            results: results(directory)?,
            rollback: load(directory, ROLLBACK, ROLLBACK_SCHEMA)?,
        };
        let found = [
            job.host_before.is_some(),
            job.host_after.is_some(),
            !job.verification.is_empty(),
            job.results.is_some(),
            job.rollback.is_some(),
        ];
        if !found.contains(&true) {
            let others = vec![HOST_BEFORE, HOST_AFTER, VERIFICATION, RESULTS, ROLLBACK];
            return Err(JobError::NothingButPlan { directory: directory.to_owned(), others });
        }
        if let Some(results) = &job.results {
            check_values(&directory.join(RESULTS), results)?;
        }
        Ok(job)
    }
}

/// A file as text; `None` if it is not there.
fn read(path: &Path) -> Result<Option<String>, JobError> {
    let refuse = |problem: String| JobError::NotReadable { path: path.to_owned(), problem };
    // Asked before it is opened: opening a pipe would wait for whoever writes to it.
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(refuse("is not a regular file".to_owned())),
        Ok(found) if found.len() > LARGEST => {
            return Err(refuse(format!("has {} bytes; the limit is {LARGEST}", found.len())));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(_) | Err(_) => {}
    }
    let mut bytes = Vec::new();
    let wrap = |source| files::FileError { action: "read", path: path.to_owned(), source };
    files::open(path)?.take(LARGEST).read_to_end(&mut bytes).map_err(wrap)?;
    String::from_utf8(bytes).map(Some).map_err(|error| {
        refuse(format!("is not UTF-8 text: invalid byte at offset {}", error.utf8_error().valid_up_to()))
    })
}

/// A file as JSON; `None` if it is not there.
pub(super) fn document(path: &Path) -> Result<Option<Value>, JobError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let wrap = |error| JobError::NotReadable { path: path.to_owned(), problem: format!("is not JSON: {error}") };
    serde_json::from_str(&text).map(Some).map_err(wrap)
}

/// A file of one schema in a directory; `None` if it is not there.
///
/// # Errors
/// The file, and the field in it.
pub(crate) fn load<T: DeserializeOwned>(
    directory: &Path,
    file: &'static str,
    schema: &'static str,
) -> Result<Option<T>, JobError> {
    let path = directory.join(file);
    document(&path)?.map(|value| typed(&path, "", value, schema)).transpose()
}

/// Results of this version or an earlier one.
fn results(directory: &Path) -> Result<Option<Results>, JobError> {
    let path = directory.join(RESULTS);
    let document = document(&path)?.map(nearmetal_results::upgraded);
    document.map(|value| typed(&path, "", value, nearmetal_results::SCHEMA)).transpose()
}

/// `verify` prints one document for one domain, and a list of them for several.
fn verifications(directory: &Path) -> Result<Vec<Verification>, JobError> {
    let path = directory.join(VERIFICATION);
    match document(&path)? {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => all
            .into_iter()
            .enumerate()
            .map(|(index, value)| typed(&path, &format!("[{index}]."), value, VERIFICATION_SCHEMA))
            .collect(),
        Some(one) => Ok(vec![typed(&path, "", one, VERIFICATION_SCHEMA)?]),
    }
}

/// What a document says of itself.
pub(super) fn schema_of(value: &Value) -> &str {
    value.get("schema").map_or("missing", |found| found.as_str().unwrap_or("not a text"))
}

/// Checks the schema, then the shape: a newer file should be called that, and not "unknown field".
pub(super) fn typed<T: DeserializeOwned>(
    path: &Path,
    prefix: &str,
    value: Value,
    schema: &'static str,
) -> Result<T, JobError> {
    let found = schema_of(&value);
    if found != schema {
        return Err(JobError::Schema { path: path.to_owned(), found: short(found), expected: schema });
    }
    serde_path_to_error::deserialize(value).map_err(|error| JobError::Field {
        path: path.to_owned(),
        field: format!("{prefix}{}", short(&error.path().to_string())),
        problem: cut(&error.inner().to_string(), 300),
    })
}

/// The crate that measures makes no values that cannot be; a file may have them.
pub(super) fn check_values(path: &Path, results: &Results) -> Result<(), JobError> {
    check_outcomes(path, "runs", results.runs.iter().map(|run| &run.outcome))?;
    for (index, run) in results.runs.iter().enumerate() {
        let parts = run.together.iter().flat_map(|together| &together.parts);
        for (place, part) in parts.enumerate() {
            check_metrics(path, &format!("runs[{index}].together.parts[{place}]"), &part.metrics)?;
        }
    }
    Ok(())
}

/// [`check_values`] of a list of outcomes, which the document has in the field `list`.
pub(super) fn check_outcomes<'a>(
    path: &Path,
    list: &str,
    outcomes: impl Iterator<Item = &'a Outcome>,
) -> Result<(), JobError> {
    for (index, outcome) in outcomes.enumerate() {
        let Outcome::Measured { metrics, .. } = outcome else { continue };
        check_metrics(path, &format!("{list}[{index}]"), metrics)?;
    }
    Ok(())
}

/// The values that the document has below `field`.
fn check_metrics(path: &Path, field: &str, metrics: &[Metric]) -> Result<(), JobError> {
    for (number, metric) in metrics.iter().enumerate() {
        metric.sound().map_err(|problem| JobError::Field {
            path: path.to_owned(),
            field: format!("{field}.metrics[{number}].value"),
            problem: cut(&problem, 300),
        })?;
    }
    Ok(())
}
