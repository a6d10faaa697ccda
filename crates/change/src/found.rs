//! A domain as it is found, and whether two definitions of it say the same.

use nearmetal_domain::DomainXml;
use nearmetal_hypervisor::{Definition, DomainState, HypervisorError};

use crate::ChangeError;
use crate::instance::Instance;
use crate::machine::Machine;

/// A domain as it is now.
pub(crate) struct Found {
    pub(crate) uuid: String,
    /// Its stored definition.
    pub(crate) xml: String,
    pub(crate) state: DomainState,
    /// Its run, if it is not off.
    pub(crate) instance: Option<Instance>,
}

/// A domain whose stored definition is to change; `None`, and why, where it is not there or cannot be changed.
pub(crate) fn look_at(
    machine: &mut Machine<'_>,
    name: &str,
    planned_uuid: Option<&str>,
    problems: &mut Vec<String>,
) -> Result<Option<Found>, ChangeError> {
    let summary = match machine.hypervisor.domain(name) {
        Ok(summary) => summary,
        Err(error @ HypervisorError::NoSuchDomain { .. }) => {
            problems.push(error.to_string());
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(planned) = planned_uuid.filter(|planned| !summary.uuid.eq_ignore_ascii_case(planned)) {
        problems.push(format!("`{name}` is now another domain (UUID {}, planned {planned}): plan again", summary.uuid));
        return Ok(None);
    }
    if !summary.persistent {
        problems.push(format!("`{name}` is transient and has no stored definition to change: define it first"));
        return Ok(None);
    }
    if summary.managed_save {
        problems.push(format!(
            "`{name}` has a managed save image, and its next start would resume that with its old definition: start \
             it once (virsh start {name}), or discard the saved state (virsh managedsave-remove {name})"
        ));
    }
    let xml = machine.hypervisor.domain_xml(name, Definition::Inactive)?;
    let instance = Instance::of(machine, &summary)?;
    Ok(Some(Found { uuid: summary.uuid, xml, state: summary.state, instance }))
}

/// Whether two definitions say the same.
pub(crate) fn same(left: &str, right: &str) -> bool {
    if left == right {
        return true;
    }
    match (DomainXml::parse(left), DomainXml::parse(right)) {
        (Ok(left), Ok(right)) => nearmetal_domain::same_after_canonicalisation(&left, &right).unwrap_or(false),
        _ => false,
    }
}
