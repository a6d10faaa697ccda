//! Differences as entries of the system's journal, with fields to search by.
//!
//! `logger --journald` (util-linux) takes fields as lines `NAME=value` and speaks journald's protocol.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use nearmetal_change::verify::{Check, Outcome, Verification};
use nearmetal_host::text::printable;

/// Priority of a difference: `warning` of syslog(3).
const WARNING: &str = "4";

/// Writes an entry for each check that differs.
///
/// # Errors
/// `logger` is not there or failed.
pub(crate) fn to_the_journal(verifications: &[Verification]) -> anyhow::Result<()> {
    for verification in verifications {
        for check in verification.checks.iter().filter(|check| check.outcome == Outcome::Mismatch) {
            log(&entry(&verification.guest, check))?;
        }
    }
    Ok(())
}

fn log(entry: &str) -> anyhow::Result<()> {
    const WHAT: &str = "`logger --journald` (package bsdutils)";
    let mut logger = Command::new("logger")
        .arg("--journald")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {WHAT}"))?;
    if let Some(mut stdin) = logger.stdin.take() {
        stdin.write_all(entry.as_bytes()).with_context(|| format!("cannot write to {WHAT}"))?;
    }
    let status = logger.wait().with_context(|| format!("cannot wait for {WHAT}"))?;
    if !status.success() {
        bail!("{WHAT} failed ({status}): differences are not in the system's journal");
    }
    Ok(())
}

/// One difference in words.
pub(crate) fn difference(domain: &str, check: &Check) -> String {
    let found = check.found.as_deref().unwrap_or("?");
    format!("{domain}: {}: planned {}, found {found}", check.subject, check.planned)
}

/// The lines of one entry. Values come from outside: a line break in one would begin another field.
fn entry(domain: &str, check: &Check) -> String {
    let kind = super::prometheus::word(check.kind);
    let found = check.found.as_deref().unwrap_or("?");
    let message = difference(domain, check);
    let fields = [
        ("MESSAGE", message.as_str()),
        ("PRIORITY", WARNING),
        ("SYSLOG_IDENTIFIER", "nearmetal"),
        ("NEARMETAL_DOMAIN", domain),
        ("NEARMETAL_CHECK", &kind),
        ("NEARMETAL_SUBJECT", &check.subject),
        ("NEARMETAL_PLANNED", &check.planned),
        ("NEARMETAL_FOUND", found),
    ];
    fields.into_iter().map(|(name, value)| format!("{name}={}\n", printable(value.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use nearmetal_change::verify::CheckKind;

    use super::*;

    #[test]
    fn a_difference_is_one_entry_whose_values_cannot_add_fields() {
        let check = Check {
            subject: "vCPU 0 (thread 4711)".to_owned(),
            kind: CheckKind::DiskCache,
            planned: "2".to_owned(),
            found: Some("0-3\nPRIORITY=0".to_owned()),
            outcome: Outcome::Mismatch,
            place: None,
        };
        let text = entry("web1", &check);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert_eq!(lines[1], "PRIORITY=4");
        assert!(lines.contains(&"NEARMETAL_CHECK=disk-cache") && lines.contains(&"NEARMETAL_DOMAIN=web1"), "{text}");
        assert_eq!(lines[7], r"NEARMETAL_FOUND=0-3\nPRIORITY=0");
    }
}
