//! Why a source of a host is of no use.

use std::io;

use nearmetal_host::files::FileError;
use nearmetal_host::{ReadError, TreeError};

/// Why there is no host to read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file itself.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory is not a capture.
    #[error(transparent)]
    Directory(#[from] ReadError),
    /// None of the formats.
    #[error(
        "`{name}` is not a capture: expected a directory with `sys` and `proc`, a file of `nearmetal capture`, a tar of \
         /sys and /proc (plain, gz, bz2, xz or zst), or hwloc XML (lstopo --of xml)"
    )]
    Format {
        /// The source.
        name: String,
    },
    /// The archive is damaged or of a kind nobody should open.
    #[error("`{name}` cannot be unpacked: {problem}")]
    Archive {
        /// The source.
        name: String,
        /// What was found, and where.
        problem: String,
    },
    /// It expands beyond all measure.
    #[error("`{name}` holds more than {limit} MiB when unpacked: no capture of a machine does")]
    TooLarge {
        /// The source.
        name: String,
        /// Limit in MiB.
        limit: u64,
    },
    /// A path or an amount that no capture has.
    #[error("`{name}` is refused")]
    Tree {
        /// The source.
        name: String,
        /// What is wrong.
        #[source]
        source: TreeError,
    },
    /// XML that is not what it should be.
    #[error("`{name}` is not understood at byte {position}: {problem}")]
    Xml {
        /// The source.
        name: String,
        /// Offset in its text.
        position: u64,
        /// What is wrong.
        problem: String,
    },
    /// What was read of this machine does not fit into a capture.
    #[error("this machine does not fit into a capture")]
    Record(#[source] TreeError),
    /// The capture could not be written.
    #[error("cannot write the capture")]
    Write(#[source] io::Error),
}
