//! Why a kernel file could not be read or written.

use std::io;

use rustix::io::Errno;

use crate::Unreadable;

/// The most of a file's text that an error keeps.
const RAW_LIMIT: usize = 200;

/// Why a file of a host gave no fact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not there: the kernel, the device or the capture does not have it, or the process has ended.
    #[error("`{path}` does not exist")]
    Missing {
        /// Path inside the host.
        path: String,
    },
    /// There, and not for this user.
    #[error("`{path}` may not be read by this user")]
    Denied {
        /// Path inside the host.
        path: String,
    },
    /// There, and of no use.
    #[error("cannot understand `{path}`: {reason}")]
    Unreadable {
        /// Path inside the host.
        path: String,
        /// Its text, cut to 200 characters; empty where there is none.
        raw: String,
        /// Why it was of no use.
        reason: String,
    },
}

impl ReadError {
    /// A file that was there and made no sense.
    pub fn unreadable(path: &str, raw: &str, reason: impl Into<String>) -> Self {
        Self::Unreadable { path: path.to_owned(), raw: raw.chars().take(RAW_LIMIT).collect(), reason: reason.into() }
    }

    /// The system's answer to an open or a read.
    pub(crate) fn from_errno(path: &str, errno: Errno) -> Self {
        match errno {
            // ESRCH: the process ended; ENODEV, ENXIO: the device left; ENOTDIR: the parent is a file here.
            Errno::NOENT | Errno::SRCH | Errno::NODEV | Errno::NXIO | Errno::NOTDIR => {
                Self::Missing { path: path.to_owned() }
            }
            Errno::ACCESS | Errno::PERM => Self::Denied { path: path.to_owned() },
            other => Self::unreadable(path, "", io::Error::from(other).to_string()),
        }
    }

    /// The path the error is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Missing { path } | Self::Denied { path } | Self::Unreadable { path, .. } => path,
        }
    }

    /// Whether the file is simply not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

impl From<ReadError> for Unreadable {
    fn from(error: ReadError) -> Self {
        let shown = error.to_string();
        match error {
            ReadError::Unreadable { path, raw, reason } => Self { path, raw, reason },
            ReadError::Missing { path } | ReadError::Denied { path } => {
                Self { path, raw: String::new(), reason: shown }
            }
        }
    }
}

/// Why a kernel setting was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A capture is a record of a machine, not a machine.
    #[error("`{path}` belongs to a capture of a machine (`{source_name}`): nothing can be changed there")]
    Capture {
        /// Path inside the host.
        path: String,
        /// The capture.
        source_name: String,
    },
    /// Not a kernel file.
    #[error("`{path}` is not under /sys or /proc: only kernel settings are written this way")]
    Outside {
        /// Path as given.
        path: String,
    },
    /// The kernel said no.
    #[error("the kernel refused `{value}` in `{path}`")]
    Refused {
        /// Path inside the host.
        path: String,
        /// The value tried.
        value: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}
