//! Undoing one change: look, restore, read back, and say what was found.

use nearmetal_domain::DomainXml;

use crate::change::{Change, Lifetime};
use crate::found::same;
use crate::instance::{Instance, is_same};
use crate::journal::{Journal, Step, Transaction};
use crate::kernel::persistent_pages;
use crate::machine::Machine;
use crate::perform::{define, pin, set_value, stored_definition};
use crate::pools::resize_pool;
use crate::shared::{Needed, Shared};
use crate::value::{present, same_value};
use crate::{ChangeError, after_start, devices, modules, new_domain, private_files};

/// Restores the old value of a change; the sentence says what was done.
pub(crate) fn undo(
    machine: &mut Machine<'_>,
    journal: &Journal,
    transaction: &Transaction,
    step: &Step,
    needed: &Needed,
) -> Result<String, ChangeError> {
    let change = &step.change;
    if change.lifetime() == Lifetime::Boot && step.boot_id != machine.boot_id {
        return Ok(format!("the restart of the machine already undid {}: left as it is", change.object()));
    }
    match change {
        Change::HugepagePool { node, size, old, .. } => {
            let now = persistent_pages(machine.kernel, *node, *size)?;
            if now != *old {
                resize_pool(machine.kernel, *node, *size, *old, machine.patience)?;
            }
            Ok(format!("{} has {old} pages again (it had {now})", change.object()))
        }
        Change::SysfsValue { path, old, new } => {
            if machine.kernel.read(path)?.is_none() {
                return Ok(format!("`{path}` is gone now, and its value with it"));
            }
            let now = present(machine.kernel, path)?;
            // The number of an interrupt may be another device's by now.
            let may_be_renumbered = !change.is_made_again_at_boot();
            if may_be_renumbered && step.done && !same_value(path, &now, new) && !same_value(path, &now, old) {
                return Ok(format!("`{path}` is `{now}` by now, and not what was set: left as it is"));
            }
            if !same_value(path, &now, old) {
                set_value(machine, path, old)?;
            }
            Ok(format!("`{path}` is `{old}` again (it was `{now}`)"))
        }
        Change::LoadModule { module, loaded: true } => {
            Ok(format!("something else had loaded the module {module}: left as it is"))
        }
        Change::LoadModule { module, loaded: false } => modules::unload(machine.kernel, module),
        Change::BootUnit { old, .. } => Shared::BootUnit.undo(machine, old.as_deref(), needed),
        Change::QemuHook { old, .. } => Shared::QemuHook.undo(machine, old.as_deref(), needed),
        Change::AfterStart { domain, uuid, instance, old, .. } => {
            let pid = machine.kernel.guest(uuid)?;
            match pid.filter(|_| step.boot_id == machine.boot_id) {
                Some(pid) if is_same(Instance::now(machine, domain)?, *instance) => {
                    let left = after_start::still_there(machine.kernel, pid, old)?;
                    after_start::set(machine.kernel, pid, &left)?;
                    Ok(format!("workers and interrupts of `{domain}` are back where they were"))
                }
                _ => Ok(format!("the pins of workers and interrupts of `{domain}` ended with the guest")),
            }
        }
        Change::DefineDomain { domain, uuid, old_xml, new_xml, .. } => {
            let now = stored_definition(machine, domain)?;
            if now.as_deref() == Some(old_xml) {
                return Ok(format!("`{domain}` has its former definition"));
            }
            let mut note = format!("`{domain}` has its former definition again");
            let expected = step.found.as_deref().unwrap_or(new_xml);
            match &now {
                Some(now) if !same(now, expected) => {
                    let kept = journal.keep(transaction.number(), domain, now)?;
                    note.push_str(&format!("; it had been edited, and the edited text is kept in `{kept}`"));
                }
                None => note.push_str("; it had been removed"),
                Some(_) => {}
            }
            define(machine, domain, uuid, old_xml)?;
            let found = stored_definition(machine, domain)?.unwrap_or_default();
            if !same(&found, old_xml) {
                return Err(ChangeError::NotTaken {
                    object: format!("the definition of `{domain}`"),
                    wanted: "its former text".to_owned(),
                    found: difference(old_xml, &found),
                });
            }
            Ok(note)
        }
        Change::NewDomain { domain, uuid, xml } => {
            let removed = new_domain::Removal { domain, uuid, made: step.found.as_deref().unwrap_or(xml) };
            removed.carry_out(machine, step.fresh_nvram, |now| journal.keep(transaction.number(), domain, now))
        }
        Change::LivePin { domain, target, old, instance, .. } => {
            if step.boot_id != machine.boot_id || !is_same(Instance::now(machine, domain)?, *instance) {
                return Ok(format!("the pin of {target} of `{domain}` ended with the guest"));
            }
            pin(machine, domain, *target, old)?;
            Ok(format!("{target} of `{domain}` may use PUs {old} again"))
        }
        Change::VirtualFunctions { card, old, new, .. } => {
            devices::step::undo_virtual_functions(machine.kernel, card, old, new)
        }
        Change::Driver { card, old, .. } => devices::step::undo_driver(machine.kernel, card, old),
        // Guests are stopped and started around the other changes: see `rollback`.
        Change::ShutdownDomain { .. } | Change::StartDomain { .. } => Ok(String::new()),
    }
}

fn difference(wanted: &str, found: &str) -> String {
    let first = || {
        let (wanted, found) = (DomainXml::parse(wanted).ok()?, DomainXml::parse(found).ok()?);
        nearmetal_domain::first_difference(&wanted, &found).ok()?
    };
    first().map_or_else(
        || "something that is not a definition".to_owned(),
        |difference| format!("{} at {} (before: {})", difference.after, difference.path, difference.before),
    )
}

impl Journal {
    /// Keeps a text that is about to be replaced, beside the journal.
    fn keep(&self, transaction: u32, domain: &str, text: &str) -> Result<String, ChangeError> {
        // Domain names may hold anything but a slash.
        let path = self.state_directory().join("journal").join(format!("{transaction:04}-{domain}-edited.xml"));
        private_files::write(&path, text.as_bytes())?;
        Ok(path.display().to_string())
    }
}
