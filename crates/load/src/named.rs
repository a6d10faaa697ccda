//! Loads that people ask for by name: each load's file lists its own, and the command line offers what is listed.

use nearmetal_units::Bytes;

use super::{Kit, Workload};

/// How a load is to run, as far as people choose it. A load takes what it has a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Size of one request.
    pub size: Bytes,
    /// Seconds of a sample.
    pub seconds: u32,
    /// Seconds that run before it begins.
    pub ramp: u32,
    /// What its files take together.
    pub span: Bytes,
    /// vCPUs of the guest, which are the PUs of its slice.
    pub vcpus: u32,
    /// Memory of the guest.
    pub memory: Bytes,
    /// Nodes that the memory comes from.
    pub nodes: u32,
    /// Whether the machine is emulated: programs then take some ten times as long to begin.
    pub emulated: bool,
    /// The user's licensed kit, for a load that runs one.
    pub kit: Option<Kit>,
}

#[cfg(any(test, feature = "fuzzing"))]
impl Shape {
    /// That of a small guest of a lab.
    pub(crate) fn of_a_lab() -> Self {
        Self {
            size: Bytes::from_kib(4),
            seconds: 5,
            ramp: 1,
            span: Bytes::from_mib(256),
            vcpus: 2,
            memory: Bytes::from_mib(384),
            nodes: 1,
            emulated: true,
            kit: None,
        }
    }
}

/// What a load works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorksOn {
    /// Blocks of a device.
    Blocks,
    /// Files on a device, step by step to the end of each: it has no length that could be asked for.
    Files,
    /// Tables of a database, in a file system on a device.
    Database,
    /// Files that a web server serves, in a file system on a device.
    Site,
    /// Processors and memory alone.
    Processors,
}

/// A load with a name.
#[derive(Debug)]
pub struct Named {
    /// The name.
    pub word: &'static str,
    /// What it does, as the help says it.
    pub help: &'static str,
    /// Sizes of its requests, in bytes, that are run unless others are asked for; empty if it has no requests.
    pub sizes: &'static [u64],
    /// What it works on.
    pub on: WorksOn,
    /// Makes it.
    pub make: fn(&Shape) -> Workload,
}

impl Named {
    /// Whether it writes to the device it is given.
    pub fn writes(&self) -> bool {
        self.any().load().writes()
    }

    /// Whether its program is in the loads image.
    pub fn needs_loads_image(&self) -> bool {
        self.any().load().needs_loads_image()
    }

    /// Whether its program is a licensed kit that the user has to name.
    pub fn needs_kit(&self) -> bool {
        self.any().load().needs_kit()
    }

    /// Whether its program is PostgreSQL, which not every loads image has.
    pub fn needs_postgresql(&self) -> bool {
        self.any().load().needs_postgresql()
    }

    /// One of some shape.
    fn any(&self) -> Workload {
        (self.make)(&Shape {
            size: Bytes::from_kib(4),
            seconds: 1,
            ramp: 1,
            span: Bytes::from_mib(256),
            vcpus: 1,
            memory: Bytes::from_mib(1024),
            nodes: 1,
            emulated: false,
            kit: None,
        })
    }
}
