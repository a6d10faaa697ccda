//! Exit codes, decided in one place.

use std::process::ExitCode;

/// How a command ended. One that runs another must not lose the other's.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Done.
    Done,
    /// Findings, or a verification that failed.
    Findings,
    /// Wrong use: arguments, files, names.
    WrongUse,
    /// The machine refused: rights, libvirt, the kernel, no room.
    Refused,
    /// Ctrl-C, SIGTERM or SIGHUP ended it, and everything was put back.
    Stopped,
    /// The code of a program that ran on the user's behalf (`lab exec`).
    Program(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        ExitCode::from(match status {
            ExitStatus::Done => 0,
            ExitStatus::Findings => 1,
            ExitStatus::WrongUse => 2,
            ExitStatus::Refused => 3,
            // As shells have it of a program that Ctrl-C ended: 128 + SIGINT.
            ExitStatus::Stopped => 130,
            ExitStatus::Program(code) => code,
        })
    }
}

/// An error that is the user's: it ends the program with [`ExitStatus::WrongUse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongUse(pub String);

impl std::fmt::Display for WrongUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}
