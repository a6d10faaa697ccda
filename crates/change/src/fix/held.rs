//! Whether cures made earlier still hold: one check for each change.

use nearmetal_domain::{DefinitionEdit, DomainXml};
use nearmetal_rules::{Cure, Scope};

use super::CureList;
use crate::ChangeError;
use crate::change::Change;
use crate::instance::{Instance, is_same};
use crate::journal::{Step, Transaction, steps_later};
use crate::kernel::persistent_pages;
use crate::machine::Machine;
use crate::perform::stored_definition;
use crate::pins::PinTarget;
use crate::value::{present, same_value};
use crate::verify::{Check, CheckKind, VERIFICATION_SCHEMA, Verification};
use crate::{modules, timestamp};

/// Looks at everything a transaction of cures changed that no later one of `all` has changed again; `None` for one that is not of
/// cures, or has nothing left. Of a definition each looks at those of its edits that the newest later one of that domain has, too:
/// a plan or another fix has decided anew on the others.
pub fn held(machine: &mut Machine<'_>, transaction: &Transaction, all: &[Transaction]) -> Option<Verification> {
    let list = transaction.header.purpose.cures()?;
    let later = steps_later(transaction, all);
    let again = |step: &&Step| later.iter().any(|other| sets_the_same(&step.change, &other.change));
    let steps = transaction.steps.iter().filter(|step| !again(step));
    let checks: Vec<Check> = steps.filter_map(|step| check(machine, list, step, &later)).collect();
    (!checks.is_empty()).then(|| Verification {
        schema: VERIFICATION_SCHEMA.to_owned(),
        guest: format!("fixes of transaction {}", transaction.number()),
        taken: timestamp::now(),
        checks,
        guest_view: None,
    })
}

/// Whether the later change sets what the earlier one has set. All that is done to a domain has the same object, so that is not enough.
fn sets_the_same(earlier: &Change, later: &Change) -> bool {
    match (earlier, later) {
        (Change::DefineDomain { .. }, _) => false,
        (
            Change::LivePin { domain, target, .. },
            Change::LivePin { domain: later_domain, target: later_target, .. },
        ) => domain == later_domain && target == later_target,
        (Change::LivePin { .. }, _) => false,
        _ => earlier.object() == later.object(),
    }
}

fn check(machine: &mut Machine<'_>, list: &CureList, step: &Step, later: &[&Step]) -> Option<Check> {
    let change = &step.change;
    let subject = change.object();
    let outcome = match change {
        Change::SysfsValue { new, .. } if !change.is_made_again_at_boot() && step.boot_id != machine.boot_id => {
            Check::cannot_tell(CheckKind::Setting, subject, new, "the reboot renumbered the interrupts")
        }
        Change::SysfsValue { path, new, .. } => {
            let found = present(machine.kernel, path);
            compared(CheckKind::Setting, subject, new, found, |found| same_value(path, found, new)).at(path)
        }
        Change::HugepagePool { node, size, new, .. } => {
            let found = persistent_pages(machine.kernel, *node, *size).map(|pages| format!("{pages} pages"));
            let wanted = format!("{new} pages");
            compared(CheckKind::Pool, subject, &wanted, found, |found| found == wanted)
        }
        Change::LoadModule { module, .. } => {
            let word = |loaded: bool| if loaded { "loaded" } else { "not loaded" }.to_owned();
            let found = modules::is_loaded(machine.kernel, module).map(word);
            compared(CheckKind::Module, subject, "loaded", found, |found| found == "loaded")
        }
        Change::LivePin { domain, target, new, instance, .. } => {
            let kind = match target {
                PinTarget::Vcpu(_) => CheckKind::Vcpu,
                PinTarget::Emulator => CheckKind::Emulator,
                PinTarget::Iothread(_) => CheckKind::Iothread,
            };
            let (subject, wanted) = (format!("{target} of `{domain}`"), format!("PUs {new}"));
            let summary = machine.hypervisor.domain(domain).map_err(ChangeError::from);
            let found = summary.and_then(|summary| Ok((Instance::of(machine, &summary)?, summary.uuid)));
            match found {
                Ok((now, _)) if step.boot_id != machine.boot_id || !is_same(now, *instance) => {
                    Check::cannot_tell(kind, subject, wanted, "the guest has stopped, and its pins ended with it")
                }
                found => {
                    let cpus = found.and_then(|(_, uuid)| machine.kernel.affinity(&uuid, *target));
                    let found =
                        cpus.map(|cpus| cpus.map_or_else(|| "no thread".to_owned(), |cpus| format!("PUs {cpus}")));
                    compared(kind, subject, &wanted, found, |found| found == wanted)
                }
            }
        }
        Change::DefineDomain { domain, .. } => {
            let edits = edits_left(list, domain, later);
            if edits.is_empty() {
                return None;
            }
            let subject = format!("stored definition of `{domain}`");
            let found = stored_definition(machine, domain).map(|xml| missing(&edits, xml.as_deref()));
            compared(CheckKind::StoredDefinition, subject, AS_CURED, found, |found| found == AS_CURED)
        }
        // Cures make no domains, start and stop none, and leave functions and drivers alone.
        Change::BootUnit { .. }
        | Change::QemuHook { .. }
        | Change::AfterStart { .. }
        | Change::NewDomain { .. }
        | Change::ShutdownDomain { .. }
        | Change::StartDomain { .. }
        | Change::VirtualFunctions { .. }
        | Change::Driver { .. } => return None,
    };
    Some(outcome)
}

