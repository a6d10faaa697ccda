//! The plan as a file: what `nearmetal plan -o` writes and `nearmetal apply` reads.
//!
//! It is complete (both definitions of every domain are in it), belongs to one machine, and is hostile until parsed.
//! The definitions may hold a VNC password, so the file is written for its owner alone.

mod compose;
mod edit;
mod follow;
mod identity;
mod parts;

pub use compose::{DomainInput, Starting, compose, compose_from, compose_with_new, shaped_by_class};
pub(crate) use edit::POLLING_FEATURES;
pub use edit::edited;
pub use follow::{Beside, Followed, Left, follow_rules};
pub use identity::HostIdentity;
pub(crate) use parts::{is_of_memory, parts};

use std::path::Path;

use nearmetal_place::{Placement, Plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ChangeError;

/// The schema this version reads and writes.
pub const PLAN_SCHEMA: &str = "nearmetal.plan/1";

/// A plan file larger than this is none: a domain definition has some ten KiB.
const LARGEST: usize = 64 << 20;

/// What is to be done on which machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// When it was made.
    pub created: String,
    /// The version of nearmetal that made it.
    pub nearmetal: String,
    /// The machine it is for.
    pub host: HostIdentity,
    /// Where everything goes, and why.
    pub plan: Plan,
    /// One per placement, in the same order.
    pub domains: Vec<DomainChange>,
    /// What of the host keeps these guests from their speed, and the plan leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

/// What changes in one domain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainChange {
    /// Name.
    pub name: String,
    /// UUID.
    pub uuid: String,
    /// The stored definition at planning time, as libvirt printed it; empty for a domain that is to be made.
    #[serde(default)]
    pub xml_before: String,
    /// The stored definition after.
    pub xml_after: String,
    /// Parts that take effect only when the guest starts.
    pub needs_restart: Vec<Part>,
    /// Parts that can change while the guest runs.
    pub live_now: Vec<Part>,
    /// The class whose rules were followed, and where it comes from; `None` where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What the rules of its class ask for, and the plan sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed: Vec<Followed>,
    /// What they ask for, and the plan leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

impl DomainChange {
    /// Whether there was no such domain when this was planned.
    pub fn is_new(&self) -> bool {
        self.xml_before.is_empty()
    }
}

/// One part of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What changes: `memory`, `disk vda`, `vCPU pins`.
    pub what: String,
    /// From what to what.
    pub change: String,
    /// Why it can, or cannot, be done while the guest runs.
    pub why: String,
}

impl PlanFile {
    /// Reads and checks a plan.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ChangeError> {
        let unreadable = |problem: String| ChangeError::PlanUnreadable { origin: origin.to_owned(), problem };
        if text.len() > LARGEST {
            return Err(unreadable(format!("it has {} bytes; the limit is {LARGEST}", text.len())));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        // The schema first: a newer file should be called that, and not "unknown field".
        match value.get("schema").and_then(Value::as_str) {
            Some(PLAN_SCHEMA) => {}
            Some(other) => {
                return Err(unreadable(format!("its schema is `{other}`, but this version reads `{PLAN_SCHEMA}`")));
            }
            None => return Err(unreadable(format!("it has no schema (`{PLAN_SCHEMA}`)"))),
        }
        let plan: Self = serde_json::from_value(value.clone()).map_err(|error| unreadable(error.to_string()))?;
        // The types of the planner accept fields they do not know; a file someone edited must not be half understood.
        let understood = serde_json::to_value(&plan).map_err(|error| unreadable(error.to_string()))?;
        if let Some(path) = first_difference(&value, &understood, "") {
            return Err(unreadable(format!("`{path}` is an unknown field or a wrong value")));
        }
        plan.check().map_err(unreadable)?;
        Ok(plan)
    }

    /// Reads and checks a plan file.
    pub fn load(path: &Path) -> Result<Self, ChangeError> {
        Self::parse(&nearmetal_host::files::read_to_string(path)?, &format!("`{}`", path.display()))
    }

    /// As JSON, for people to read.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Writes it, readable by its owner alone.
    pub fn save(&self, path: &Path) -> Result<(), ChangeError> {
        Ok(crate::private_files::write(path, self.to_json().as_bytes())?)
    }

    /// The placement of a domain.
    pub fn placement(&self, domain: &str) -> Option<&Placement> {
        self.plan.placements.iter().find(|placement| placement.guest == domain)
    }

    /// Whether something of it is set after every start, by libvirt's qemu hook.
    pub(crate) fn needs_hook(&self) -> bool {
        self.plan.placements.iter().any(Placement::needs_hook)
    }

