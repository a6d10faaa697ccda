//! A virtual function (VF) of a port for one guest alone: chosen, read back, given back.
//!
//! libvirt takes it from the host's driver when the guest starts, and gives it back when the guest ends (`managed='yes'`). What it was
//! before is written into the reservation, so that it goes back to that in any case: whoever ends the run, or the next run.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use nearmetal_change::devices::{self, BoundDriver, Card, DriverState, function_now, hand_to, vfio_files};
use nearmetal_change::{ChangeError, Kernel};
use nearmetal_host::assignable::{Assignable, Obstacle};
use nearmetal_host::{HostFs, guests};
use nearmetal_units::PciAddress;
use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::flavour::{Flavour, Network};
use crate::reservation::{Claim, Reservation};

/// So often is looked whether libvirt has given functions back, before the kernel is told to.
const LOOKS: u32 = 20;
/// The same of what dead runs had, while others wait.
pub(crate) const LOOKS_OF_DEAD: u32 = 6;
/// Functions that a refusal names at most.
const NAMED: usize = 8;

/// A function that a run has, and what it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lent {
    /// Its address.
    pub function: PciAddress,
    /// Vendor and device id, `0x8086:0x10ca`: another device in its place is left alone.
    pub id: String,
    /// The driver it had; `None` for none.
    pub driver: Option<String>,
    /// The only driver that may take it (`driver_override`).
    pub only: Option<String>,
}

impl Lent {
    /// A function as it is now.
    ///
    /// # Errors
    /// It does not exist, or the kernel does not say.
    pub fn now(kernel: &dyn Kernel, function: PciAddress) -> Result<Self, RunError> {
        let (Card { id, .. }, DriverState { bound, only }) = function_now(kernel, function)?;
        let driver = if let BoundDriver::Named(name) = bound { Some(name) } else { None };
        Ok(Self { function, id, driver, only })
    }

    /// One that is only counted.
    pub(crate) fn nothing_known(function: PciAddress) -> Self {
        Self { function, id: String::new(), driver: None, only: None }
    }

    fn before(&self) -> DriverState {
        let bound = self.driver.clone().map_or(BoundDriver::None, BoundDriver::Named);
        DriverState { bound, only: self.only.clone() }
    }
}

/// The function that a guest of this flavour gets: of those that nobody has, the one with the lowest address. `None` for a flavour
/// without one. Pure: the same candidates and the same others give the same function.
///
/// # Errors
/// All of them are taken: by whom each.
pub fn choose(
    flavour: &Flavour,
    functions: &[Assignable],
    others: &[Reservation],
) -> Result<Option<PciAddress>, RunError> {
    let Network::Function(port) = &flavour.network else { return Ok(None) };
    let card = functions.iter().find(|one| one.virtual_functions.is_some() && one.names.contains(port));
    let is_own = |one: &&Assignable| card.is_some_and(|card| one.virtual_of.is_some_and(|of| of.0 == card.function));
    let mut own: Vec<&Assignable> = functions.iter().filter(is_own).collect();
    own.sort_by_key(|one| one.function);
    let mut taken = Vec::new();
    for one in own {
        match taken_by(one, functions, others) {
            None => return Ok(Some(one.function)),
            Some(why) => taken.push(format!("{}: {why}", one.function)),
        }
    }
    let more = taken.len().saturating_sub(NAMED);
    taken.truncate(NAMED);
    if more > 0 {
        taken.push(format!("and {more} more"));
    }
    Err(RunError::NoFunction { flavour: flavour.name.clone(), port: port.clone(), taken: taken.join("; ") })
}

/// Notes of each virtual function that seems free who has it whom drives, interfaces and open files do not show: a guest that starts, a
/// process that is none, another network namespace. `set_aside`: functions that VFIO drives because nearmetal was told so; of any
/// other that it drives nobody here knows for whom.
pub fn note_users(kernel: &dyn Kernel, functions: &mut [Assignable], set_aside: &BTreeSet<PciAddress>) {
    for one in functions.iter_mut().filter(|one| one.virtual_of.is_some() && one.is_free()) {
        let by = user(kernel, one.function, set_aside.contains(&one.function));
        one.obstacles.extend(by.map(|by| Obstacle::Used { by }));
    }
}

