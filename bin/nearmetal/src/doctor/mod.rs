//! `nearmetal doctor`: what is gathered, and the forms it is shown in.

mod document;
mod export;
mod fix;
mod fix_report;
mod gather;
mod images;
mod junit;
mod look;
mod named;
mod sarif;
mod text;
mod watch;

use nearmetal_rules::{Examination, Severity};

pub(crate) use document::json;
pub(crate) use export::export;
pub(crate) use fix::{FixArgs, fix};
pub(crate) use gather::{Gathered, gather, gather_again};
pub(crate) use images::Images;
pub(crate) use junit::junit;
pub(crate) use look::{LookArgs, Looked};
pub(crate) use named::{known, settings};
pub(crate) use sarif::sarif;
pub(crate) use text::{explain, list, text};
pub(crate) use watch::{Times, watch};

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
    /// What the counts say nothing about; it stands wherever they do.
    pub(crate) fn unchecked(&self) -> Option<String> {
        self.gathered.domains_unknown.as_ref().map(|why| format!("domains were not checked: {why}"))
    }

    /// How much was found, and in what: `0 findings on the host; domains were not checked: …`.
    pub(crate) fn summary(&self) -> String {
        let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let findings = counted(self.examination.findings.len(), "finding");
        match self.unchecked() {
            Some(unchecked) => format!("{findings} on the host; {unchecked}"),
            None => {
                let bad = match self.gathered.bad_domains.len() {
                    0 => String::new(),
                    bad => format!("; {} could not be read", counted(bad, "domain")),
                };
                format!("{findings} on the host and in {}{bad}", counted(self.gathered.domains.len(), "domain"))
            }
        }
    }

    /// Whether a finding of this severity fails the command.
    pub(crate) fn is_failure(&self, severity: Severity) -> bool {
        self.fail_on.is_some_and(|least| severity <= least)
    }

    /// Whether anything found fails the command.
    pub(crate) fn fails(&self) -> bool {
        self.examination.findings.iter().any(|finding| self.is_failure(finding.severity))
    }
}
