//! A program that is talked to through its three streams.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

/// A program that runs, and its streams. Dropping it neither ends the program nor waits for it.
#[derive(Debug)]
pub struct Piped {
    /// To wait for it, or end it.
    pub child: Child,
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it prints.
    pub stdout: ChildStdout,
    /// What it says beside that.
    pub stderr: ChildStderr,
}

impl Piped {
    /// Starts a command.
    ///
    /// # Errors
    /// The system's answer, above all that there is no such program.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok(Self { child, stdin, stdout, stderr }),
            _ => Err(io::Error::other("it has no pipes")),
        }
    }
}