fn user(kernel: &dyn Kernel, function: PciAddress, is_set_aside: bool) -> Option<String> {
    let known = || -> Result<Option<String>, ChangeError> {
        if let Some(guest) = kernel.holder(function, &vfio_files(kernel, function)?)? {
            return Ok(Some(format!("the guest `{guest}` has it, or is about to")));
        }
        if let Some(user) = devices::user(kernel, function)? {
            return Ok(Some(user));
        }
        let (_, DriverState { bound, .. }) = function_now(kernel, function)?;
        let interfaces = kernel.list(&format!("/sys/bus/pci/devices/{function}/net"))?;
        Ok(match bound {
            BoundDriver::Named(name) if name.contains("vfio") => (!is_set_aside)
                .then(|| format!("`{name}` drives it, and `nearmetal device bind` did not set it aside: a guest's, or on its way back")),
            BoundDriver::Named(name) if interfaces.is_empty() => {
                Some(format!("`{name}` drives it, and its interface is in another network namespace"))
            }
            _ => None,
        })
    };
    known().unwrap_or_else(|error| Some(error.to_string()))
}

/// Why a function cannot be had, in a few words; `None` for one that can.
fn taken_by(one: &Assignable, functions: &[Assignable], others: &[Reservation]) -> Option<String> {
    let run = |function: PciAddress| others.iter().find(|other| other.has(function));
    if let Some(run) = run(one.function) {
        return Some(format!("the run `{}` (process {}) has it", run.name, run.pid));
    }
    if let Some(guest) = &one.guest {
        return Some(format!("the guest `{}` has it", guest.name.escape_debug()));
    }
    if let Some(obstacle) = one.obstacles.first() {
        return Some(obstacle.to_string());
    }
    // A group has one owner, whichever of its functions that one uses.
    let group = one.group?;
    let beside = functions.iter().filter(|other| other.group == Some(group) && other.function != one.function);
    let mut beside = beside.filter_map(|other| {
        let run = run(other.function).map(|run| &run.name);
        run.or(other.guest.as_ref().map(|guest| &guest.name)).map(|name| (other.function, name))
    });
    beside.next().map(|(function, name)| format!("`{name}` has {function}, which shares its IOMMU group {group}"))
}

