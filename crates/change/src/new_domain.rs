//! Domains that are made: what may be in their way, and how they are taken back.

use std::path::Path;

use nearmetal_domain::DomainXml;
use nearmetal_hypervisor::{HypervisorError, Nvram};

use crate::ChangeError;
use crate::change::Change;
use crate::found::same;
use crate::found::{Found, look_at};
use crate::journal::Journal;
use crate::machine::Machine;
use crate::perform::stored_definition;
use crate::plan_file::DomainChange;

/// The domain, if this very definition of it was made by a transaction that is in force, and nobody has edited it since:
/// then there is nothing left to make.
pub(crate) fn made_before(
    machine: &mut Machine<'_>,
    state: &Path,
    domain: &DomainChange,
) -> Result<Option<Found>, ChangeError> {
    let mut made = None;
    for transaction in Journal::at(state).transactions()?.iter().filter(|transaction| transaction.is_in_force()) {
        for step in transaction.steps.iter().filter(|step| step.done) {
            match &step.change {
                Change::NewDomain { uuid, xml, .. } if *uuid == domain.uuid && *xml == domain.xml_after => {
                    made.clone_from(&step.found);
                }
                _ => {}
            }
        }
    }
    let Some(made) = made else { return Ok(None) };
    let there = machine.hypervisor.domains()?.into_iter().any(|other| other.name == domain.name);
    let found = if there { look_at(machine, &domain.name, Some(&domain.uuid), &mut Vec::new())? } else { None };
    Ok(found.filter(|found| same(&found.xml, &made)))
}

/// Whether neither name nor UUID is taken; else says by whom.
pub(crate) fn may_be_made(
    machine: &mut Machine<'_>,
    domain: &DomainChange,
    problems: &mut Vec<String>,
) -> Result<bool, ChangeError> {
    let (name, uuid) = (&domain.name, &domain.uuid);
    for other in machine.hypervisor.domains()? {
        let same_uuid = other.uuid.eq_ignore_ascii_case(uuid);
        if other.name == *name && same_uuid {
            problems.push(format!("the plan creates `{name}` ({uuid}), but it exists already: plan again"));
            return Ok(false);
        }
        if other.name == *name {
            let found = &other.uuid;
            problems.push(format!(
                "the plan creates `{name}`, but another domain has that name (UUID {found}): choose another name"
            ));
            return Ok(false);
        }
        if same_uuid {
            problems.push(format!("the UUID {uuid} of the new `{name}` belongs to `{}`: choose another", other.name));
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether libvirt has said where the UEFI variables of a domain will be, and there is nothing there yet: it makes the file
/// when the domain first starts.
pub(crate) fn nvram_is_fresh(machine: &Machine<'_>, xml: &str) -> bool {
    nvram(xml).is_some_and(|path| !(machine.surroundings.exists)(Path::new(&path)))
}

fn nvram(xml: &str) -> Option<String> {
    DomainXml::parse(xml).and_then(|xml| xml.facts()).ok()?.boot.nvram
}

/// A domain that was made and shall be no more.
pub(crate) struct Removal<'a> {
    pub(crate) domain: &'a str,
    pub(crate) uuid: &'a str,
    /// What libvirt made of its definition.
    pub(crate) made: &'a str,
}

impl Removal<'_> {
    /// Looks, removes, looks again; the sentence says what was found and done. `keep` puts a text that somebody has
    /// edited aside, and says where.
    pub(crate) fn carry_out(
        &self,
        machine: &mut Machine<'_>,
        fresh_nvram: bool,
        keep: impl FnOnce(&str) -> Result<String, ChangeError>,
    ) -> Result<String, ChangeError> {
        let name = self.domain;
        let summary = match machine.hypervisor.domain(name) {
            Ok(summary) => summary,
            Err(HypervisorError::NoSuchDomain { .. }) => return Ok(format!("`{name}` does not exist")),
            Err(error) => return Err(error.into()),
        };
        if !summary.uuid.eq_ignore_ascii_case(self.uuid) {
            return Ok(format!("`{name}` is now another domain (UUID {}): left as it is", summary.uuid));
        }
        if !summary.state.is_off() {
            return Ok(format!(
                "`{name}` is {}: left as it is; once it is off, `virsh undefine {name}` removes it",
                summary.state
            ));
        }
        let now = stored_definition(machine, name)?.unwrap_or_default();
        let mut note = format!("removed `{name}`");
        if !same(&now, self.made) {
            let kept = keep(&now)?;
            note.push_str(&format!("; it had been edited, and the edited text is kept in `{kept}`"));
        }
        let variables = nvram(&now);
        let fresh = fresh_nvram && variables == nvram(self.made);
        machine.hypervisor.undefine(name, if fresh { Nvram::Remove } else { Nvram::Keep })?;
        if let (false, Some(path)) = (fresh, variables) {
            if (machine.surroundings.exists)(Path::new(&path)) {
                note.push_str(&format!("; its UEFI variables stay in `{path}`, which may be older than the domain"));
            }
        }
        match machine.hypervisor.domain(name) {
            Err(HypervisorError::NoSuchDomain { .. }) => Ok(note),
            Err(error) => Err(error.into()),
            Ok(found) => Err(ChangeError::NotTaken {
                object: format!("the domain `{name}`"),
                wanted: "removed".to_owned(),
                found: found.state.to_string(),
            }),
        }
    }
}