    /// Whether this is the machine the plan was made for.
    pub fn check_host(&self, here: &HostIdentity) -> Result<(), ChangeError> {
        if self.host.fingerprint == here.fingerprint {
            return Ok(());
        }
        Err(ChangeError::OtherHost {
            planned_name: self.host.hostname.clone(),
            planned: self.host.short().to_owned(),
            found_name: here.hostname.clone(),
            found: here.short().to_owned(),
        })
    }

    /// Whether its parts agree with each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.plan.placements.len() != self.domains.len() {
            return Err(format!(
                "it places {} guests but changes {} domains",
                self.plan.placements.len(),
                self.domains.len()
            ));
        }
        for (number, (placement, domain)) in self.plan.placements.iter().zip(&self.domains).enumerate() {
            if placement.guest != domain.name || placement.uuid != domain.uuid {
                return Err(format!(
                    "placement {number} is for `{}` ({}), but domain {number} is `{}` ({})",
                    placement.guest, placement.uuid, domain.name, domain.uuid
                ));
            }
            if self.domains[..number].iter().any(|other| other.name == domain.name || other.uuid == domain.uuid) {
                return Err(format!("it lists `{}` ({}) twice", domain.name, domain.uuid));
            }
            // A guest that floats has no pin at all.
            let floats = placement.vcpus.is_empty() && placement.emulator.is_empty() && placement.iothreads.is_empty();
            let mut sets = placement.vcpus.iter().map(|pin| &pin.cpus).chain(&placement.iothreads);
            if !floats && (placement.emulator.is_empty() || sets.any(|cpus| cpus.is_empty())) {
                return Err(format!("a thread of `{}` has no PU to run on", domain.name));
            }
            let inside = |cpus: &nearmetal_units::CpuSet| !cpus.is_empty() && cpus.is_subset(&placement.emulator);
            if !placement.vhost.iter().all(inside) {
                return Err(format!("a vhost worker of `{}` has PUs that its emulator thread lacks", domain.name));
            }
            for (position, device) in placement.devices.iter().enumerate() {
                let (guest, function) = (&domain.name, device.function);
                if placement.devices[..position].iter().any(|other| other.function == function) {
                    return Err(format!("it gives the PCI function {function} to `{guest}` twice"));
                }
                if device.cell.is_some_and(|cell| cell as usize >= placement.cells.len()) {
                    return Err(format!("it puts the PCI function {function} on a cell that `{guest}` does not have"));
                }
            }
            for disk in &placement.disks {
                let (guest, target) = (&domain.name, &disk.target);
                if disk.iothread.is_some() && disk.iothreads.is_some() {
                    return Err(format!("disk {target} of `{guest}` has one iothread, and several too"));
                }
                let last = disk.iothreads.unwrap_or(1);
                if last == 0 || (last > 1 && last as usize > placement.iothreads.len()) {
                    let has = placement.iothreads.len();
                    return Err(format!("iothreads 1 to {last} share disk {target} of `{guest}`, which has {has}"));
                }
            }
            for (position, network) in placement.networks.iter().enumerate() {
                let (guest, mac) = (&domain.name, network.mac);
                if network.queues == 0 {
                    return Err(format!("the interface {mac} of `{guest}` has no queue"));
                }
                if placement.networks[..position].iter().any(|other| other.mac == mac) {
                    return Err(format!("it lists the interface {mac} of `{guest}` twice"));
                }
            }
            if placement.memory.page_size.is_some() && placement.memory.nodes.is_empty() {
                return Err(format!("the huge pages of `{}` have no node", domain.name));
            }
        }
        for (number, pool) in self.plan.pools.iter().enumerate() {
            if self.plan.pools[..number].iter().any(|other| (other.node, other.size) == (pool.node, pool.size)) {
                return Err(format!("it lists the pool of {} pages on node {} twice", pool.size, pool.node));
            }
        }
        Ok(())
    }
}

/// The path at which `given` has something that `understood` does not.
pub(crate) fn first_difference(given: &Value, understood: &Value, path: &str) -> Option<String> {
    match (given, understood) {
        (Value::Object(left), Value::Object(right)) => left.iter().find_map(|(key, value)| {
            let path = format!("{path}/{key}");
            match right.get(key) {
                Some(other) => first_difference(value, other, &path),
                None => Some(path),
            }
        }),
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => left
            .iter()
            .zip(right)
            .enumerate()
            .find_map(|(index, (value, other))| first_difference(value, other, &format!("{path}/{index}"))),
        // `0-3` and `0,1,2,3` are the same set: texts that parsed are not compared letter by letter.
        (Value::String(_), Value::String(_)) => None,
        _ => (given != understood).then(|| path.to_owned()),
    }
}
