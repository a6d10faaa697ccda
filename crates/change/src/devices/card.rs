//! The virtual functions of a card: found, changed, read back.
//!
//! Documentation/PCI/pci-iov-howto.rst: a count other than 0 changes through 0 alone, so all functions vanish and come
//! anew, as nobody has set them.

use nearmetal_units::PciAddress;

use super::driver::{directory, driver, lent_through, refuse_in_use, set_driver};
use super::{ip, nvme};
use crate::ChangeError;
use crate::device_state::{BoundDriver, DriverState, VfSettings, VfState};
use crate::kernel::{Kernel, required};

/// Functions a card can have at most by its own word: 16 bits.
const MOST: u32 = u16::MAX as u32;

/// The virtual functions as they are.
pub(crate) fn read(kernel: &dyn Kernel, card: PciAddress) -> Result<VfState, ChangeError> {
    let functions = addresses(kernel, card)?;
    let rows = match interface(kernel, card)? {
        Some(interface) if !functions.is_empty() => Some(ip::rows(kernel, &interface, functions.len())?),
        _ => None,
    };
    let dealt = match controller(kernel, card)? {
        Some(controller) if !functions.is_empty() => nvme::secondaries(kernel, &controller)?,
        _ => Vec::new(),
    };
    let mut state = VfState { autoprobe: autoprobe(kernel, card)?, functions: Vec::new() };
    for (number, function) in functions.iter().enumerate() {
        let dealt = dealt.iter().find(|secondary| secondary.number == number);
        state.functions.push(VfSettings {
            driver: driver(kernel, *function)?,
            network: rows.as_ref().and_then(|rows| rows.get(number).cloned()),
            nvme: dealt.map(|secondary| secondary.resources),
        });
    }
    Ok(state)
}

/// How many there are.
pub(crate) fn count(kernel: &dyn Kernel, card: PciAddress) -> Result<u32, ChangeError> {
    let path = format!("{}/sriov_numvfs", directory(card));
    let text = required(kernel, &path)?;
    let count = text.parse().ok().filter(|count| *count <= MOST);
    count.ok_or_else(|| {
        ChangeError::Kernel(format!(
            "`{path}` holds `{text}`, which is not a count of virtual \
        functions"
        ))
    })
}

/// Their addresses, by number.
pub(crate) fn addresses(kernel: &dyn Kernel, card: PciAddress) -> Result<Vec<PciAddress>, ChangeError> {
    (0..count(kernel, card)?)
        .map(|number| {
            let path = format!("{}/virtfn{number}", directory(card));
            let name = kernel.link_name(&path)?.unwrap_or_default();
            name.parse().map_err(|_| {
                ChangeError::Kernel(format!(
                    "`{path}` does not lead to a PCI function \
                (`{name}`)"
                ))
            })
        })
        .collect()
}

pub(super) fn autoprobe(kernel: &dyn Kernel, card: PciAddress) -> Result<Option<bool>, ChangeError> {
    let text = kernel.read(&format!("{}/sriov_drivers_autoprobe", directory(card)))?;
    Ok(text.map(|text| text.trim() == "1"))
}

/// The interface of a network card; the first of several ports that share a function.
pub(crate) fn interface(kernel: &dyn Kernel, card: PciAddress) -> Result<Option<String>, ChangeError> {
    Ok(kernel.list(&format!("{}/net", directory(card)))?.into_iter().next())
}

/// The controller of an NVMe drive, `nvme0`.
pub(crate) fn controller(kernel: &dyn Kernel, card: PciAddress) -> Result<Option<String>, ChangeError> {
    Ok(kernel.list(&format!("{}/nvme", directory(card)))?.into_iter().next())
}

