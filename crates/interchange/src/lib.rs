//! Plans in the words of the engines people manage fleets with.
//!
//! [`export`] is pure: from a plan to the texts of files, and a list of what the engine cannot express. Nothing of a plan is
//! dropped silently: what is in no file is a [`Limit`], with the reason and what to do by hand.

mod ansible;
mod guests;
mod kubevirt;
mod limit;
mod names;
mod nova;
mod proxmox;
mod terraform;

use std::collections::BTreeMap;

use nearmetal_change::AnyPlan;
pub use nearmetal_export::ExportFile;
use nearmetal_fleet::file::FleetFile;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use crate::limit::Limit;
pub use crate::nova::fleet_from_flavors;

/// Schema of [`Exported::document`].
pub const EXPORT_SCHEMA: &str = "nearmetal.export/1";

/// An engine that a plan is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// KubeVirt: `VirtualMachine` manifests.
    Kubevirt,
    /// Terraform's libvirt provider: XSLT.
    Terraform,
    /// Proxmox VE: configurations of VMs and hookscripts.
    Proxmox,
    /// OpenStack Nova: flavors and nova.conf.
    Nova,
    /// Ansible: a role with each host's plan.
    Ansible,
}

impl Engine {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubevirt => "KubeVirt",
            Self::Terraform => "Terraform's libvirt provider",
            Self::Proxmox => "Proxmox VE",
            Self::Nova => "OpenStack Nova",
            Self::Ansible => "Ansible",
        }
    }
}

/// What an engine needs to know and no plan says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The fleet file that was planned: it has the groups, which no plan has.
    pub fleet: Option<FleetFile>,
    /// Number of a VM in Proxmox VE, by its name; others are numbered from 100 on.
    pub numbers: BTreeMap<String, u32>,
}

/// The files for an engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// In the order of their paths.
    pub files: Vec<ExportFile>,
    /// What is in none of them, in the order of hosts and VMs.
    pub limits: Vec<Limit>,
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InterchangeError {
    /// A definition of the plan.
    #[error("the definition of `{vm}` in the plan cannot be read: {problem}")]
    Definition {
        /// The VM.
        vm: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An option.
    #[error("{0}")]
    Option(String),
    /// Something from outside.
    #[error("{origin}: {problem}")]
    Unreadable {
        /// File or source.
        origin: String,
        /// What is wrong with it, with the place.
        problem: String,
    },
}

/// Writes a plan of a host or of a fleet for an engine. The same plan gives the same texts.
///
/// # Errors
/// A definition of the plan that cannot be read, or an option that does not fit the plan.
pub fn export(plan: &AnyPlan, engine: Engine, options: &Options) -> Result<Exported, InterchangeError> {
    let hosts = guests::hosts(plan)?;
    let mut exported = match engine {
        Engine::Kubevirt => kubevirt::export(&hosts),
        Engine::Terraform => terraform::export(&hosts)?,
        Engine::Proxmox => proxmox::export(&hosts, options)?,
        Engine::Nova => nova::export(&hosts, options),
        Engine::Ansible => ansible::export(plan),
    };
    exported.limits.extend(limit::without_place(plan));
    exported.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(exported)
}

impl Exported {
    /// As a document for programs.
    pub fn document(&self, engine: Engine) -> Value {
        let files: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        json!({ "schema": EXPORT_SCHEMA, "engine": engine, "files": files, "limits": self.limits })
    }

    fn add(&mut self, path: impl Into<String>, text: String) {
        self.files.push(ExportFile { path: path.into(), text, private: false });
    }
}
