//! A function from the host to a running guest and back again: what each step does, and how it is read back.

use std::time::Duration;

use nearmetal_change::devices::{BoundDriver, Card, DriverState, VFIO_PCI, hand_to};
use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Definition, Hypervisor, HypervisorError, agent};
use nearmetal_units::PciAddress;

use super::nvme::{LIST_IN_GUEST, Namespace, device_in_guest};
use crate::error::MeasureError;

/// The host's driver of NVMe drives.
const NVME: &str = "nvme";
/// How long a small command in the guest may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a guest may take to let go of the function, and to find it again.
pub(super) const PLUG_PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);

/// Binds a function to the host's driver.
pub(super) fn to_host(fs: &HostFs, card: &Card) -> Result<(), MeasureError> {
    Ok(hand_to(fs, card, &DriverState { bound: BoundDriver::Named(NVME.to_owned()), only: None })?)
}

/// Binds a function to VFIO.
pub(super) fn to_vfio(fs: &HostFs, card: &Card) -> Result<(), MeasureError> {
    Ok(hand_to(fs, card, &DriverState::only(VFIO_PCI))?)
}

/// The namespace on the host, once its driver has it: the one it was, by number and size.
pub(super) fn on_the_host(fs: &HostFs, card: &Card, namespace: &Namespace) -> Result<String, MeasureError> {
    let found = Namespace::find(fs, card.function, Some(namespace.id))?;
    // Kernels may give it another name each time; another size is another namespace.
    if found.size != namespace.size {
        return Err(MeasureError::Unfit(format!(
            "namespace {} of {} is {} now and was {}",
            found.id, card.function, found.size, namespace.size
        )));
    }
    Ok(format!("/dev/{}", found.device))
}

/// The function as the kernel has it now: driver, IOMMU group, how its DMA is translated.
pub(super) fn read_back(fs: &HostFs, function: PciAddress) -> String {
    let directory = format!("/sys/bus/pci/devices/{function}");
    let unknown = || "unknown".to_owned();
    let driver = fs.link_name(&format!("{directory}/driver")).unwrap_or_else(|_| unknown());
    let group = fs.link_name(&format!("{directory}/iommu_group")).unwrap_or_else(|_| unknown());
    let domain = fs.read(&format!("{directory}/iommu_group/type")).unwrap_or_else(|_| unknown());
    // The group's own file tells the host's domain, also while VFIO has put the group into one of its own.
    let domain = match driver.as_str() {
        VFIO_PCI => format!("VFIO's own (the host's is {})", domain.trim()),
        _ => domain.trim().to_owned(),
    };
    format!("{function}: driver {driver}, IOMMU group {group}, DMA domain {domain}")
}

/// The element that hands the function through; `None` where the guest does not have it.
pub(super) fn element_of(xml: &str, function: PciAddress) -> Result<Option<String>, DomainError> {
    DomainXml::parse(xml)?.function_element(function)
}

fn wrap(name: &str) -> impl Fn(HypervisorError) -> MeasureError + use<> {
    let arm = name.to_owned();
    move |source| MeasureError::Hypervisor { arm: arm.clone(), source }
}

/// Unplugs the function from a paused clone, and whether it let go in time; it is paused again if it did.
pub(super) fn unplug(
    hypervisor: &mut dyn Hypervisor,
    clone: &str,
    function: PciAddress,
    element: &str,
) -> Result<bool, MeasureError> {
    let wrap = wrap(clone);
    hypervisor.resume(clone).map_err(&wrap)?;
    // Refused also where an earlier try took effect late: then it is gone.
    let asked = hypervisor.detach_device(clone, element).is_ok();
    let deadline = hypervisor.now() + PLUG_PATIENCE;
    loop {
        let xml = hypervisor.domain_xml(clone, Definition::Live).map_err(&wrap)?;
        if element_of(&xml, function).is_ok_and(|element| element.is_none()) {
            hypervisor.suspend(clone).map_err(&wrap)?;
            return Ok(true);
        }
        if !asked || hypervisor.now() >= deadline {
            return Ok(false);
        }
        hypervisor.pause(LOOK);
    }
}

/// A running guest's block device of the namespace, once it has found it.
pub(super) fn in_the_guest(
    hypervisor: &mut dyn Hypervisor,
    clone: &str,
    function: PciAddress,
    namespace: &Namespace,
) -> Result<String, MeasureError> {
    let deadline = hypervisor.now() + PLUG_PATIENCE;
    loop {
        let output = agent::exec(hypervisor, clone, &["sh", "-c", LIST_IN_GUEST], None, PATIENCE);
        let listed = String::from_utf8_lossy(&output.map_err(wrap(clone))?.stdout).into_owned();
        if let Some(device) = device_in_guest(&listed, namespace.id) {
            return Ok(device);
        }
        if hypervisor.now() >= deadline {
            return Err(MeasureError::Unfit(format!(
                "`{clone}` does not see namespace {} of {function}; it sees: {}",
                namespace.id,
                listed.split_whitespace().collect::<Vec<_>>().join(", ")
            )));
        }
        hypervisor.pause(LOOK);
    }
}
