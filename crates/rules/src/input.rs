//! What rules are given.

use std::collections::BTreeMap;

use nearmetal_domain::{DomainFacts, HypervFacts};
use nearmetal_host::Host;
use nearmetal_host::images::ImageChain;
use nearmetal_place::WorkloadClass;

use crate::settings::Settings;

/// Everything rules may look at.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The host; `None` where only definitions are at hand.
    pub host: Option<&'a Host>,
    /// Domains.
    pub domains: &'a [Domain],
    /// Thresholds.
    pub settings: &'a Settings,
}

/// A domain: at least one of its two definitions is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    /// Name.
    pub name: String,
    /// Workload class.
    pub class: WorkloadClass,
    /// Where the class comes from, in words.
    pub class_reason: String,
    /// What it starts with next time.
    pub defined: Option<DomainFacts>,
    /// What it runs with; `None` while it is off.
    pub running: Option<DomainFacts>,
    /// Whether libvirt starts it with the host; `false` where nobody asked.
    pub starts_with_host: bool,
    /// What the guest shows of itself from inside; `None` where nobody looked.
    pub inside: Option<Host>,
    /// Images of its disks, by the source its definition names: what `qemu-img` says, or why it said nothing.
    pub images: BTreeMap<String, Result<ImageChain, String>>,
}

impl Domain {
    /// A domain with its class: the one given, else the one in its metadata, else a guess.
    pub fn new(
        defined: Option<DomainFacts>,
        running: Option<DomainFacts>,
        class: Option<WorkloadClass>,
    ) -> Option<Self> {
        let facts = running.as_ref().or(defined.as_ref())?;
        let (class, class_reason) = match (class, running.as_ref().map(class_of), defined.as_ref().map(class_of)) {
            (Some(class), ..) => (class, "given".to_owned()),
            // A guest that somebody has unpinned while it runs is still what it was meant to be.
            (None, Some((WorkloadClass::General, reason)), Some(other)) if reason.starts_with(GUESSED) => other,
            (None, Some(found), _) | (None, None, Some(found)) => found,
            (None, None, None) => class_of(facts),
        };
        let name = facts.name.clone();
        let (starts_with_host, inside, images) = (false, None, BTreeMap::new());
        Some(Self { name, class, class_reason, defined, running, starts_with_host, inside, images })
    }

    /// Both definitions, as far as they are there.
    pub fn definitions(&self) -> impl Iterator<Item = &DomainFacts> {
        self.running.iter().chain(&self.defined)
    }

    /// The definition in force: the running one, else the other.
    pub fn in_force(&self) -> Option<&DomainFacts> {
        self.running.as_ref().or(self.defined.as_ref())
    }
}

/// How the reason of a class begins that nobody gave.
const GUESSED: &str = "guessed";

/// The class a domain says it is of, else a guess from what it looks like; with the reason.
///
/// Density is never guessed: that guests may share CPUs on purpose is an intent, not a property of a definition.
pub fn class_of(facts: &DomainFacts) -> (WorkloadClass, String) {
    if let Some(class) = facts.class.as_deref().and_then(|word| word.parse().ok()) {
        return (class, "its metadata".to_owned());
    }
    let guess = |class, reason: &str| (class, format!("{GUESSED}: {reason}"));
    if facts.operating_system.as_deref().is_some_and(|id| id.starts_with("http://microsoft.com/")) {
        return guess(WorkloadClass::Windows, "libosinfo's metadata names Windows");
    }
    let enlightened = |hyperv: &HypervFacts| {
        hyperv.mode.as_deref() == Some("passthrough") || hyperv.states.values().any(|state| state == "on")
    };
    if facts.features.hyperv.as_ref().is_some_and(enlightened) {
        return guess(WorkloadClass::Windows, "it has Hyper-V enlightenments");
    }
    if facts.scheduling.schedulers.iter().any(|entry| entry.threads == "vcpu" && entry.is_real_time()) {
        return guess(WorkloadClass::Latency, "its vCPUs are real-time threads");
    }
    if !facts.hostdevs.is_empty() {
        return guess(WorkloadClass::Passthrough, "PCI functions are handed through");
    }
    let pinned = facts.vcpu_pins.iter().filter(|(_, cpus)| cpus.len() == 1).count();
    if pinned > 0 && pinned as u32 >= facts.vcpus.current {
        return guess(WorkloadClass::Throughput, "each vCPU has a PU of its own");
    }
    guess(WorkloadClass::General, "nothing special in its definition")
}
