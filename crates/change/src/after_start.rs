//! What libvirt has no element for, set after every start of a guest: the PUs of its vhost workers, and of the interrupts
//! of the functions it is given.
//!
//! vhost workers inherit the emulator thread's cpuset, so a pin of theirs lies inside it. Interrupts of a function exist
//! only while the guest's driver has switched them on, and come anew with the kernel's default mask after each restart,
//! also one that the guest does by itself.

mod follow;

#[cfg(test)]
pub(crate) use follow::Known;
pub use follow::follow;

use nearmetal_place::Placement;
use nearmetal_units::{CpuSet, PciAddress};

use crate::ChangeError;
use crate::kernel::Kernel;
use crate::pins::{InterruptPin, Pins, WorkerPin};
use crate::plan_file::DomainChange;

/// Every function a plan gives a domain, and its definition hands through beside them.
pub(crate) fn functions(domain: &DomainChange, placement: &Placement) -> Vec<PciAddress> {
    let facts = nearmetal_domain::DomainXml::parse(&domain.xml_after).and_then(|xml| xml.facts());
    let mut all: Vec<PciAddress> = placement.devices.iter().map(|device| device.function).collect();
    for function in facts.iter().flat_map(|facts| &facts.functions).map(|function| function.address) {
        if !all.contains(&function) {
            all.push(function);
        }
    }
    all
}

/// Numbers of the message-signalled interrupts a function has switched on
/// (Documentation/ABI/testing/sysfs-bus-pci, msi_irqs), rising.
pub(crate) fn interrupts(kernel: &dyn Kernel, function: PciAddress) -> Result<Vec<u32>, ChangeError> {
    let names = kernel.list(&format!("/sys/bus/pci/devices/{function}/msi_irqs"))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What is, and what the plan says, of everything that is not as the plan says: the same workers and interrupts in both.
pub(crate) fn differences(
    kernel: &dyn Kernel,
    pid: u32,
    placement: &Placement,
    functions: &[PciAddress],
) -> Result<(Pins, Pins), ChangeError> {
    let (mut old, mut new) = (Pins::default(), Pins::default());
    for (thread, found, cpus) in workers(kernel, pid, placement)? {
        if found != cpus {
            old.workers.push(WorkerPin { thread, cpus: found });
            new.workers.push(WorkerPin { thread, cpus });
        }
    }
    if placement.interrupts.is_empty() {
        return Ok((old, new));
    }
    for function in functions.iter().copied() {
        for number in interrupts(kernel, function)? {
            let Some(found) = mask(kernel, number)? else { continue };
            if !found.is_subset(&placement.interrupts) {
                old.interrupts.push(InterruptPin { function, number, cpus: found });
                new.interrupts.push(InterruptPin { function, number, cpus: placement.interrupts.clone() });
            }
        }
    }
    Ok((old, new))
}

/// Each vhost worker with the PUs it has and the PUs it is to have; none where the plan says nothing of them. Workers are
/// made one after the other, queue by queue, so their numbers tell them apart; where there are more of them than PUs, they
/// take turns.
fn workers(kernel: &dyn Kernel, pid: u32, placement: &Placement) -> Result<Vec<(u32, CpuSet, CpuSet)>, ChangeError> {
    if placement.vhost.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = kernel.vhost_workers(pid)?;
    found.sort_by_key(|(thread, _)| *thread);
    let turns = found.into_iter().zip(placement.vhost.iter().cycle());
    Ok(turns.map(|((thread, cpus), wanted)| (thread, cpus, wanted.clone())).collect())
}

/// PUs an interrupt may be delivered to; `None` for one that is gone.
fn mask(kernel: &dyn Kernel, number: u32) -> Result<Option<CpuSet>, ChangeError> {
    let path = mask_path(number);
    let Some(text) = kernel.read(&path)? else { return Ok(None) };
    let cpus = text.trim().parse();
    cpus.map(Some)
        .map_err(|_| ChangeError::Kernel(format!("`{path}` holds `{}`, which is not a set of PUs", text.trim())))
}

fn mask_path(number: u32) -> String {
    format!("/proc/irq/{number}/smp_affinity_list")
}

/// Sets pins, and reads each back.
///
/// # Errors
/// What the kernel answered: a worker may only be pinned inside its cpuset, and some interrupts refuse a mask.
pub(crate) fn set(kernel: &dyn Kernel, pid: u32, pins: &Pins) -> Result<(), ChangeError> {
    for pin in &pins.workers {
        kernel.set_affinity(pin.thread, &pin.cpus)?;
        let found = kernel.vhost_workers(pid)?.into_iter().find(|(thread, _)| *thread == pin.thread);
        let found = found.map_or_else(|| "no such thread".to_owned(), |(_, cpus)| cpus.to_string());
        not_taken(format!("the PUs of vhost worker {}", pin.thread), &pin.cpus, found)?;
    }
    for pin in &pins.interrupts {
        let path = mask_path(pin.number);
        kernel.write(&path, &pin.cpus.to_string())?;
        let found = mask(kernel, pin.number)?.map_or_else(|| "no such interrupt".to_owned(), |cpus| cpus.to_string());
        not_taken(path, &pin.cpus, found)?;
    }
    Ok(())
}

fn not_taken(object: String, wanted: &CpuSet, found: String) -> Result<(), ChangeError> {
    let wanted = wanted.to_string();
    if wanted == found { Ok(()) } else { Err(ChangeError::NotTaken { object, wanted, found }) }
}

/// Those pins whose worker or interrupt is still the guest's.
pub(crate) fn still_there(kernel: &dyn Kernel, pid: u32, pins: &Pins) -> Result<Pins, ChangeError> {
    let threads = kernel.vhost_workers(pid)?;
    let mut left = Pins::default();
    for pin in &pins.workers {
        if threads.iter().any(|(thread, _)| *thread == pin.thread) {
            left.workers.push(pin.clone());
        }
    }
    for pin in &pins.interrupts {
        if interrupts(kernel, pin.function)?.contains(&pin.number) {
            left.interrupts.push(pin.clone());
        }
    }
    Ok(left)
}
