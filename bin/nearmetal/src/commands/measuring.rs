//! What every measurement begins and ends with: the guest in its plan, the right to measure, the file it is written to.

use std::path::Path;

use anyhow::{Context, bail};
use nearmetal_change::{DomainChange, Journal, PlanFile};
use nearmetal_host::files;
use nearmetal_place::Placement;
use serde::Serialize;

use crate::exit_status::WrongUse;

/// The plan in `named`, or the one in force of the domain.
pub(super) fn plan_of(named: Option<&Path>, domain: &str, journal: &Journal) -> anyhow::Result<PlanFile> {
    if let Some(path) = named {
        return Ok(PlanFile::load(path)?);
    }
    journal.plan_in_force(domain)?.with_context(|| {
        format!("nothing has been applied to `{domain}` here: apply a plan first, or name one with --plan")
    })
}

/// What a plan says of a domain.
pub(super) fn in_plan<'a>(plan: &'a PlanFile, domain: &str) -> anyhow::Result<(&'a DomainChange, &'a Placement)> {
    match (plan.domains.iter().find(|change| change.name == domain), plan.placement(domain)) {
        (Some(change), Some(placement)) => Ok((change, placement)),
        _ => Err(WrongUse(format!("`{domain}` is not in the plan")).into()),
    }
}

/// The same, of a domain that has PUs of its own: a slice to measure on.
pub(super) fn pinned_in_plan<'a>(
    plan: &'a PlanFile,
    domain: &str,
) -> anyhow::Result<(&'a DomainChange, &'a Placement)> {
    let found = in_plan(plan, domain)?;
    if found.1.vcpus.is_empty() {
        bail!("the plan leaves `{domain}` floating, so there is no slice to measure on: plan it with another --class");
    }
    Ok(found)
}

/// Refuses anyone but root; `what` needs it, and `instead` is what others may do.
pub(super) fn need_root(what: &str, instead: &str) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("measuring {what}, which only root may: run it as root{instead}")
}

/// Writes results to the file asked for, if one was; gives them as JSON.
pub(super) fn written(results: &impl Serialize, output: Option<&Path>) -> anyhow::Result<String> {
    let document = serde_json::to_string_pretty(results)?;
    if let Some(path) = output {
        files::write_atomic(path, &document)?;
    }
    Ok(document)
}