const AS_CURED: &str = "as cured";

fn compared(
    kind: CheckKind,
    subject: String,
    wanted: &str,
    found: Result<String, ChangeError>,
    equal: impl Fn(&str) -> bool,
) -> Check {
    match found {
        Ok(found) => {
            let equal = equal(&found);
            Check::compared(kind, subject, wanted, found, equal)
        }
        Err(error) => Check::cannot_tell(kind, subject, wanted, error.to_string()),
    }
}

/// A domain's edits, each with its rule, without those that the newest later definition of it does not have.
fn edits_left<'a>(list: &'a CureList, domain: &str, later: &[&Step]) -> Vec<(&'a str, &'a DefinitionEdit)> {
    let own = |scope: &Scope| matches!(scope, Scope::Domain { name, .. } if name == domain);
    let mut edits: Vec<(&str, &DefinitionEdit)> = Vec::new();
    for object in list.objects.iter().filter(|object| own(&object.scope)) {
        edits.extend(object.cures.iter().filter_map(|cure| match cure {
            Cure::Definition(edit) => Some((object.rule.as_str(), edit)),
            _ => None,
        }));
    }
    let newest = later.iter().rev().find_map(|step| match &step.change {
        Change::DefineDomain { domain: other, new_xml, .. } if other == domain => {
            Some(step.found.as_deref().unwrap_or(new_xml))
        }
        _ => None,
    });
    if let Some(Ok(xml)) = newest.map(DomainXml::parse) {
        edits.retain(|(_, edit)| holds(&xml, edit));
    }
    edits
}

/// Whether a definition has what an edit makes.
fn holds(xml: &DomainXml, edit: &DefinitionEdit) -> bool {
    matches!(xml.clone().edit(edit), Ok(false))
}

/// [`AS_CURED`], or the rules whose edits somebody has undone.
fn missing(edits: &[(&str, &DefinitionEdit)], xml: Option<&str>) -> String {
    let Some(Ok(xml)) = xml.map(DomainXml::parse) else { return "no definition".to_owned() };
    let mut rules: Vec<&str> = Vec::new();
    for (rule, _) in edits.iter().filter(|(_, edit)| !holds(&xml, edit)) {
        if !rules.contains(rule) {
            rules.push(rule);
        }
    }
    if rules.is_empty() { AS_CURED.to_owned() } else { format!("without the fix of {}", rules.join(", ")) }
}
