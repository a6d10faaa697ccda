//! Running other programs: no shell, output kept, failure in the program's own words.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::error::MeasureError;

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn judge(command: &Command, output: Output) -> Result<String, MeasureError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let why = match words.trim() {
        "" => output.status.to_string(),
        words => words.chars().take(400).collect(),
    };
    Err(MeasureError::WorkloadFailed { what: name(command), why })
}

/// Runs a program to its end and gives its stdout.
pub(crate) fn run(command: &mut Command) -> Result<String, MeasureError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| MeasureError::Program { program: name(command), source })?;
    judge(command, output)
}

/// The same, with text on its stdin.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<String, MeasureError> {
    let program = name(command);
    let wrap = |source| MeasureError::Program { program, source };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(source) => return Err(wrap(source)),
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading says why on stderr; a broken pipe adds nothing.
        let _ = stdin.write_all(input.as_bytes());
    }
    match child.wait_with_output() {
        Ok(output) => judge(command, output),
        Err(source) => Err(wrap(source)),
    }
}

/// Waits until udev has made the names of what was just created. Dozens of partitions take it a while on a busy machine.
pub(crate) fn settle_names() -> Result<(), MeasureError> {
    run(Command::new("udevadm").args(["settle", "--timeout=60"])).map(drop)
}
