//! Which plan a measurement goes by, and what it says of a VM.

use std::path::PathBuf;

use nearmetal_change::{ChangeError, DomainChange, Journal, PlanFile};
use nearmetal_domain::DomainXml;
use nearmetal_host::HostFs;
use nearmetal_load::Shape;
use nearmetal_measure::environment_of;
use nearmetal_place::Placement;
use nearmetal_results::Environment;

use super::workload::{Chosen, USUAL_SIZE};
use crate::exit_status::WrongUse;
use crate::refusal::is_wrong_use;
use crate::state::StateArgs;

/// The plan, and where the journal is.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// The plan [default: the one that was last applied to the VM]
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
}

/// A VM in its plan.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its definitions, as found and as planned.
    pub(super) change: DomainChange,
    /// Where it goes: the slice.
    pub(super) placement: Placement,
    /// When the plan was made.
    pub(super) created: String,
}

impl PlanArgs {
    /// The journal of this machine.
    pub(super) fn journal(&self) -> Journal {
        self.state.journal()
    }

    /// What the plan says of a VM.
    ///
    /// # Errors
    /// [`WrongUse`] where there is no such plan or the VM is not in it; else the journal could not be read.
    pub(super) fn of(&self, domain: &str, journal: &Journal) -> anyhow::Result<Planned> {
        let plan = match &self.plan {
            Some(path) => PlanFile::load(path).map_err(wrong_if_the_users)?,
            None => journal.plan_in_force(domain)?.ok_or_else(|| {
                WrongUse(format!(
                    "no plan was applied to `{domain}` here: apply one first, or name one with --plan FILE"
                ))
            })?,
        };
        let change = plan.domains.iter().find(|change| change.name == domain);
        match (change, plan.placement(domain)) {
            (Some(change), Some(placement)) => {
                Ok(Planned { change: change.clone(), placement: placement.clone(), created: plan.created.clone() })
            }
            _ => Err(WrongUse(format!("`{domain}` is not in the plan, which {}", placed(&plan))).into()),
        }
    }

    /// The same, of a VM that has PUs of its own: a slice to measure on.
    ///
    /// # Errors
    /// As [`PlanArgs::of`]; [`WrongUse`] also where the plan leaves the VM floating.
    pub(super) fn pinned(&self, domain: &str, journal: &Journal) -> anyhow::Result<Planned> {
        let found = self.of(domain, journal)?;
        if found.placement.vcpus.is_empty() {
            return Err(WrongUse(format!(
                "the plan leaves `{domain}` floating, so there is no slice to measure on: plan it with another --class"
            ))
            .into());
        }
        Ok(found)
    }
}

fn placed(plan: &PlanFile) -> String {
    let names: Vec<&str> = plan.domains.iter().map(|change| change.name.as_str()).collect();
    if names.is_empty() { "places no VM".to_owned() } else { format!("places {}", names.join(", ")) }
}

/// What a load must know of a guest with this definition and place, with a usual size and length, and the load's usual span.
///
/// # Errors
/// A definition that cannot be read.
pub(super) fn shape(xml: &str, placement: &Placement, load: &Chosen, fs: &HostFs) -> anyhow::Result<Shape> {
    let emulated = matches!(environment_of(fs), Environment::Lab { .. });
    Ok(Shape {
        size: USUAL_SIZE,
        seconds: 1,
        ramp: 1,
        span: load.usual_span(emulated),
        vcpus: placement.vcpus.len() as u32,
        memory: DomainXml::parse(xml)?.facts()?.memory,
        nodes: placement.memory.nodes.len() as u32,
        emulated,
        kit: None,
    })
}

/// A plan that is not there or is none is the user's mistake.
fn wrong_if_the_users(error: ChangeError) -> anyhow::Error {
    if !is_wrong_use(&error) {
        return error.into();
    }
    WrongUse(format!("{:#}", anyhow::Error::from(error))).into()
}
