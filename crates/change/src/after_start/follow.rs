//! What runs beside a guest that libvirt has just started: sets the pins as soon as there is something to pin.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_place::Placement;
use nearmetal_units::PciAddress;

use super::{differences, functions, interrupts, set};
use crate::ChangeError;
use crate::journal::Journal;
use crate::kernel::Kernel;
use crate::pins::{InterruptPin, Pins};
use crate::plan_file::PlanFile;

/// How long QEMU may take to be seen. libvirt calls the hook when it runs.
const START: Duration = Duration::from_secs(60);
/// How long workers may take to appear: QEMU makes them before the guest's first instruction.
const WORKERS: Duration = Duration::from_secs(30);
/// How often is looked: while a guest boots, and later, when only a restart of its own brings new interrupts.
const SOON: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(5);
const BOOT: Duration = Duration::from_secs(120);

/// Sets what the plan in force says of a guest's vhost workers and interrupts, and goes on until the guest ends where
/// interrupts are planned: those come anew whenever the guest restarts by itself.
///
/// What somebody else has moved meanwhile is left alone: `verify` tells of it. Never asks libvirt, which waits for the hook
/// that starts this.
///
/// # Errors
/// The journal cannot be read, or the guest's process cannot.
pub fn follow(
    kernel: &dyn Kernel,
    journal: &Journal,
    domain: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(), ChangeError> {
    let Some(plan) = journal.plan_at_start(domain)? else {
        say(&format!("no plan in force covers `{domain}`"));
        return Ok(());
    };
    let Some((placement, functions)) = wanted(&plan, domain) else {
        say(&format!("the plan in force has nothing to set after `{domain}` starts"));
        return Ok(());
    };
    let began = Instant::now();
    let pid = loop {
        match kernel.guest(&placement.uuid)? {
            Some(pid) => break pid,
            None if began.elapsed() > START => {
                say(&format!("`{domain}` did not start within {} s", START.as_secs()));
                return Ok(());
            }
            None => sleep(SOON),
        }
    };
    let mut known = Known::default();
    let mut last_error = String::new();
    while still_runs(kernel, pid, &placement.uuid) {
        // A thread or an interrupt that ends while it is read is no reason to end; the same trouble is told once.
        let new = known.round(kernel, pid, placement, &functions).unwrap_or_else(|error| {
            let error = error.to_string();
            if error != last_error {
                say(&format!("`{domain}`: {error}"));
                last_error = error;
            }
            Pins::default()
        });
        if !new.is_empty() {
            // Taken back meanwhile, or planned anew: this is not what is in force any more.
            if journal.plan_at_start(domain)?.as_ref() != Some(&plan) {
                say(&format!("the plan of `{domain}` is no longer in force"));
                return Ok(());
            }
            match set(kernel, pid, &new) {
                Ok(()) => say(&format!("`{domain}`: {new}: done, read back")),
                Err(error) => say(&format!("`{domain}`: {new}: {error}")),
            }
        }
        if placement.interrupts.is_empty() && began.elapsed() > WORKERS {
            return Ok(());
        }
        sleep(if began.elapsed() < BOOT { SOON } else { LATER });
    }
    Ok(())
}

/// Whether the process is still that of the guest: one file, where looking for it would read those of all processes. That
/// of a process that has ended is empty.
fn still_runs(kernel: &dyn Kernel, pid: u32, uuid: &str) -> bool {
    let line = kernel.read(&format!("/proc/{pid}/cmdline")).ok().flatten();
    line.is_some_and(|line| line.to_ascii_lowercase().contains(&uuid.to_ascii_lowercase()))
}

fn wanted<'a>(plan: &'a PlanFile, domain: &str) -> Option<(&'a Placement, Vec<PciAddress>)> {
    let placement = plan.placement(domain).filter(|placement| placement.needs_hook())?;
    let change = plan.domains.iter().find(|change| change.name == domain)?;
    Some((placement, functions(change, placement)))
}

/// What has been set before, or was as planned when it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Known {
    workers: BTreeSet<u32>,
    interrupts: BTreeSet<(PciAddress, u32)>,
}

impl Known {
    /// What is to be set now: workers and interrupts that are new, and interrupts that have the kernel's default mask,
    /// which they have after a restart too quick to be seen.
    pub(crate) fn round(
        &mut self,
        kernel: &dyn Kernel,
        pid: u32,
        placement: &Placement,
        functions: &[PciAddress],
    ) -> Result<Pins, ChangeError> {
        let mut now = BTreeSet::new();
        for function in functions {
            now.extend(interrupts(kernel, *function)?.into_iter().map(|number| (*function, number)));
        }
        let (_, mut new) = differences(kernel, pid, placement, functions)?;
        new.workers.retain(|pin| !self.workers.contains(&pin.thread));
        new.interrupts
            .retain(|pin| !self.interrupts.contains(&(pin.function, pin.number)) || has_default_mask(kernel, pin));
        self.workers = kernel.vhost_workers(pid)?.into_iter().map(|(thread, _)| thread).collect();
        self.interrupts = now;
        Ok(new)
    }
}

/// Whether an interrupt has the mask the kernel gives a new one: all PUs it may use, or those of the function's node.
fn has_default_mask(kernel: &dyn Kernel, pin: &InterruptPin) -> bool {
    let read = |path: &str| kernel.read(path).ok().flatten().map(|text| text.trim().to_owned());
    let (default, number) = (read("/proc/irq/default_smp_affinity"), pin.number);
    let near = read(&format!("/sys/bus/pci/devices/{}/local_cpulist", pin.function));
    (default.is_some() && read(&format!("/proc/irq/{number}/smp_affinity")) == default)
        || (near.is_some() && read(&format!("/proc/irq/{number}/smp_affinity_list")) == near)
}
