//! Doing one change: write, then read back.

use std::time::Duration;

use nearmetal_hypervisor::{Definition, HypervisorError, Scope, ShutdownMode};
use nearmetal_units::CpuSet;

use crate::change::Change;
use crate::faults::Faults;
use crate::journal::{Record, Writer};
use crate::kernel::required;
use crate::machine::Machine;
use crate::pins::PinTarget;
use crate::pools::resize_pool;
use crate::value::same_value;
use crate::{ChangeError, after_start, boot_unit, devices, modules, qemu_hook};

/// What doing a change needs beside the machine.
pub(crate) struct Context<'a> {
    pub(crate) faults: &'a Faults,
    pub(crate) shutdown_timeout: Duration,
    /// `3:shutdown-web1`, for fault points.
    pub(crate) label: String,
    /// The journal, and the number of the change in it.
    pub(crate) journal: (&'a mut Writer, u32),
}

/// Makes a change whose intent is in the journal.
pub(crate) fn perform(
    machine: &mut Machine<'_>,
    change: &Change,
    context: &mut Context<'_>,
) -> Result<(), ChangeError> {
    match change {
        Change::HugepagePool { node, size, new, .. } => {
            resize_pool(machine.kernel, *node, *size, *new, machine.patience)
        }
        Change::SysfsValue { path, new, .. } => set_value(machine, path, new),
        Change::LoadModule { module, .. } => modules::load(machine.kernel, module),
        Change::BootUnit { new, .. } => boot_unit::install(machine, new),
        Change::QemuHook { new, .. } => qemu_hook::install(machine, new),
        Change::AfterStart { domain, uuid, new, .. } => match machine.kernel.guest(uuid)? {
            Some(pid) => after_start::set(machine.kernel, pid, new),
            None => Err(ChangeError::Kernel(format!("`{domain}` has stopped in the meantime"))),
        },
        Change::DefineDomain { domain, uuid, new_xml, .. } => define(machine, domain, uuid, new_xml),
        Change::NewDomain { domain, uuid, xml } => define(machine, domain, uuid, xml),
        Change::ShutdownDomain { domain, .. } => {
            let (journal, step) = &mut context.journal;
            journal.append(&Record::Begun { step: *step })?;
            context.faults.point(format!("{}:begun", context.label))?;
            let asked = format!("{}:asked", context.label);
            if context.faults.is_armed(&asked) {
                // Only asks: a guest is not gone at once, and the wait ends before it began.
                match machine.hypervisor.shutdown(domain, ShutdownMode::AgentThenAcpi, Duration::ZERO) {
                    Ok(()) | Err(HypervisorError::Timeout { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            context.faults.point(asked)?;
            shut_down(machine, domain, context.shutdown_timeout)
        }
        Change::StartDomain { domain } => start(machine, domain),
        Change::LivePin { domain, target, new, .. } => pin(machine, domain, *target, new),
        Change::VirtualFunctions { card, new, .. } => devices::card::bring(machine.kernel, card.function, new),
        Change::Driver { card, new, .. } => devices::driver::set_driver(machine.kernel, card.function, new),
    }
}

/// Writes a kernel setting.
pub(crate) fn set_value(machine: &Machine<'_>, path: &str, value: &str) -> Result<(), ChangeError> {
    machine.kernel.write(path, value)?;
    let found = required(machine.kernel, path)?;
    if same_value(path, &found, value) {
        return Ok(());
    }
    Err(ChangeError::NotTaken { object: path.to_owned(), wanted: value.to_owned(), found })
}

/// Stores a definition; its UUID must not change, or libvirt would have made another domain.
pub(crate) fn define(machine: &mut Machine<'_>, domain: &str, uuid: &str, xml: &str) -> Result<(), ChangeError> {
    let defined = machine.hypervisor.define(xml)?;
    if defined.name == domain && defined.uuid.eq_ignore_ascii_case(uuid) {
        return Ok(());
    }
    Err(ChangeError::NotTaken {
        object: format!("the definition of `{domain}`"),
        wanted: format!("{domain} ({uuid})"),
        found: format!("{} ({})", defined.name, defined.uuid),
    })
}

/// Asks a guest to stop and waits. A paused guest cannot stop and is refused by the hypervisor's own error.
pub(crate) fn shut_down(machine: &mut Machine<'_>, domain: &str, timeout: Duration) -> Result<(), ChangeError> {
    Ok(machine.hypervisor.shutdown(domain, ShutdownMode::AgentThenAcpi, timeout)?)
}

/// Starts a guest, unless it runs.
pub(crate) fn start(machine: &mut Machine<'_>, domain: &str) -> Result<(), ChangeError> {
    if machine.hypervisor.domain(domain)?.state.is_off() {
        machine.hypervisor.start(domain, false)?;
    }
    let state = machine.hypervisor.domain(domain)?.state;
    if state.is_off() {
        return Err(ChangeError::NotTaken {
            object: format!("the state of `{domain}`"),
            wanted: "running".to_owned(),
            found: state.to_string(),
        });
    }
    Ok(())
}

/// Moves threads of a running guest.
pub(crate) fn pin(
    machine: &mut Machine<'_>,
    domain: &str,
    target: PinTarget,
    cpus: &CpuSet,
) -> Result<(), ChangeError> {
    match target {
        PinTarget::Vcpu(number) => machine.hypervisor.pin_vcpu(domain, number, cpus, Scope::LIVE)?,
        PinTarget::Emulator => machine.hypervisor.pin_emulator(domain, cpus, Scope::LIVE)?,
        PinTarget::Iothread(number) => machine.hypervisor.pin_iothread(domain, number, cpus, Scope::LIVE)?,
    }
    Ok(())
}

/// The stored definition, `None` if the domain has vanished.
pub(crate) fn stored_definition(machine: &mut Machine<'_>, domain: &str) -> Result<Option<String>, ChangeError> {
    match machine.hypervisor.domain_xml(domain, Definition::Inactive) {
        Ok(xml) => Ok(Some(xml)),
        Err(HypervisorError::NoSuchDomain { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
