//! The directory of a published experiment: its document, what its steps left, and the page made of both.

use std::path::Path;

use anyhow::Context;
use nearmetal_host::files;
use nearmetal_report::experiment_page;
use nearmetal_report::papers::of_experiment;
use nearmetal_report::view::{EXPERIMENT_SCHEMA, ExperimentView, JobReport};

use crate::job::{self, Document, JobError};

/// The experiment's own document.
pub(crate) const RECORD: &str = "experiment.json";
/// Its page.
pub(crate) const PAGE: &str = "report.html";

/// The experiment that a directory holds; `None` if it holds none.
///
/// # Errors
/// Its document cannot be read, or is of another version: the file, and the field in it.
pub(crate) fn load(directory: &Path) -> Result<Option<ExperimentView>, JobError> {
    job::load(directory, RECORD, EXPERIMENT_SCHEMA)
}

/// Writes the document.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn keep(directory: &Path, view: &ExperimentView) -> anyhow::Result<()> {
    let document = serde_json::to_string_pretty(view)? + "\n";
    Ok(files::write_atomic(&directory.join(RECORD), document)?)
}

/// Puts our figures beside the papers', and writes document and page.
///
/// # Errors
/// A step's document cannot be read, or the directory cannot be written.
pub(crate) fn render(directory: &Path, view: &mut ExperimentView) -> anyhow::Result<()> {
    let mut reports: Vec<(String, JobReport)> = Vec::new();
    for step in &view.steps {
        // Only names of files beside it: the document may be anybody's.
        let name = step.document.as_deref().map(Path::new).and_then(Path::file_name);
        if let Some(path) = name.map(|name| directory.join(name)).filter(|path| path.is_file()) {
            let report = Document::load(&path).and_then(|document| document.report(&path));
            reports.push((step.id.clone(), report.context("cannot read what a step left")?));
        }
    }
    let reports: Vec<(&str, &JobReport)> = reports.iter().map(|(id, report)| (id.as_str(), report)).collect();
    view.figures = of_experiment(&view.name, &reports);
    keep(directory, view)?;
    files::write_atomic(&directory.join(PAGE), experiment_page(view, &reports)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(text: &str) -> Result<Option<ExperimentView>, JobError> {
        let directory = tempfile::tempdir().unwrap();
        files::write_atomic(&directory.path().join(RECORD), text).unwrap();
        load(directory.path())
    }

    fn words(error: JobError) -> String {
        format!("{:#}", anyhow::Error::from(error))
    }

    #[test]
    fn a_directory_without_an_experiment_holds_none() {
        assert!(load(tempfile::tempdir().unwrap().path()).unwrap().is_none());
    }

    #[test]
    fn what_is_damaged_or_newer_is_named() {
        assert!(words(holding("{").unwrap_err()).contains(RECORD));
        let newer = words(holding("{\"schema\": \"nearmetal.experiment/9\"}").unwrap_err());
        assert!(newer.contains("nearmetal.experiment/9") && newer.contains(EXPERIMENT_SCHEMA), "{newer}");
        let lacking = words(holding(&format!("{{\"schema\": \"{EXPERIMENT_SCHEMA}\"}}")).unwrap_err());
        assert!(lacking.contains("missing field"), "{lacking}");
    }
}
