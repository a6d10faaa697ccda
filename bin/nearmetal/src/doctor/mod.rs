//! `nearmetal doctor`: what is gathered, and the forms it is shown in.

mod document;
mod export;
mod fix;
mod fix_report;
mod gather;
mod images;
mod junit;
mod look;
mod sarif;
mod text;
mod watch;

use nearmetal_rules::{Examination, Settings, Severity};

pub(crate) use document::json;
pub(crate) use export::export;
pub(crate) use fix::{FixArgs, fix};
pub(crate) use gather::{Gathered, gather, gather_again};
pub(crate) use images::Images;
pub(crate) use junit::junit;
pub(crate) use look::{LookArgs, Looked};
pub(crate) use sarif::sarif;
pub(crate) use text::{explain, list, text};
pub(crate) use watch::{Times, stopped_by_signals, watch};

/// What is shown.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// Host and domains.
    pub gathered: &'a Gathered,
    /// What the rules said.
    pub examination: &'a Examination,
    /// The least severity that fails; `None` if nothing does.
    pub fail_on: Option<Severity>,
}

impl Report<'_> {
    /// Whether a finding of this severity fails the command.
    pub(crate) fn is_failure(&self, severity: Severity) -> bool {
        self.fail_on.is_some_and(|least| severity <= least)
    }

    /// Whether anything found fails the command.
    pub(crate) fn fails(&self) -> bool {
        self.examination.findings.iter().any(|finding| self.is_failure(finding.severity))
    }
}

/// The default thresholds with these in their place, each as `NAME=VALUE`.
pub(crate) fn settings(changes: &[String]) -> Result<Settings, String> {
    let mut values = serde_json::to_value(Settings::default()).map_err(|error| error.to_string())?;
    for change in changes {
        let (name, value) = change.split_once('=').ok_or_else(|| format!("`{change}` is not NAME=VALUE"))?;
        let known = values.get_mut(name).ok_or_else(|| {
            format!("there is no threshold `{name}`; `nearmetal doctor --list` shows all with their defaults")
        })?;
        *known = serde_json::from_str(value).map_err(|_| format!("threshold `{name}`: `{value}` is not a number"))?;
    }
    serde_json::from_value(values).map_err(|error| format!("thresholds: {error}"))
}
