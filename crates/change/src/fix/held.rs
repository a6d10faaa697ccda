//! Whether cures made earlier still hold: one check for each change.

use nearmetal_domain::DomainXml;
use nearmetal_rules::{Cure, Scope};

use super::CureList;
use crate::ChangeError;
use crate::change::Change;
use crate::instance::{Instance, is_same};
use crate::journal::{Step, Transaction, changed_later};
use crate::kernel::persistent_pages;
use crate::machine::Machine;
use crate::perform::stored_definition;
use crate::pins::PinTarget;
use crate::value::{present, same_value};
use crate::verify::{Check, CheckKind, VERIFICATION_SCHEMA, Verification};
use crate::{modules, timestamp};

/// Looks at everything a transaction of cures changed that no later one of `all` has changed again; `None` for one that is not of
/// cures, or has nothing left. Of a definition each looks at its own edits: a later one leaves those that are not its own.
pub fn held(machine: &mut Machine<'_>, transaction: &Transaction, all: &[Transaction]) -> Option<Verification> {
    let list = transaction.header.purpose.cures()?;
    let later = changed_later(transaction, all);
    let steps = transaction.steps.iter().filter(|step| !later.iter().any(|change| sets_the_same(&step.change, change)));
    let checks: Vec<Check> = steps.filter_map(|step| check(machine, list, step)).collect();
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

fn check(machine: &mut Machine<'_>, list: &CureList, step: &Step) -> Option<Check> {
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
            let subject = format!("stored definition of `{domain}`");
            let found = stored_definition(machine, domain).map(|xml| missing(list, domain, xml.as_deref()));
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

/// [`AS_CURED`], or the rules whose edits somebody has undone.
fn missing(list: &CureList, domain: &str, xml: Option<&str>) -> String {
    let Some(Ok(xml)) = xml.map(DomainXml::parse) else { return "no definition".to_owned() };
    let mut rules: Vec<&str> = Vec::new();
    let own = |scope: &Scope| matches!(scope, Scope::Domain { name, .. } if name == domain);
    for object in list.objects.iter().filter(|object| own(&object.scope)) {
        let holds = |cure: &Cure| match cure {
            Cure::Definition(edit) => matches!(xml.clone().edit(edit), Ok(false)),
            _ => true,
        };
        if !object.cures.iter().all(holds) && !rules.contains(&object.rule.as_str()) {
            rules.push(&object.rule);
        }
    }
    if rules.is_empty() { AS_CURED.to_owned() } else { format!("without the fix of {}", rules.join(", ")) }
}
