//! `programs`, and the gate at which one of them waits: definitions and help only.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use nearmetal_probe::programs::{AtGate, Data};
use nearmetal_units::Bytes;

use super::FileSystemName;

/// Run a program of an image that brings its libraries along, such as the loads image of `nearmetal bench loads-image`
///
/// The image becomes the program's root directory, read only. `/tmp` and `/run` are memory; with --device, WHOSE CONTENTS ARE
/// LOST, `/data` is a file system made on it. Only this program sees the mounts. They end with it, and so do all processes that
/// it has started, even if it is killed. `/run/nearmetal-probe` is this program.
///
/// Example: nearmetal-probe programs --image /dev/sda -- /usr/lib/nearmetal/java/runtime/bin/java -version
#[derive(Debug, Args)]
pub(crate) struct ProgramsArguments {
    /// The image: a block device, a file, or `serial:` and the serial number of a virtio disk
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: String,
    /// An ext4 image with more files, likewise; they are at `/run/kit`, read only
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kit: Option<String>,
    /// Keep transparent huge pages from the program and from what it starts, whatever this machine's setting is
    #[arg(long)]
    pub(crate) small_pages: bool,
    /// A block device for `/data`, or `serial:` and the serial number of a virtio disk; its contents are lost
    #[arg(long, value_name = "DEVICE", requires = "kind")]
    device: Option<String>,
    /// The file system to make on it
    #[arg(long, value_enum, requires = "device")]
    kind: Option<FileSystemName>,
    /// Size of the file system, such as 256MiB [default: as large as the device]
    #[arg(long, value_name = "SIZE", requires = "device")]
    size: Option<Bytes>,
    /// Let the program wait at a gate of this name once it is ready, until `gate open NAME`
    #[arg(long, value_name = "NAME")]
    gate: Option<String>,
    /// How long it waits there, in seconds, before it is ended: 1 to 86400
    #[arg(long, value_name = "NUMBER", requires = "gate", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    gate_seconds: u64,
    /// The program, by its path in the image, and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

impl ProgramsArguments {
    /// What is made for `/data`.
    pub(crate) fn data(&self) -> Option<Data<'_>> {
        let (device, kind) = self.device.as_deref().zip(self.kind)?;
        Some(Data { kind: kind.into(), device, size: self.size })
    }

    /// The gate at which it waits.
    pub(crate) fn at_gate(&self) -> Option<AtGate<'_>> {
        let patience = Duration::from_secs(self.gate_seconds);
        self.gate.as_deref().map(|name| AtGate { name, patience })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// Wait until the program is ready
    ///
    /// Exits with 3 if the program ends first or takes longer.
    ///
    /// Example: nearmetal-probe gate wait one --seconds 60
    Wait {
        /// The gate's name
        name: String,
        /// How long the program may take, in seconds: 1 to 86400
        #[arg(long, value_name = "NUMBER", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: u64,
    },
    /// Let the program begin, once it is ready
    ///
    /// Example: nearmetal-probe gate open one
    Open {
        /// The gate's name
        name: String,
    },
    /// Let the program end instead, once it is ready
    ///
    /// Example: nearmetal-probe gate close one
    Close {
        /// The gate's name
        name: String,
    },
}
