//! Settings and counters of the whole machine that have a shape of their own.

use std::fmt;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

/// A number under /proc/sys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Its sysctl name: `kernel.nmi_watchdog`.
    pub name: String,
    /// Its value.
    pub value: i64,
}

impl Sysctl {
    /// Its file: /proc/sys/kernel/nmi_watchdog.
    pub fn path(&self) -> String {
        Self::path_of(&self.name)
    }

    /// The file of a sysctl name.
    pub fn path_of(name: &str) -> String {
        format!("/proc/sys/{}", name.replace('.', "/"))
    }
}

/// What tuned, the daemon that keeps settings of the whole machine, was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunedProfile {
    /// It is not installed.
    Absent,
    /// It is installed and has no profile.
    None,
    /// Its profiles, parted by spaces where there are several.
    Active(String),
}

impl fmt::Display for TunedProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Absent => "not installed",
            Self::None => "none",
            Self::Active(names) => names,
        })
    }
}

/// Frequencies above the nominal one (Turbo Boost, Core Performance Boost).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    /// Whether processors may use them.
    pub allowed: bool,
    /// The file that says so.
    pub path: String,
}

/// Idle states of one PU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleStates {
    /// The PU.
    pub cpu: u32,
    /// The longest way out that is allowed on this PU, in µs (`pm_qos_resume_latency_us`); `None` without a limit.
    pub latency_limit: Option<u64>,
    /// Its states, the lightest first.
    pub states: Vec<IdleState>,
}

/// One idle state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// The kernel's number, from 0; 0 polls on most machines.
    pub number: u32,
    /// `POLL`, `C1`, `C6`, ….
    pub name: Option<String>,
    /// The longest way out of it, in µs.
    pub latency: Option<u64>,
    /// Whether it is switched off on this PU.
    pub disabled: Option<bool>,
}

/// How long heat has slowed a package down since boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// The PU it was read from.
    pub cpu: u32,
    /// The package's number.
    pub package: Option<u32>,
    /// Times it was slowed down.
    pub count: Option<u64>,
    /// Milliseconds it was slow; `None` before Linux 5.5.
    pub time: Option<u64>,
}

/// A swap area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapArea {
    /// Device or file.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// What is in use.
    pub used: Bytes,
}

impl SwapArea {
    /// Whether it is compressed memory rather than a disk.
    pub fn is_memory(&self) -> bool {
        self.name.starts_with("/dev/zram")
    }
}
