//! What becomes of `nearmetal verify --all` beside what it prints: figures for Prometheus, and differences in the system's
//! journal. A timer runs it, or it stays and watches.

mod journal;
mod prometheus;
mod watch;

use std::path::PathBuf;
use std::time::SystemTime;

use nearmetal_change::verify::Verification;
use nearmetal_host::files;
use nearmetal_rules::{Examination, Input, RULES, Settings, examine};

use crate::doctor::gather;

pub(crate) use watch::keep_watch;

/// Where what was found goes. The timer and the watch write by this alone, so they say the same.
#[derive(Debug, Clone)]
pub(crate) struct Outputs {
    /// The file for Prometheus.
    pub textfile: Option<PathBuf>,
    /// Whether differences go into the system's journal.
    pub journal: bool,
}

impl Outputs {
    /// Whether anything is to be written, for programs to read.
    pub(crate) fn are_wanted(&self) -> bool {
        self.textfile.is_some() || self.journal
    }

    /// Replaces the file for Prometheus; `verifications` is `None` where reading back did not come to its
    /// end; `ended` is when it ended or failed.
    pub(crate) fn write_figures(
        &self,
        verifications: Option<&[Verification]>,
        findings: Option<&Examination>,
        ended: SystemTime,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.textfile else { return Ok(()) };
        Ok(files::write_atomic(path, prometheus::prometheus(verifications, findings, ended))?)
    }

    /// Tells differences.
    pub(crate) fn tell(&self, verifications: &[Verification]) -> anyhow::Result<()> {
        if self.journal { journal::to_the_journal(verifications) } else { Ok(()) }
    }
}

/// What the rules find here now; `None` where the domains could not be read, since a count of the host's findings alone
/// would look like an improvement.
pub(crate) fn findings() -> Option<Examination> {
    let gathered = gather(&[], None, None).ok()?;
    if gathered.domains_unknown.is_some() || !gathered.bad_domains.is_empty() {
        return None;
    }
    let input = Input { host: Some(&gathered.host), domains: &gathered.domains, settings: &Settings::default() };
    Some(examine(&input, RULES))
}
