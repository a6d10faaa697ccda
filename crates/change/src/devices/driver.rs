//! The driver of a function: found, changed, read back.
//!
//! Documentation/ABI/testing/sysfs-bus-pci: `driver_override`, `driver/unbind`, `drivers_probe`. A function with an override
//! is taken by that driver alone, also where its card is set to leave its virtual functions alone.

use nearmetal_units::PciAddress;

use super::ip;
use crate::ChangeError;
use crate::device_state::{BoundDriver, Card, DriverState};
use crate::kernel::{Kernel, required};

/// The driver that hands functions to guests.
pub const VFIO_PCI: &str = "vfio-pci";

/// A function's directory.
pub(super) fn directory(function: PciAddress) -> String {
    format!("/sys/bus/pci/devices/{function}")
}

/// Vendor and device id as the kernel prints them.
pub(crate) fn card(kernel: &dyn Kernel, function: PciAddress) -> Result<Card, ChangeError> {
    let root = directory(function);
    let (vendor, device) = (required(kernel, &format!("{root}/vendor"))?, required(kernel, &format!("{root}/device"))?);
    Ok(Card { function, id: format!("{vendor}:{device}") })
}

/// Whether a function is there; an error if it is another one by now.
pub(crate) fn is_there(kernel: &dyn Kernel, expected: &Card) -> Result<bool, ChangeError> {
    let function = expected.function;
    if kernel.read(&format!("{}/vendor", directory(function)))?.is_none() {
        return Ok(false);
    }
    let found = card(kernel, function)?;
    if found.id == expected.id {
        return Ok(true);
    }
    Err(ChangeError::Kernel(format!(
        "{function} is now another device ({}; the journal says {}): left as it is",
        found.id, expected.id
    )))
}

/// What drives a function now.
pub(crate) fn driver(kernel: &dyn Kernel, function: PciAddress) -> Result<DriverState, ChangeError> {
    let root = directory(function);
    let bound = kernel.link_name(&format!("{root}/driver"))?.map_or(BoundDriver::None, BoundDriver::Named);
    let only = kernel.read(&format!("{root}/driver_override"))?.unwrap_or_default();
    let only = Some(only.trim()).filter(|only| !only.is_empty() && *only != "(null)").map(str::to_owned);
    Ok(DriverState { bound, only })
}

/// Gives a function another driver and reads it back. Looks first: what is so already is left alone.
///
/// # Errors
/// It is in use, no driver took it, or what the kernel answered.
pub(crate) fn set_driver(kernel: &dyn Kernel, function: PciAddress, wanted: &DriverState) -> Result<(), ChangeError> {
    let found = driver(kernel, function)?;
    if wanted.is_met_by(&found) && (wanted.bound != BoundDriver::Kernels || found.bound != BoundDriver::None) {
        return Ok(());
    }
    if let BoundDriver::Named(bound) = &found.bound {
        if wanted.bound != found.bound {
            refuse_in_use(kernel, function)?;
            kernel.write(&format!("/sys/bus/pci/drivers/{bound}/unbind"), &function.to_string())?;
        }
    }
    let is_bound = wanted.bound == found.bound;
    match &wanted.bound {
        BoundDriver::Named(name) if !is_bound => {
            if !is_registered(kernel, name)? {
                kernel.load_module(name)?;
            }
            // For the time of the binding only this one may take it, whatever else would.
            keep_for(kernel, function, Some(name))?;
            probe(kernel, function)?;
        }
        BoundDriver::Kernels => {
            keep_for(kernel, function, wanted.only.as_deref())?;
            probe(kernel, function)?;
        }
        _ => {}
    }
    keep_for(kernel, function, wanted.only.as_deref())?;
    let found = driver(kernel, function)?;
    if wanted.is_met_by(&found) {
        return Ok(());
    }
    Err(ChangeError::NotTaken {
        object: format!("the driver of {function}"),
        wanted: wanted.to_string(),
        found: found.to_string(),
    })
}

/// Whether the kernel has a driver of this name.
pub(crate) fn is_registered(kernel: &dyn Kernel, name: &str) -> Result<bool, ChangeError> {
    Ok(!kernel.list(&format!("/sys/bus/pci/drivers/{name}"))?.is_empty())
}

fn keep_for(kernel: &dyn Kernel, function: PciAddress, only: Option<&str>) -> Result<(), ChangeError> {
    if driver(kernel, function)?.only.as_deref() == only {
        return Ok(());
    }
    // An empty line takes the override away.
    kernel.write(&format!("{}/driver_override", directory(function)), only.unwrap_or("\n"))
}

fn probe(kernel: &dyn Kernel, function: PciAddress) -> Result<(), ChangeError> {
    let written = kernel.write("/sys/bus/pci/drivers_probe", &function.to_string());
    match written {
        // What a driver answers that does not want it is told by the read-back, which says more.
        Err(ChangeError::KernelWrite(_)) => Ok(()),
        other => other,
    }
}

/// Refuses to take a function from whoever uses it: unbinding vfio-pci under a guest waits until that guest is gone.
pub(crate) fn refuse_in_use(kernel: &dyn Kernel, function: PciAddress) -> Result<(), ChangeError> {
    match user(kernel, function)? {
        None => Ok(()),
        Some(user) => Err(ChangeError::Kernel(format!("cannot take {function} away: {user}"))),
    }
}

/// Files of VFIO through which a process can have a function: its group's, and since Linux 6.6 one of its own.
///
/// # Errors
/// The kernel does not say.
pub fn vfio_files(kernel: &dyn Kernel, function: PciAddress) -> Result<Vec<String>, ChangeError> {
    let root = directory(function);
    let group = kernel.link_name(&format!("{root}/iommu_group"))?.into_iter();
    let group = group.flat_map(|group| [format!("/dev/vfio/{group}"), format!("/dev/vfio/noiommu-{group}")]);
    let own = kernel.list(&format!("{root}/vfio-dev"))?;
    Ok(group.chain(own.iter().map(|name| format!("/dev/vfio/devices/{name}"))).collect())
}

/// The device of VFIO through which a guest or another process has a function; `None` if nobody does.
pub(super) fn lent_through(kernel: &dyn Kernel, function: PciAddress) -> Result<Option<String>, ChangeError> {
    let root = directory(function);
    let is_vfio = kernel.link_name(&format!("{root}/driver"))?.is_some_and(|driver| driver.contains("vfio"));
    let Some(group) = kernel.link_name(&format!("{root}/iommu_group"))?.filter(|_| is_vfio) else { return Ok(None) };
    let device = format!("/dev/vfio/{group}");
    Ok(kernel.is_held(&device)?.then_some(device))
}

/// Who uses a function, in words; `None` for nobody that can be seen here.
///
/// # Errors
/// The kernel does not say.
pub fn user(kernel: &dyn Kernel, function: PciAddress) -> Result<Option<String>, ChangeError> {
    let root = directory(function);
    if let Some(device) = lent_through(kernel, function)? {
        return Ok(Some(format!("a guest or another process holds `{device}`: stop it first (`fuser -v {device}`)")));
    }
    for interface in kernel.list(&format!("{root}/net"))? {
        let flags = kernel.read(&format!("{root}/net/{interface}/flags"))?.unwrap_or_default();
        // IFF_UP, include/uapi/linux/if.h.
        if ip::flag_bits(&flags).is_some_and(|bits| bits & 1 == 1) {
            return Ok(Some(format!("its interface `{interface}` is up: run `ip link set {interface} down` first")));
        }
    }
    Ok(None)
}
