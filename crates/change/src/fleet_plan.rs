//! The plan of a fleet as a file: what `nearmetal plan --fleet -o` writes, and what `apply`, `verify` and `rollback` go
//! over the hosts with. It holds a whole [`PlanFile`] for every host that changes, so that each host is handled as if it
//! were alone: by its own journal, with its own read-back.

use std::path::Path;

use nearmetal_fleet::{FleetPlan, Step};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan_file::{PlanFile, first_difference};
use crate::{ChangeError, private_files};

/// The schema this version reads and writes.
pub const FLEET_PLAN_SCHEMA: &str = "nearmetal.fleet-plan/1";

/// A larger file is none: ten thousand VMs, with a definition of 20 KiB before and after each, have 400 MB.
const LARGEST: usize = 1 << 30;

/// The plan of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetPlanFile {
    /// [`FLEET_PLAN_SCHEMA`].
    pub schema: String,
    /// When it was made.
    pub created: String,
    /// The version of nearmetal that made it.
    pub nearmetal: String,
    /// What the planner answered: where each VM goes and why, and how good that is.
    pub fleet: FleetPlan,
    /// The order in which VMs that run get there, so that no rule is broken in between; empty where none moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// One for each host on which something changes, in the order in which they are changed.
    pub hosts: Vec<HostPart>,
}

/// What is to be done on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPart {
    /// The host's name in the fleet.
    pub name: String,
    /// How to get there.
    pub reach: Reach,
    /// The plan of that host alone.
    pub plan: PlanFile,
}

/// How a command is run on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reach {
    /// It is the machine this runs on.
    Local,
    /// Over ssh.
    Ssh {
        /// `NAME` or `USER@NAME`.
        destination: String,
        /// The program and its options, split at spaces; `None` for `ssh`.
        command: Option<String>,
    },
    /// Nothing can be run there: it is known by a capture, or by its libvirt alone.
    Nowhere {
        /// What it is known by, in words.
        known_by: String,
    },
}

/// A plan of either kind, told apart by its schema.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyPlan {
    /// Of one host.
    Host(Box<PlanFile>),
    /// Of a fleet.
    Fleet(Box<FleetPlanFile>),
}

impl AnyPlan {
    /// Reads and checks a plan; hostile until then.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ChangeError> {
        let unreadable = |problem: String| ChangeError::PlanUnreadable { origin: origin.to_owned(), problem };
        if text.len() > LARGEST {
            return Err(unreadable(format!("it has {} bytes; the limit is {LARGEST}", text.len())));
        }
        let schema: Schema = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        if schema.schema.as_deref() != Some(FLEET_PLAN_SCHEMA) {
            return Ok(Self::Host(Box::new(PlanFile::parse(text, origin)?)));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        let plan: FleetPlanFile =
            serde_json::from_value(value.clone()).map_err(|error| unreadable(error.to_string()))?;
        // The planner's types accept fields they do not know; a file someone edited must not be half understood.
        let understood = serde_json::to_value(&plan).map_err(|error| unreadable(error.to_string()))?;
        if let Some(path) = first_difference(&value, &understood, "") {
            return Err(unreadable(format!("`{path}` is an unknown field or a wrong value")));
        }
        plan.check().map_err(unreadable)?;
        Ok(Self::Fleet(Box::new(plan)))
    }

    /// Reads and checks a plan file.
    pub fn load(path: &Path) -> Result<Self, ChangeError> {
        Self::parse(&nearmetal_host::files::read_to_string(path)?, &format!("`{}`", path.display()))
    }
}

/// The one field that is looked at first.
#[derive(Deserialize)]
struct Schema {
    schema: Option<String>,
}

impl FleetPlanFile {
    /// As JSON, for people to read.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Writes it, readable by its owner alone: definitions may hold passwords.
    pub fn save(&self, path: &Path) -> Result<(), ChangeError> {
        Ok(private_files::write(path, self.to_json().as_bytes())?)
    }

    /// Whether its parts agree with each other: what is put in force is what was planned, and nothing besides.
    fn check(&self) -> Result<(), String> {
        for (number, part) in self.hosts.iter().enumerate() {
            let name = &part.name;
            if self.hosts[..number].iter().any(|other| other.name == *name) {
                return Err(format!("it lists the host `{name}` twice"));
            }
            part.plan.check().map_err(|problem| format!("host `{name}`: {problem}"))?;
            if let Reach::Ssh { destination, .. } = &part.reach {
                check_destination(destination).map_err(|problem| format!("host `{name}`: {problem}"))?;
            }
            for placement in &part.plan.plan.placements {
                let planned = self.fleet.placements.iter().find(|planned| planned.vm == placement.guest);
                match planned {
                    Some(planned) if planned.host == *name => {}
                    Some(planned) => {
                        let (vm, there) = (&placement.guest, &planned.host);
                        return Err(format!("it changes `{vm}` on `{name}` but places it on `{there}`"));
                    }
                    None => return Err(format!("it changes `{}` on `{name}` but does not place it", placement.guest)),
                }
            }
        }
        Ok(())
    }
}

/// Refuses what ssh would take for an option (some of those run programs here) or what is no name.
pub fn check_destination(name: &str) -> Result<(), String> {
    if name.is_empty() || name.starts_with('-') || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("`{name}` is not an ssh destination: write NAME or USER@NAME"));
    }
    Ok(())
}
