//! What happens in a run, for programs: a line of JSON for each step, with the time since the command began.

use nearmetal_image::ImageId;
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize, PciAddress};
use serde::Serialize;

/// The schema of a line.
pub const SCHEMA: &str = "nearmetal.run-event/1";

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Seconds since `nearmetal run` began, to the millisecond.
    pub seconds: f64,
    /// Name of the run's domain; `None` before it has one.
    pub run: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// Runs were found that had been killed.
    Recovered {
        /// Those whose leftovers were given back.
        names: Vec<String>,
        /// What could not be given back.
        problems: Vec<String>,
    },
    /// The slice is its own.
    Reserved {
        /// PUs.
        cpus: CpuSet,
        /// Nodes of its memory.
        nodes: NodeSet,
        /// Guest memory.
        memory: Bytes,
        /// Size of its hugepages.
        page_size: Option<PageSize>,
        /// PCI functions that are the guest's own.
        functions: Vec<PciAddress>,
    },
    /// The disk that it writes to is there.
    Delta {
        /// Its base image.
        image: ImageId,
    },
    /// The disk with its user data is there.
    UserData {
        /// What cloud-init knows this run by.
        instance_id: String,
    },
    /// The run's own libvirt daemon answers: in session mode.
    Daemon {
        /// Its program.
        program: String,
    },
    /// The guest runs.
    Started,
    /// It runs as planned.
    ReadBack {
        /// Things looked at.
        checks: usize,
        /// Those that could not be told.
        untold: usize,
    },
    /// Its agent answers.
    Agent,
    /// The command has begun.
    CommandStarted,
    /// The command has ended, or the run was told to end.
    CommandEnded,
    /// Guest, slice and pools are given back.
    GivenBack,
    /// The end: always the last line, unless the run itself is killed.
    Ended {
        /// How.
        outcome: Outcome,
        /// The exit code of `nearmetal run`.
        code: u8,
        /// Why, where it is not the command's own end; what is missing of the command's output.
        reason: Option<String>,
    },
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The command ended with this code.
    Exited,
    /// A signal ended the command.
    Signal,
    /// The guest could not start the command.
    NotStarted,
    /// The time limit ended it.
    TimeLimit,
    /// The run was told to end.
    Interrupted,
    /// The run failed: the code is nearmetal's.
    Failed,
}
