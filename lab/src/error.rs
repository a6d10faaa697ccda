//! Everything that can go wrong with a lab, in the words the user reads.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_host::files::FileError;
use nearmetal_units::Bytes;

use crate::machine::MachineError;

/// Why a lab refused.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine file.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// One of nearmetal's own files.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not the administrator.
    #[error("{what} needs root, for a mount namespace of its own\n\nrun the command with sudo")]
    NotRoot {
        /// What needs it.
        what: &'static str,
    },
    /// A name that could not be a directory or part of a socket's path.
    #[error("`{name}` cannot be a lab's name: it has 1 to 24 of a-z, 0-9 and -, and begins with a letter")]
    Name {
        /// As given.
        name: String,
    },
    /// A program that should be there.
    #[error("`{program}` is not installed\n\ninstall it with: apt-get install {package}")]
    Program {
        /// The program.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// A program that could not be started.
    #[error("cannot start `{program}`")]
    Start {
        /// The program.
        program: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The plugin that counts is not installed.
    #[error(
        "`{}` is missing, so the lab cannot count\n\ninstall it beside `nearmetal` (./dev build does), or start the lab without --count",
        path.display()
    )]
    NoCounter {
        /// Where it should be.
        path: PathBuf,
    },
    /// Too little room.
    #[error(
        "{what} needs {needed}, and {available} are free at `{}`\n\nfree some, or set NEARMETAL_CACHE to a directory with more room",
        path.display()
    )]
    Space {
        /// What needs it.
        what: &'static str,
        /// Bytes it needs.
        needed: Bytes,
        /// Bytes there are.
        available: Bytes,
        /// Where.
        path: PathBuf,
    },
    /// A step of the image's build failed.
    #[error("building {what} failed in step `{step}`: {reason}\n\nthe whole log: {}", log.display())]
    Build {
        /// Which image.
        what: &'static str,
        /// The step's file name.
        step: String,
        /// The last words of its log.
        reason: String,
        /// Where the log is.
        log: PathBuf,
    },
    /// A kit that cannot be packed.
    #[error("cannot pack the kit `{}`: {why}", directory.display())]
    Kit {
        /// The user's directory.
        directory: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A running lab of that name.
    #[error(
        "lab `{name}` is up already\n\nuse it, take it down with `nearmetal lab down {name}`, or give another name"
    )]
    AlreadyUp {
        /// Its name.
        name: String,
    },
    /// No running lab of that name.
    #[error("lab `{name}` is not up\n\nboot it with `nearmetal lab up {name}`; `nearmetal lab status` lists what runs")]
    NotUp {
        /// Its name.
        name: String,
    },
    /// Kept disks that do not fit what is asked.
    #[error(
        "lab `{name}` has kept disks of {what}\n\ngive them up with `nearmetal lab down {name} --purge`, or use another name"
    )]
    Kept {
        /// Its name.
        name: String,
        /// What does not fit.
        what: String,
    },
    /// QEMU ended by itself.
    #[error("lab `{name}` stopped while {during}: {reason}")]
    Stopped {
        /// Its name.
        name: String,
        /// What it was doing.
        during: &'static str,
        /// QEMU's last words, or the console's.
        reason: String,
    },
    /// It hung in every boot.
    #[error(
        "lab `{name}` hung in each of its boots: its emulator lost interrupts\n\ntry again when the host is less busy"
    )]
    Stalled {
        /// Its name.
        name: String,
    },
    /// Not ready in time.
    #[error("lab `{name}` did not answer over {what} within {} s\n\nits console: {console}", limit.as_secs())]
    NotReady {
        /// Its name.
        name: String,
        /// `SSH` or `libvirt`.
        what: &'static str,
        /// The limit.
        limit: Duration,
        /// The last of its console.
        console: String,
    },
    /// A command that ran longer than allowed, and was killed.
    #[error("`{command}` did not end within {} s in lab `{name}` and was killed", limit.as_secs_f64())]
    TimedOut {
        /// The lab.
        name: String,
        /// The command.
        command: String,
        /// The limit.
        limit: Duration,
    },
    /// The connection to the lab broke.
    #[error("lost the connection to lab `{name}`: {reason}\n\nits console: {console}")]
    Connection {
        /// The lab.
        name: String,
        /// SSH's words.
        reason: String,
        /// The last of its console: the kernel says there what it killed.
        console: String,
    },
    /// A file that could not be copied.
    #[error("cannot copy `{from}` to `{to}`: {reason}")]
    Copy {
        /// Source, as given.
        from: String,
        /// Target, as given.
        to: String,
        /// The copying program's words.
        reason: String,
    },
    /// An operating system that does not shut down.
    #[error("lab `{name}` did not shut down within {} s", limit.as_secs())]
    NotOff {
        /// The lab.
        name: String,
        /// The limit.
        limit: Duration,
    },
    /// A process that outlived SIGKILL.
    #[error("process {pid} of lab `{name}` did not end within {} s", limit.as_secs())]
    Unkillable {
        /// The lab.
        name: String,
        /// The process.
        pid: u32,
        /// The limit.
        limit: Duration,
    },
}
