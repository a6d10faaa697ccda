//! Setting a function aside for guests, and giving it back to the host.

use std::path::Path;

use nearmetal_host::Host;
use nearmetal_host::assignable::{Assignable, Obstacle, examine};
use nearmetal_host::ledger::Ledger;
use nearmetal_units::PciAddress;

use super::step::is_left_alone;
use super::{DevicePlan, VFIO_PCI, driver};
use crate::ChangeError;
use crate::change::Change;
use crate::device_state::{BoundDriver, DriverState};
use crate::journal::Transaction;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::steps::boot_unit_change;

/// What it takes to set a function aside for guests. Changes nothing. `state` is where the journal lies.
///
/// # Errors
/// [`ChangeError::Preconditions`] with every reason why it cannot be given away; or the machine cannot be asked.
pub fn plan_bind(
    machine: &Machine<'_>,
    host: &Host,
    ledger: &Ledger,
    function: PciAddress,
    persist: bool,
    state: &Path,
) -> Result<DevicePlan, ChangeError> {
    let found = find(host, ledger, function)?;
    let kernel = machine.kernel;
    let task = format!("{function} bound to {VFIO_PCI}");
    let old = driver::driver(kernel, function)?;
    let new = DriverState::only(VFIO_PCI);
    if old == new && !persist {
        return Ok(DevicePlan { task, changes: Vec::new(), notes: notes(&found, persist) });
    }
    if let Some(owner) = &found.guest {
        // A guest has it: it is bound already, by libvirt, which gives it back when the guest stops.
        let problem = format!("the guest `{}` has {function}, which is already bound to {VFIO_PCI}", owner.name);
        return Err(ChangeError::Preconditions { problems: vec![problem] });
    }
    let mut obstacles = found.obstacles.clone();
    if !obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::Mounted { .. } | Obstacle::Stacked { .. })) {
        obstacles.extend(held_drives(kernel, host, function)?);
    }
    let mut problems: Vec<String> =
        obstacles.iter().map(|obstacle| format!("cannot give {function} to guests: {obstacle}")).collect();
    if let (true, Some(user)) = (problems.is_empty(), driver::user(kernel, function)?) {
        problems.push(format!("cannot give {function} to guests: {user}"));
    }
    if !problems.is_empty() {
        return Err(ChangeError::Preconditions { problems });
    }
    let mut changes = Vec::new();
    if !driver::is_registered(kernel, VFIO_PCI)? {
        changes.push(Change::LoadModule { module: VFIO_PCI.to_owned(), loaded: false });
    }
    changes.push(Change::Driver { card: driver::card(kernel, function)?, old, new, persist });
    changes.extend(boot_unit_change(machine, persist, state)?);
    Ok(DevicePlan { task, changes, notes: notes(&found, persist) })
}

/// What it takes to give a function back to the host: the driver that `all` transactions say it had, or else the one the
/// kernel chooses. Changes nothing.
///
/// # Errors
/// [`ChangeError::Preconditions`] where a guest has it; or the machine cannot be asked.
pub fn plan_release(
    machine: &Machine<'_>,
    host: &Host,
    ledger: &Ledger,
    function: PciAddress,
    all: &[Transaction],
) -> Result<DevicePlan, ChangeError> {
    let found = find(host, ledger, function)?;
    let kernel = machine.kernel;
    let task = format!("{function} returned to the host");
    let old = driver::driver(kernel, function)?;
    let is_vfio = old.bound.is_vfio();
    let is_kept = old.only.as_deref().is_some_and(|only| only.contains("vfio"));
    if !is_vfio && !is_kept {
        return Ok(DevicePlan { task, changes: Vec::new(), notes: Vec::new() });
    }
    let user = match &found.guest {
        Some(owner) => {
            Some(format!("the guest `{}` has it: shut the guest down or detach the function first", owner.name))
        }
        None => driver::user(kernel, function)?,
    };
    if let Some(user) = user {
        let problem = format!("cannot return {function} to the host: {user}");
        return Err(ChangeError::Preconditions { problems: vec![problem] });
    }
    let left_alone = is_left_alone(kernel, function)?;
    let card = driver::card(kernel, function)?;
    let mut former = all.iter().rev().filter(|transaction| transaction.is_in_force()).flat_map(|transaction| {
        transaction.steps.iter().rev().filter_map(|step| match &step.change {
            Change::Driver { card: own, old, .. } if *own == card && step.boot_id == machine.boot_id => {
                Some(old.clone())
            }
            _ => None,
        })
    });
    let former = former.find(|state| !state.bound.is_vfio());
    let new = match former {
        Some(former) => DriverState { only: None, ..former },
        None if left_alone => DriverState::none(),
        None => DriverState { bound: BoundDriver::Kernels, only: None },
    };
    let mut notes = Vec::new();
    if new.bound == BoundDriver::None {
        notes.push(format!("no host driver claims {function}; none did before"));
    }
    Ok(DevicePlan { task, changes: vec![Change::Driver { card, old, new, persist: false }], notes })
}

fn find(host: &Host, ledger: &Ledger, function: PciAddress) -> Result<Assignable, ChangeError> {
    let refused = |problem: String| Err(ChangeError::Preconditions { problems: vec![problem] });
    if let Some(found) = examine(host, ledger).into_iter().find(|one| one.function == function) {
        return Ok(found);
    }
    match host.pci_devices.iter().find(|device| device.address == function) {
        None => refused(format!("no PCI function {function} here: `nearmetal device list` shows what there is")),
        Some(device) if device.is_bridge() => {
            refused(format!("{function} is a bridge: give guests the functions behind it instead"))
        }
        Some(device) => refused(format!(
            "{function} has class {}, which guests cannot have: `nearmetal device list` shows what they can have",
            device.class.map_or_else(|| "?".to_owned(), |class| format!("{class:#08x}"))
        )),
    }
}

/// Drives that something has to itself which no file of /sys tells: a pool of ZFS, a program.
pub(super) fn held_drives(
    kernel: &dyn Kernel,
    host: &Host,
    function: PciAddress,
) -> Result<Vec<Obstacle>, ChangeError> {
    let whole = host.block_devices.iter().filter(|drive| drive.partition_of.is_none());
    let own = whole.filter(|drive| drive.pci == Some(function) && drive.paths.iter().all(|path| *path == function));
    let mut held = Vec::new();
    for drive in own {
        let device = format!("/dev/{}", drive.name);
        if kernel.is_held(&device)? {
            held.push(Obstacle::Held { device });
        }
    }
    Ok(held)
}

fn notes(found: &Assignable, persist: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !found.names.is_empty() {
        notes.push(format!("the host loses {}", found.names.join(", ")));
    }
    if found.dma_domain.as_deref().is_some_and(|domain| domain != "identity") {
        notes.push(format!(
            "the IOMMU translates the host's own DMA ({}): iommu=pt spares the host that cost, and guests stay \
             isolated",
            found.dma_domain.as_deref().unwrap_or_default()
        ));
    }
    if !persist {
        notes.push("a reboot returns it to the host (--persist keeps it reserved)".to_owned());
    }
    notes
}
