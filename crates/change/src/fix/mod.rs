//! Curing what the rules found: from findings and the machine as it is to changes, through the journal, and back.
//!
//! [`plan`] looks and changes nothing: it says of every object what is to become of it. [`cure`] makes the changes,
//! [`held`] looks later whether they still hold.

mod conflicts;
mod cure;
mod definitions;
mod held;
mod item;
mod live;
mod plan;

pub use cure::{CureJob, Cured, cure};
pub use held::held;
pub use item::Findings;
pub use plan::plan;

use nearmetal_rules::{Cure, Object, Scope, Severity};
use serde::{Deserialize, Serialize};

use crate::change::{Change, Lifetime};

/// What a transaction of cures was for: in the header of its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CureList {
    /// [`CURES_SCHEMA`].
    pub schema: String,
    /// One for each object that is cured, with the cures that are taken.
    pub objects: Vec<CuredObject>,
}

/// The schema of a [`CureList`].
pub const CURES_SCHEMA: &str = "nearmetal.cures/1";

/// An object that broke a rule, and what is done against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CuredObject {
    /// Id of the rule.
    pub rule: String,
    /// The host or a domain.
    pub scope: Scope,
    /// `disk vda`, `vCPU 3`, ….
    pub what: String,
    /// What is done; what can only be exported is not among it.
    pub cures: Vec<Cure>,
}

/// What there is to do, and what becomes of every object found.
#[derive(Debug, Clone, PartialEq)]
pub struct FixPlan {
    /// One for each object of each finding, in their order.
    pub treated: Vec<Treated>,
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
}

/// An object that breaks a rule, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Treated {
    /// Id of the rule.
    pub rule: String,
    /// Its severity.
    pub severity: Severity,
    /// The host or a domain.
    pub scope: Scope,
    /// The object, with all its cures.
    pub object: Object,
    /// What becomes of it.
    pub treatment: Treatment,
}

/// What becomes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Treatment {
    /// It is cured while everything runs.
    Now,
    /// The stored definition is changed, and in force at the domain's next start.
    NextStart,
    /// The stored definition says it already: only the running guest lags behind.
    Stored,
    /// Nothing that can be done while the machine runs cures it: what it takes, one sentence each.
    NotLive(Vec<String>),
    /// It could be cured, and is not: why, and what would help.
    Refused(String),
    /// The rule leaves it to a person.
    NoCure,
}

impl Treatment {
    /// Whether something is done about it.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Now | Self::NextStart)
    }
}

impl FixPlan {
    /// What the journal keeps.
    pub fn list(&self) -> CureList {
        let taken = self.treated.iter().filter(|treated| treated.treatment.is_taken());
        let objects = taken.map(|treated| CuredObject {
            rule: treated.rule.clone(),
            scope: treated.scope.clone(),
            what: treated.object.what.clone(),
            cures: treated.object.cures.iter().filter(|cure| not_live(cure).is_none()).cloned().collect(),
        });
        CureList { schema: CURES_SCHEMA.to_owned(), objects: objects.collect() }
    }

    /// What survives what, in one sentence each; nothing to say where nothing changes.
    pub fn lifetimes(&self) -> Vec<&'static str> {
        let any = |wanted: &dyn Fn(&Change) -> bool| self.changes.iter().any(wanted);
        let mut sentences = Vec::new();
        if any(&Change::is_made_again_at_boot) {
            sentences.push("a reboot loses settings, pools and modules; the boot unit restores them from the journal");
        }
        if any(&|change| change.lifetime() == Lifetime::Boot && !change.is_made_again_at_boot()) {
            sentences.push("a reboot loses interrupt affinities, since it renumbers the interrupts");
        }
        if any(&|change| matches!(change, Change::DefineDomain { .. })) {
            sentences.push("definitions persist, and take effect at the domain's next start");
        }
        if any(&|change| matches!(change, Change::LivePin { .. })) {
            sentences.push("pins of running threads end when the guest stops");
        }
        sentences
    }
}

/// What a cure takes that cannot be done while the machine runs; `None` for one that can.
fn not_live(cure: &Cure) -> Option<String> {
    match cure {
        Cure::KernelArgument { name, value: None } => {
            Some(format!("add `{name}` to the kernel command line and reboot"))
        }
        Cure::KernelArgument { name, value: Some(value) } => {
            Some(format!("add `{name}={value}` to the kernel command line and reboot"))
        }
        Cure::NoKernelArgument { name } => Some(format!("remove `{name}` from the kernel command line and reboot")),
        Cure::ModuleParameter { module, parameter, value } => {
            Some(format!("reload `{module}` with `{parameter}={value}`: reboot, or stop all guests and reload it"))
        }
        Cure::KernelFile { .. }
        | Cure::HugepagePool { .. }
        | Cure::LoadModule { .. }
        | Cure::Definition(_)
        | Cure::LivePin { .. } => None,
    }
}