/// Brings a card from whatever it has to what is wanted, and reads back.
///
/// New functions are made with drivers kept away: a driver that takes one before it has its address or its queues keeps
/// what it saw, or fails. Where none vanish, those that a guest has keep their driver: whoever lent them takes them back.
///
/// # Errors
/// A function that would vanish is in use, what the kernel, `ip` or `nvme` answered, or a setting that did not take.
pub(crate) fn bring(kernel: &dyn Kernel, card: PciAddress, wanted: &VfState) -> Result<(), ChangeError> {
    let found = read(kernel, card)?;
    let wanted = &but_for_others(kernel, card, wanted, &found, None)?;
    if wanted.difference(&found).is_none() {
        return Ok(());
    }
    let root = directory(card);
    if found.count() != wanted.count() {
        for function in addresses(kernel, card)? {
            refuse_in_use(kernel, function)?;
        }
        if found.autoprobe == Some(true) && wanted.count() > 0 {
            kernel.write(&format!("{root}/sriov_drivers_autoprobe"), "0")?;
        }
        let numbers = format!("{root}/sriov_numvfs");
        if found.count() > 0 {
            kernel.write(&numbers, "0")?;
        }
        if wanted.count() > 0 {
            kernel.write(&numbers, &wanted.count().to_string())?;
        }
    }
    set_rows(kernel, card, wanted)?;
    deal(kernel, card, wanted)?;
    if let Some(on) = wanted.autoprobe.filter(|on| autoprobe(kernel, card).is_ok_and(|found| found != Some(*on))) {
        kernel.write(&format!("{root}/sriov_drivers_autoprobe"), if on { "1" } else { "0" })?;
    }
    for (function, settings) in addresses(kernel, card)?.into_iter().zip(&wanted.functions) {
        set_vf_driver(kernel, function, &settings.driver)?;
    }
    match wanted.difference(&read(kernel, card)?) {
        None => Ok(()),
        Some((what, wanted, found)) => {
            Err(ChangeError::NotTaken { object: format!("{what} of {card}"), wanted, found })
        }
    }
}

/// What is wanted, but for what others have a say in by now, as long as no function vanishes: the driver of a function that a guest
/// has. With `bound`, the boot unit's word, the guest's function stays as it is found in all, and so do the drivers of those that were
/// bound on their own since.
pub(super) fn but_for_others(
    kernel: &dyn Kernel,
    card: PciAddress,
    wanted: &VfState,
    found: &VfState,
    bound: Option<&[PciAddress]>,
) -> Result<VfState, ChangeError> {
    let mut wanted = wanted.clone();
    if wanted.count() != found.count() {
        return Ok(wanted);
    }
    let functions = wanted.functions.iter_mut().zip(&found.functions);
    for (function, (own, found)) in addresses(kernel, card)?.into_iter().zip(functions) {
        let is_lent = lent_through(kernel, function)?.is_some();
        if is_lent && bound.is_some() {
            *own = found.clone();
        } else if is_lent || bound.is_some_and(|bound| bound.contains(&function)) {
            own.driver = found.driver.clone();
        }
    }
    Ok(wanted)
}

/// The host may lack a driver for its virtual functions: where the kernel chooses, none is an answer.
fn set_vf_driver(kernel: &dyn Kernel, function: PciAddress, wanted: &DriverState) -> Result<(), ChangeError> {
    set_driver(kernel, function, wanted).or_else(|error| match (&wanted.bound, &error) {
        (BoundDriver::Kernels, ChangeError::NotTaken { .. }) => Ok(()),
        _ => Err(error),
    })
}

fn set_rows(kernel: &dyn Kernel, card: PciAddress, wanted: &VfState) -> Result<(), ChangeError> {
    let Some(interface) = interface(kernel, card)? else { return Ok(()) };
    if wanted.functions.iter().all(|settings| settings.network.is_none()) {
        return Ok(());
    }
    let rows = ip::rows(kernel, &interface, wanted.functions.len())?;
    for (number, (settings, found)) in wanted.functions.iter().zip(&rows).enumerate() {
        for (setting, _) in settings.network.iter().flat_map(|network| network.missing(found)) {
            ip::set(kernel, &interface, number, &setting)?;
        }
    }
    Ok(())
}

fn deal(kernel: &dyn Kernel, card: PciAddress, wanted: &VfState) -> Result<(), ChangeError> {
    let Some(controller) = controller(kernel, card)? else { return Ok(()) };
    if wanted.functions.iter().all(|settings| settings.nvme.is_none()) {
        return Ok(());
    }
    let all = nvme::secondaries(kernel, &controller)?;
    for (number, settings) in wanted.functions.iter().enumerate() {
        let Some(resources) = settings.nvme else { continue };
        let now = all.iter().find(|secondary| secondary.number == number).ok_or_else(|| {
            ChangeError::Kernel(format!("`{controller}` lists no secondary controller for its VF {number}"))
        })?;
        nvme::deal(kernel, &controller, *now, resources)?;
    }
    Ok(())
}
