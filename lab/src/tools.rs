//! Small helpers around programs and their words.

use std::path::Path;

use crate::error::LabError;

/// Refuses anyone but root; `what` needs it.
pub(crate) fn require_root(what: &'static str) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot { what }) }
}

/// Refuses when a program is in none of the usual directories; pairs are program and Debian package.
pub(crate) fn require(programs: &[(&'static str, &'static str)]) -> Result<(), LabError> {
    for &(program, package) in programs {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Path::new);
        let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
            || usual.iter().any(|directory| directory.join(program).is_file());
        if !found {
            return Err(LabError::Program { program, package });
        }
    }
    Ok(())
}

/// What emulation says at every boot and means nothing.
const NOISE: [&str; 2] = ["TCG doesn't support requested feature", "Unhandled WRMSR"];

/// The last five lines that say something, for an error message.
pub(crate) fn last_words(log: &str) -> String {
    let lines: Vec<_> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !NOISE.iter().any(|noise| line.contains(noise)))
        .collect();
    let first = lines.len().saturating_sub(5);
    if lines.is_empty() { "it said nothing".to_owned() } else { lines[first..].join("\n") }
}

/// A word as a POSIX shell reads it back unchanged.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_not_a_reason() {
        let log = "qemu: warning: TCG doesn't support requested feature: CPUID\n\nqemu: no such bus\n";
        assert_eq!(last_words(log), "qemu: no such bus");
        assert_eq!(last_words(""), "it said nothing");
    }

    #[test]
    fn quoted_words() {
        assert_eq!(quote("a b$c"), "'a b$c'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let error = require(&[("no-such-program", "some-package")]).unwrap_err().to_string();
        assert!(error.contains("apt-get install some-package"), "{error}");
    }
}
