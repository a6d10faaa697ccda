//! One JSON object per run on standard output; prose goes to standard error.

use std::io::Write;

use serde::Serialize;

use crate::error::ProbeError;

/// Name and version of the form of the output. A field that changes its meaning, or goes, raises the version.
pub const SCHEMA: &str = "nearmetal-probe";
/// See [`SCHEMA`].
pub const SCHEMA_VERSION: u32 = 1;

/// What every command prints.
#[derive(Debug, Serialize)]
pub struct Output<'a, T: Serialize> {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of this program.
    pub probe_version: &'static str,
    /// Command that ran: `memory latency`, `kvm`, …
    pub command: &'a str,
    /// What it found.
    pub result: &'a T,
}

impl<'a, T: Serialize> Output<'a, T> {
    /// Wraps a result.
    pub fn new(command: &'a str, result: &'a T) -> Self {
        Self {
            schema: SCHEMA,
            schema_version: SCHEMA_VERSION,
            probe_version: env!("CARGO_PKG_VERSION"),
            command,
            result,
        }
    }

    /// Prints it as one line.
    ///
    /// # Errors
    /// [`ProbeError::Output`].
    pub fn print(&self) -> Result<(), ProbeError> {
        let failed = |error: serde_json::Error| ProbeError::Output(error.into());
        let mut text = serde_json::to_string(self).map_err(failed)?;
        text.push('\n');
        std::io::stdout().lock().write_all(text.as_bytes()).map_err(ProbeError::Output)
    }
}

/// Prints a remark for the person at the terminal. A closed standard error is no reason to fail.
pub fn remark(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "nearmetal-probe: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_is_stable() {
        let text = serde_json::to_string(&Output::new("kvm", &7)).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            r#"{{"schema":"nearmetal-probe","schema_version":1,"probe_version":"{version}","command":"kvm","result":7}}"#
        );
        assert_eq!(text, expected);
    }
}
