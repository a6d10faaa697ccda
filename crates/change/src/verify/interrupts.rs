//! Interrupts of devices: which PUs the kernel delivers them to.

use nearmetal_host::HostFs;
use nearmetal_units::{CpuSet, PciAddress};

use super::{Check, CheckKind};
use crate::kernel::Kernel;

/// One interrupt of a function, on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedInterrupt {
    /// Its number.
    pub number: u32,
    /// PUs it is delivered to; `None` where the kernel does not tell (one nobody has switched on).
    pub effective: Option<CpuSet>,
    /// PUs it may be delivered to.
    pub allowed: Option<CpuSet>,
}

impl ObservedInterrupt {
    /// Where it goes: what is in effect, else what is allowed.
    fn cpus(&self) -> Option<&CpuSet> {
        self.effective.as_ref().or(self.allowed.as_ref())
    }
}

/// The interrupts of a drive that the host itself drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveInterrupts {
    /// The drive.
    pub function: PciAddress,
    /// Its driver.
    pub driver: Option<String>,
    /// Its interrupts.
    pub interrupts: Vec<ObservedInterrupt>,
}

/// The message-signalled interrupts of a function (Documentation/ABI/testing/sysfs-bus-pci, msi_irqs). None where it has
/// switched none on.
pub(super) fn of_function(kernel: &dyn Kernel, function: PciAddress) -> Result<Vec<ObservedInterrupt>, String> {
    let numbers = crate::after_start::interrupts(kernel, function).map_err(|error| error.to_string())?;
    let set = |number: u32, file: &str| {
        let text = kernel.read(&format!("/proc/irq/{number}/{file}")).ok().flatten()?;
        text.trim().parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty())
    };
    let one = |number: u32| ObservedInterrupt {
        number,
        effective: set(number, "effective_affinity_list"),
        allowed: set(number, "smp_affinity_list"),
    };
    Ok(numbers.into_iter().map(one).collect())
}

/// The interrupts of the drive behind a block device, `nvme0n1`; `None` for one that is no PCI drive.
pub(super) fn of_drive(files: &HostFs, device: &str) -> Option<DriveInterrupts> {
    let place = files.resolve(&format!("/sys/class/block/{device}")).ok()?;
    // A namespace with several ways to it lies under its subsystem, which leads to the controllers.
    let place = match place.split_once("/nvme-subsystem/") {
        None => place,
        Some((before, rest)) => {
            let subsystem = format!("{before}/nvme-subsystem/{}", rest.split('/').next()?);
            let is_controller = |name: &String| {
                name.strip_prefix("nvme").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
            };
            let controller = HostFs::list(files, &subsystem).ok()?.into_iter().find(is_controller)?;
            files.resolve(&format!("{subsystem}/{controller}")).ok()?
        }
    };
    let function = place.rsplit('/').find_map(|part| part.parse::<PciAddress>().ok())?;
    let driver = files.link_name(&format!("/sys/bus/pci/devices/{function}/driver")).ok();
    Some(DriveInterrupts { function, driver, interrupts: of_function(files, function).ok()? })
}

/// Whether each interrupt of a passed function is delivered inside `planned`: one check that says so, or one for each that
/// is not.
pub(super) fn judge(
    function: PciAddress,
    planned: &CpuSet,
    seen: &Result<Vec<ObservedInterrupt>, String>,
) -> Vec<Check> {
    let subject = format!("interrupts of PCI function {function}");
    let wanted = format!("within PUs {planned}");
    let seen = match seen {
        Err(why) => return vec![Check::cannot_tell(CheckKind::Interrupt, subject, wanted, why)],
        Ok(seen) if seen.is_empty() => {
            let why = "none is enabled: the guest's driver has to do that";
            return vec![Check::cannot_tell(CheckKind::Interrupt, subject, wanted, why)];
        }
        Ok(seen) => seen,
    };
    let mut checks = Vec::new();
    for interrupt in seen {
        let subject = format!("interrupt {} of PCI function {function}", interrupt.number);
        let place = format!("/proc/irq/{}/effective_affinity_list", interrupt.number);
        match interrupt.cpus() {
            None => checks
                .push(Check::cannot_tell(CheckKind::Interrupt, subject, &wanted, "cannot read its affinity").at(place)),
            Some(cpus) if !cpus.is_subset(planned) => checks.push(
                Check::compared(CheckKind::Interrupt, subject, &wanted, format!("on PUs {cpus}"), false).at(place),
            ),
            Some(_) => {}
        }
    }
    if checks.is_empty() {
        checks.push(Check::compared(CheckKind::Interrupt, subject, wanted, told(seen), true).at("/proc/irq"));
    }
    checks
}

/// Where the interrupts of a host's NVMe drive are. Nothing is planned of them: the driver has the kernel deal them over
/// the PUs (managed interrupts, Linux 4.8 and later), and those refuse a mask.
pub(super) fn report(device: &str, seen: &DriveInterrupts) -> Option<Check> {
    if seen.driver.as_deref() != Some("nvme") || seen.interrupts.is_empty() {
        return None;
    }
    let subject = format!("interrupts of {device}'s drive ({})", seen.function);
    let planned = "where the kernel puts them (managed interrupts refuse a mask)";
    Some(Check::compared(CheckKind::Interrupt, subject, planned, told(&seen.interrupts), true).at("/proc/irq"))
}

fn told(interrupts: &[ObservedInterrupt]) -> String {
    let one = |interrupt: &ObservedInterrupt| match interrupt.cpus() {
        Some(cpus) => format!("{} on PUs {cpus}", interrupt.number),
        None => format!("{} unknown", interrupt.number),
    };
    interrupts.iter().map(one).collect::<Vec<_>>().join(", ")
}
