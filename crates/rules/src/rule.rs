//! What a rule is.

use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::finding::Outcome;
use crate::subject::Subject;

/// One rule of the trade.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name, which never changes.
    pub id: &'static str,
    /// What it is about.
    pub layer: Layer,
    /// What holds where the rule is kept, in one line.
    pub title: &'static str,
    /// What must happen where it is broken.
    pub severity: Severity,
    /// Classes it applies to; a rule about the host has all.
    pub classes: &'static [WorkloadClass],
    /// What is read.
    pub reads: &'static [&'static str],
    /// The value judged good.
    pub good: &'static str,
    /// Where it applies.
    pub applies: &'static str,
    /// Where it does not.
    pub not_applies: &'static str,
    /// What the source says it is worth, with the conditions.
    pub effect: &'static str,
    /// How well it is founded.
    pub evidence: Evidence,
    /// Keys of its sources.
    pub sources: &'static [&'static str],
    /// How it is cured.
    pub fix: Fix,
    /// The check itself.
    pub check: Check,
}

/// The function of a rule.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    /// About the host, once.
    Host(fn(&Context<'_>) -> Outcome),
    /// About a domain, once for each of its definitions.
    Domain(fn(&Subject<'_>) -> Outcome),
    /// About the system inside a domain, once for each of its definitions; where nobody looked inside, nobody can tell.
    Inside(fn(&Subject<'_>, &Host) -> Outcome),
}

/// What must happen next. Worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something asked for cannot work, or the guest can stall or fail: put it right now.
    Fault,
    /// The guest is slower than its class needs: put it right at the next restart.
    Loss,
    /// A trade against security, capacity or migration: a person decides, nearmetal never changes it.
    Decide,
    /// Worth knowing: nothing has to happen.
    Note,
}

impl Severity {
    /// All of them, worst first.
    pub const ALL: [Self; 4] = [Self::Fault, Self::Loss, Self::Decide, Self::Note];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Loss => "loss",
            Self::Decide => "decide",
            Self::Note => "note",
        }
    }

    /// What must happen next.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Fault => "cannot work as asked, or can stall or fail: put it right now",
            Self::Loss => "slower than its class needs: put it right at the next restart",
            Self::Decide => "a trade against security, capacity or migration: a person decides",
            Self::Note => "worth knowing: nothing has to happen",
        }
    }
}

/// How well a rule is founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// A measured result or a counted fact was read.
    A,
    /// A document, source code or a maintainer's words support it, without a number.
    B,
    /// Inferred, or general knowledge.
    C,
}

impl Evidence {
    /// What the letter stands for.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::A => "A: measured by a source",
            Self::B => "B: advised by documents or code, no number",
            Self::C => "C: inferred",
        }
    }
}

/// Which part of the machine a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Kernel and KVM of the host.
    HostKernel,
    /// Processors of the host.
    HostCpu,
    /// Memory of the host.
    Memory,
    /// NUMA placement.
    Numa,
    /// Block devices of the host.
    Block,
    /// Networks of the host.
    Net,
    /// PCI, SR-IOV, VFIO.
    Pci,
    /// CPUs of a domain.
    DomainCpu,
    /// Memory of a domain.
    DomainMemory,
    /// Disks of a domain.
    DomainDisk,
    /// Network interfaces of a domain.
    DomainNet,
    /// Images behind its disks.
    Image,
    /// The inside of the guest. Nothing here is ever changed by nearmetal: its rules have no cures.
    Guest,
}

impl Layer {
    /// Its name in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostKernel => "host-kernel",
            Self::HostCpu => "host-cpu",
            Self::Memory => "memory",
            Self::Numa => "numa",
            Self::Block => "block",
            Self::Net => "net",
            Self::Pci => "pci",
            Self::DomainCpu => "domain-cpu",
            Self::DomainMemory => "domain-memory",
            Self::DomainDisk => "domain-disk",
            Self::DomainNet => "domain-net",
            Self::Image => "image",
            Self::Guest => "guest",
        }
    }
}

/// How a rule is cured, and how the cure is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fix {
    /// While everything runs; `None` where that is impossible.
    pub live: Option<&'static str>,
    /// So that it survives a restart.
    pub persistent: &'static str,
    /// What it takes to come into force; any one of them where there are several.
    pub needs: &'static [Need],
    /// What can go wrong, and how it is undone.
    pub undo: &'static str,
}

/// What a fix takes to come into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Nothing.
    Live,
    /// KVM's modules loaded again: no guest may run.
    ModuleReload,
    /// The guest rebooted from inside.
    GuestReboot,
    /// The guest shut down and started.
    VmRestart,
    /// The guest off while it is done.
    VmOffline,
    /// The host rebooted.
    HostReboot,
    /// A firmware setting.
    Firmware,
}

impl Need {
    /// Its words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "nothing",
            Self::ModuleReload => "kvm modules reloaded",
            Self::GuestReboot => "guest reboot",
            Self::VmRestart => "VM restart",
            Self::VmOffline => "VM off",
            Self::HostReboot => "host reboot",
            Self::Firmware => "firmware setting",
        }
    }
}
