//! What is pinned in a running guest, as data: what changes and the journal say of it.

use std::fmt;

use nearmetal_units::{CpuSet, PciAddress};
use serde::{Deserialize, Serialize};

/// PUs of threads and interrupts of one running guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// vhost workers.
    pub workers: Vec<WorkerPin>,
    /// Interrupts.
    pub interrupts: Vec<InterruptPin>,
}

/// A vhost worker and the PUs it may run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerPin {
    /// Thread id.
    pub thread: u32,
    /// Its PUs.
    pub cpus: CpuSet,
}

/// An interrupt of a function and the PUs it may be delivered to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptPin {
    /// The function.
    pub function: PciAddress,
    /// Number of the interrupt.
    pub number: u32,
    /// Its PUs.
    pub cpus: CpuSet,
}

impl Pins {
    /// Whether it pins nothing.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty() && self.interrupts.is_empty()
    }
}

impl fmt::Display for Pins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.workers.iter().map(|pin| format!("vhost worker {} to PUs {}", pin.thread, pin.cpus));
        let interrupts = self
            .interrupts
            .iter()
            .map(|pin| format!("interrupt {} of {} to PUs {}", pin.number, pin.function, pin.cpus));
        formatter.write_str(&workers.chain(interrupts).collect::<Vec<_>>().join(", "))
    }
}

/// Threads of a guest that are pinned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinTarget {
    /// One vCPU.
    Vcpu(u32),
    /// The emulator thread, and with it every thread that is neither a vCPU nor an iothread.
    Emulator,
    /// One iothread, from 1.
    Iothread(u32),
}

impl fmt::Display for PinTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vcpu(number) => write!(formatter, "vCPU {number}"),
            Self::Emulator => formatter.write_str("the emulator thread"),
            Self::Iothread(number) => write!(formatter, "iothread {number}"),
        }
    }
}