/// Compares the functions of a guest with the kernel's word: each is driven by VFIO, and the guest's QEMU has it open behind an IOMMU.
///
/// # Errors
/// Each that differs, or cannot be seen.
pub fn read_back(fs: &HostFs, uuid: &str, lent: &[Lent]) -> Result<(), Vec<String>> {
    if lent.is_empty() {
        return Ok(());
    }
    let open = || {
        let pid = guests::own_pid_of(fs, uuid).map_err(|error| error.to_string())?;
        let pid = pid.ok_or_else(|| "that the guest has no QEMU process".to_owned())?;
        let open = guests::open_files(fs, pid).map_err(|error| error.to_string())?;
        Ok((pid, open.into_iter().map(|file| file.target).collect::<Vec<_>>()))
    };
    let open: Result<(u32, Vec<String>), String> = open();
    let wrong: Vec<String> = lent.iter().flat_map(|lent| differences(fs, lent.function, &open)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn differences(fs: &HostFs, function: PciAddress, open: &Result<(u32, Vec<String>), String>) -> Vec<String> {
    let told = |planned: &str, found: String| format!("PCI function {function}: planned {planned}, found {found}");
    let mut wrong = Vec::new();
    // Cards with drivers of their own for handing through say so in the name: mlx5_vfio_pci.
    let found = match function_now(fs, function) {
        Ok((_, DriverState { bound: BoundDriver::Named(name), .. })) if name.contains("vfio") => None,
        Ok((_, DriverState { bound, .. })) => Some(DriverState { bound, only: None }.to_string()),
        Err(error) => Some(error.to_string()),
    };
    wrong.extend(found.map(|found| told("driver vfio-pci", found)));
    let files = vfio_files(fs, function).map_err(|error| error.to_string());
    let held = open.as_ref().map_err(Clone::clone).and_then(|(pid, open)| match files {
        Err(why) => Err(why),
        Ok(files) if files.is_empty() => Err("that it is in no IOMMU group".to_owned()),
        Ok(files) => {
            let held = open.iter().find(|file| files.contains(file));
            held.ok_or_else(|| format!("that process {pid} has not opened {}", files[0]))
        }
    });
    match held {
        Ok(file) if file.contains("noiommu") => wrong.push(told("an IOMMU", format!("{file}, without one"))),
        Ok(_) => {}
        Err(why) => wrong.push(told("open in the guest's QEMU", why)),
    }
    wrong
}

/// Gives functions back whose guest is gone: waits until libvirt has done it, and does it where libvirt does not. `patience`: between
/// two looks. A function that is given back is no longer in the claim; one that another guest has by now is that guest's.
///
/// # Errors
/// A process holds a function still, no driver takes it, or the claim cannot be written: what is still in it can be tried again.
pub fn give_back(kernel: &dyn Kernel, claim: &mut Claim, patience: Duration) -> Result<(), RunError> {
    give_back_in(kernel, claim, &BTreeSet::new(), patience, &mut LOOKS.clone())
}

/// The same with so many looks for all that is given back, some time after the guest. What VFIO drives of `set_aside` its owner has
/// bound since.
pub(crate) fn give_back_in(
    kernel: &dyn Kernel,
    claim: &mut Claim,
    set_aside: &BTreeSet<PciAddress>,
    patience: Duration,
    looks: &mut u32,
) -> Result<(), RunError> {
    while let Some(lent) = claim.reservation().functions.last().cloned() {
        let is_set_aside = set_aside.contains(&lent.function);
        one_back(kernel, &claim.reservation().uuid, &lent, is_set_aside, (patience, &mut *looks)).map_err(|error| {
            RunError::NotGivenBack { what: format!("the function {}", lent.function), reason: error.to_string() }
        })?;
        claim.amend(|own| own.functions.truncate(own.functions.len().saturating_sub(1)))?;
    }
    Ok(())
}

fn one_back(
    kernel: &dyn Kernel,
    uuid: &str,
    lent: &Lent,
    is_set_aside: bool,
    (patience, looks): (Duration, &mut u32),
) -> Result<(), ChangeError> {
    let card = Card { function: lent.function, id: lent.id.clone() };
    let before = lent.before();
    // Its owner has bound it since: nobody gives it back.
    while *looks > 0 && !patience.is_zero() && !is_set_aside {
        match function_now(kernel, lent.function) {
            Ok((found, now)) if found == card && now.bound != before.bound => sleep(patience),
            _ => break,
        }
        *looks -= 1;
    }
    // Another device in its place is nobody's to give back; of one that was removed `hand_to` sees that it is gone.
    if function_now(kernel, lent.function).is_ok_and(|(found, _)| found != card) {
        return Ok(());
    }
    if let Some(pid) = kernel.guest(uuid)? {
        return Err(ChangeError::Kernel(format!("its guest still runs: end process {pid}")));
    }
    if kernel.holder(lent.function, &vfio_files(kernel, lent.function)?)?.is_some() {
        return Ok(());
    }
    // What is neither as before nor as libvirt leaves it, somebody wants so: another driver, or none where the card has none found for
    // new functions.
    if let Ok((_, now)) = function_now(kernel, lent.function) {
        let probes = format!("/sys/bus/pci/devices/{}/physfn/sriov_drivers_autoprobe", lent.function);
        let somebodys = match &now.bound {
            BoundDriver::Named(name) => now.bound != before.bound && (!name.contains("vfio") || is_set_aside),
            _ => now.bound != before.bound && kernel.read(&probes)?.is_some_and(|text| text.trim() == "0"),
        };
        if somebodys {
            return Ok(());
        }
    }
    hand_to(kernel, &card, &before)
}

#[cfg(test)]
mod tests;
