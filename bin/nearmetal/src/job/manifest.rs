//! `job.json`: what the commands' own output does not say. Whoever runs the job writes it.

use std::path::Path;

use nearmetal_host::files::{self, FileError};
use nearmetal_report::view::StageSeconds;
use nearmetal_results::Environment;
use serde::{Deserialize, Serialize};

/// Value of [`Manifest::schema`].
pub(crate) const JOB_SCHEMA: &str = "nearmetal.job/1";

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// [`JOB_SCHEMA`].
    pub schema: String,
    /// What the report is about, such as "web1 on quad".
    pub title: String,
    /// When the job ended, RFC 3339 with an offset.
    pub created: String,
    /// Silicon or a lab.
    pub environment: Environment,
    /// Whether it was shortened.
    pub quick: bool,
    /// What was shortened, one phrase each: "5 s samples".
    #[serde(default)]
    pub shortened: Vec<String>,
    /// How long each stage took.
    #[serde(default)]
    pub stages: Vec<StageSeconds>,
    /// Commands that repeat the job, one per line.
    #[serde(default)]
    pub reproduce: Vec<String>,
    /// What a reader must know before trusting a figure.
    #[serde(default)]
    pub caveats: Vec<String>,
    /// True only where the figures are invented, as in tests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sample_data: bool,
}

impl Manifest {
    /// Its name in a job directory.
    pub(crate) const FILE: &'static str = "job.json";

    /// Writes it into a job directory.
    ///
    /// # Errors
    /// The system's answer, with the path.
    pub(crate) fn save(&self, directory: &Path) -> Result<(), FileError> {
        // Serialising strings, numbers and lists of them cannot fail; a float that is none becomes null.
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        files::write_atomic(&directory.join(Self::FILE), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_reads_back() {
        let manifest = Manifest {
            schema: JOB_SCHEMA.into(),
            title: "web1 on quad".into(),
            created: "2026-01-01T00:00:00Z".into(),
            environment: Environment::Lab { machine: "quad".into() },
            quick: true,
            shortened: vec!["5 s samples".into()],
            stages: vec![StageSeconds { name: "boot the lab".into(), seconds: 41.5 }],
            reproduce: vec!["./dev demo".into()],
            caveats: vec![],
            sample_data: false,
        };
        let directory = tempfile::tempdir().unwrap();
        manifest.save(directory.path()).unwrap();
        let text = files::read_to_string(&directory.path().join(Manifest::FILE)).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest);
        assert!(!text.contains("sample_data"));
    }
}
