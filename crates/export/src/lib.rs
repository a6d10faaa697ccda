//! What the rules found, in the forms the ecosystem keeps over a reboot.
//!
//! [`export`] is pure: from findings with their cures to the texts of files. A tuned profile has every setting that tuned
//! can keep; files of modprobe.d, sysctl.d, udev and their kin have the same settings for hosts without tuned. What is in
//! neither is named in README.txt with its reason.

mod collect;
mod definitions;
mod drives;
mod kernel_arguments;
mod loose;
mod plain;
mod readme;
mod target;
mod tuned;

use std::collections::BTreeMap;

use nearmetal_host::Host;
use nearmetal_rules::{CannotTell, Finding};

use crate::collect::Collected;
pub use crate::readme::FIRST_LINE;

/// What is exported.
pub struct Input<'a> {
    /// The host the rules looked at.
    pub host: &'a Host,
    /// What they found, worst first: of two findings that want different values the first has its way.
    pub findings: &'a [Finding],
    /// What they could not look at.
    pub cannot_tell: &'a [CannotTell],
    /// Stored definitions by name of the domain, as written. A domain without one is transient.
    pub definitions: &'a BTreeMap<String, String>,
    /// Whether a kernel file is certainly not on the host; a capture leaves that open.
    pub is_missing: &'a dyn Fn(&str) -> bool,
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportFile {
    /// Its path below the directory.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Whether it is for its owner alone: definitions may hold passwords.
    pub private: bool,
}

/// The files, by path; README.txt is always among them.
pub fn export(input: &Input<'_>) -> Vec<ExportFile> {
    let mut collected = Collected::of(input);
    let mut files: Vec<ExportFile> = Vec::new();
    files.extend(tuned::profile(input, &mut collected));
    files.extend(loose::files(input, &collected));
    files.extend(kernel_arguments::files(input, &collected));
    files.extend(definitions::files(input, &mut collected));
    files.push(readme::readme(input, &collected, &files));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

impl ExportFile {
    fn new(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), text, private: false }
    }
}
