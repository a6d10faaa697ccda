//! From what is asked of a card's virtual functions to the change it takes, and everything that is in its way.

use std::collections::BTreeMap;
use std::path::Path;

use nearmetal_host::assignable::{guest_of, uses};
use nearmetal_host::ledger::Ledger;
use nearmetal_host::{Host, PciDevice};
use nearmetal_units::PciAddress;

use super::{DevicePlan, card, driver, ip, nvme, set_aside};
use crate::ChangeError;
use crate::change::Change;
use crate::device_state::{BoundDriver, DriverState, NetworkSettings, NvmeResources, Rate, VfSettings, VfState, Vlan};
use crate::journal::Journal;
use crate::machine::Machine;
use crate::steps::boot_unit_change;

/// The largest VLAN number there is; 4095 is reserved (IEEE 802.1Q).
const LAST_VLAN: u32 = 4094;

/// What is asked for. What is `None` stays as it is, or as a new function has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VfRequest {
    /// How many there shall be.
    pub count: u32,
    /// MAC addresses: VF N gets this one plus N.
    pub macs: Option<Macs>,
    /// VLANs.
    pub vlans: Option<Vlans>,
    /// Whether the card drops packets with another address than the function's own.
    pub spoof_check: Option<bool>,
    /// Whether they may change their address and listen to all.
    pub trust: Option<bool>,
    /// The most each may send, in Mbit/s; 0 for no limit.
    pub max_rate: Option<u32>,
    /// Whether the host's drivers take new ones.
    pub autoprobe: Option<bool>,
    /// Whether the boot unit makes them again.
    pub persist: bool,
}

/// The address of VF 0; the others count up from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Macs(u64);

/// VLANs: one for all, or those of some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vlans {
    /// All in this one; 0 for none.
    All(u32),
    /// These, by number of the function.
    Each(BTreeMap<u32, u32>),
}

impl Macs {
    fn of(self, number: u32) -> Option<String> {
        let value = self.0.checked_add(u64::from(number)).filter(|value| *value < 1 << 48)?;
        Some(value.to_be_bytes()[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
    }
}

impl std::str::FromStr for Macs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a MAC address: write six bytes such as 02:00:00:00:01:00");
        let bytes: Vec<&str> = text.split(':').collect();
        let is_byte = |byte: &&str| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
        if bytes.len() != 6 || !bytes.iter().all(is_byte) {
            return Err(wrong());
        }
        let value = u64::from_str_radix(&bytes.concat(), 16).map_err(|_| wrong())?;
        if (value >> 40) & 1 == 1 {
            return Err(format!(
                "`{text}` is a multicast address (its first byte is odd): a card's address starts with an even byte, \
                 such as 02"
            ));
        }
        if value == 0 {
            return Err(format!("`{text}` is not an address: leave it out, and guests choose their own"));
        }
        Ok(Self(value))
    }
}

impl std::str::FromStr for Vlans {
    type Err = String;

    /// `7`, or `0=7,2=9`.
    fn from_str(text: &str) -> Result<Self, String> {
        let vlan = |word: &str| {
            let id = word.parse().ok().filter(|id| *id <= LAST_VLAN);
            id.ok_or_else(|| format!("`{word}` is not a VLAN: write a number from 1 to {LAST_VLAN}, or 0 for none"))
        };
        if !text.contains('=') {
            return vlan(text).map(Self::All);
        }
        let mut each = BTreeMap::new();
        for pair in text.split(',') {
            let (number, id) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not VF=VLAN, such as 0=7"))?;
            let number = number.parse().map_err(|_| format!("`{number}` is not the number of a virtual function"))?;
            if each.insert(number, vlan(id)?).is_some() {
                return Err(format!("`{text}` names VF {number} twice"));
            }
        }
        Ok(Self::Each(each))
    }
}

impl Vlans {
    fn of(&self, number: u32) -> Option<u32> {
        match self {
            Self::All(id) => Some(*id),
            Self::Each(each) => each.get(&number).copied(),
        }
    }
}

impl VfRequest {
    fn sets_rows(&self) -> bool {
        self.macs.is_some()
            || self.vlans.is_some()
            || self.spoof_check.is_some()
            || self.trust.is_some()
            || self.max_rate.is_some()
    }
}

/// What would be done now. Changes nothing. `state` is where the journal lies.
///
/// # Errors
/// [`ChangeError::Preconditions`] with everything in the way; or the machine cannot be asked.
pub fn plan_virtual_functions(
    machine: &Machine<'_>,
    host: &Host,
    ledger: &Ledger,
    function: PciAddress,
    request: &VfRequest,
    state: &Path,
) -> Result<DevicePlan, ChangeError> {
    let device = check_card(host, function, request)?;
    let kernel = machine.kernel;
    let old = card::read(kernel, function)?;
    let interface = card::interface(kernel, function)?;
    let controller = card::controller(kernel, function)?;
    let mut problems = Vec::new();
    if request.sets_rows() && interface.is_none() {
        problems.push(format!(
            "{function} (driver `{}`) has no network interface: only network cards take a MAC, VLAN, spoof check, \
             trust or rate",
            device.driver.as_deref().unwrap_or("no driver")
        ));
    }
    check_numbers(request, &mut problems);
    let remade = old.count() != request.count;
    if remade {
        in_use(machine, host, ledger, function, &mut problems)?;
    }
    if !problems.is_empty() {
        return Err(ChangeError::Preconditions { problems });
    }
    let share = match &controller {
        Some(controller) if request.count > 0 && (remade || !old.functions.iter().all(is_dealt)) => {
            Some(nvme::fair_share(kernel, controller, request.count)?)
        }
        _ => None,
    };
    let autoprobe = request.autoprobe.or(old.autoprobe);
    let mut own = old.clone();
    // Whoever may not read the journal may only look.
    let bound = set_aside(kernel, &Journal::at(state).transactions().unwrap_or_default(), &machine.boot_id);
    for (settings, function) in own.functions.iter_mut().zip(card::addresses(kernel, function)?) {
        // libvirt has bound it for that guest alone, which no boot has to make again.
        let is_lent = guest_of(ledger, function).is_some() || driver::lent_through(kernel, function)?.is_some();
        if is_lent && !bound.contains(&function) {
            settings.driver = driver_of_new(autoprobe);
        }
    }
    let functions =
        (0..request.count).map(|number| wanted(&own, request, number, autoprobe, interface.is_some(), share)).collect();
    let new = VfState { autoprobe, functions };
    let mut changes = Vec::new();
    let now = card::but_for_others(kernel, function, &new, &old, None)?;
    if now.difference(&old).is_some() || request.persist {
        let card = driver::card(kernel, function)?;
        let persist = request.persist;
        changes.push(Change::VirtualFunctions { card, old: Box::new(old.clone()), new: Box::new(new), persist });
        changes.extend(boot_unit_change(machine, persist, state)?);
    }
    let notes = notes(machine, host, function, &old, request, interface.as_deref());
    Ok(DevicePlan { task: format!("{} virtual functions of {function}", request.count), changes, notes })
}

fn refused<T>(problem: String) -> Result<T, ChangeError> {
    Err(ChangeError::Preconditions { problems: vec![problem] })
}

/// A card that can have so many.
fn check_card<'a>(host: &'a Host, function: PciAddress, request: &VfRequest) -> Result<&'a PciDevice, ChangeError> {
    let Some(device) = host.pci_devices.iter().find(|device| device.address == function) else {
        return refused(format!("no PCI function {function} here: `nearmetal device list` shows what there is"));
    };
    if let Some(physical) = device.physical_function {
        return refused(format!("{function} is itself a virtual function of {physical}: name {physical}"));
    }
    let driver = device.driver.as_deref();
    let Some(sriov) = &device.sriov else {
        return refused(format!(
            "{function} has no SR-IOV (driver `{}`): the card lacks it, or the firmware has disabled it",
            driver.unwrap_or("none")
        ));
    };
    let Some(driver) = driver.filter(|driver| !driver.contains("vfio")) else {
        let why = driver.map_or("has no driver", |_| "is reserved for a guest (vfio-pci)");
        return refused(format!("{function} {why}, and only its own driver makes virtual functions: bind that first"));
    };
    if request.count > sriov.total_vfs {
        return refused(format!(
            "{function} can have {} virtual functions (sriov_totalvfs of driver `{driver}`), but {} were requested: \
             ask for fewer",
            sriov.total_vfs, request.count
        ));
    }
    Ok(device)
}

fn check_numbers(request: &VfRequest, problems: &mut Vec<String>) {
    if let Some(Vlans::Each(each)) = &request.vlans {
        for number in each.keys().filter(|number| **number >= request.count) {
            problems.push(format!("--vlan names VF {number}, but there are only {} (counted from 0)", request.count));
        }
    }
    let last = request.count.saturating_sub(1);
    if request.macs.is_some_and(|macs| macs.of(last).is_none()) {
        problems.push(format!(
            "--mac-base leaves no room for {} addresses: the last one would pass ff:ff:ff:ff:ff:ff",
            request.count
        ));
    }
}

/// Functions that would vanish, and who uses them.
fn in_use(
    machine: &Machine<'_>,
    host: &Host,
    ledger: &Ledger,
    function: PciAddress,
    problems: &mut Vec<String>,
) -> Result<(), ChangeError> {
    for (number, own) in card::addresses(machine.kernel, function)?.into_iter().enumerate() {
        let who = match (guest_of(ledger, own), uses(host, ledger, own).first()) {
            (Some(owner), _) => {
                Some(format!("the guest `{}` has it: shut the guest down or detach the function first", owner.name))
            }
            (None, Some(obstacle)) => Some(obstacle.to_string()),
            (None, None) => driver::user(machine.kernel, own)?,
        };
        problems.extend(who.map(|who| format!("VF {number} ({own}) would vanish while in use: {who}")));
    }
    Ok(())
}

/// Whether a drive has dealt a function what it needs, online or not.
fn is_dealt(settings: &VfSettings) -> bool {
    settings.nvme.is_some_and(|own| own.queues >= nvme::LEAST_QUEUES && own.interrupts > 0)
}

/// What drives a function that is made anew.
fn driver_of_new(autoprobe: Option<bool>) -> DriverState {
    match autoprobe {
        Some(false) => DriverState::none(),
        _ => DriverState { bound: BoundDriver::Kernels, only: None },
    }
}

/// One function as it is to be: as it was if it stays, with what was asked for.
fn wanted(
    old: &VfState,
    request: &VfRequest,
    number: u32,
    autoprobe: Option<bool>,
    is_network: bool,
    share: Option<NvmeResources>,
) -> VfSettings {
    let stays = old.functions.get(number as usize);
    // An override names the driver whatever the card's own setting is; otherwise it decides, for those made anew.
    let remade = old.count() != request.count;
    let kept = stays
        .map(|settings| settings.driver.clone())
        .filter(|driver| driver.only.is_some() || !remade || request.autoprobe.is_none());
    let mut network = stays.and_then(|settings| settings.network.clone()).unwrap_or_default();
    let set = NetworkSettings {
        mac: request.macs.and_then(|macs| macs.of(number)),
        vlan: request.vlans.as_ref().and_then(|vlans| vlans.of(number)).map(|id| Vlan { id, ..Vlan::default() }),
        spoof_check: request.spoof_check,
        trust: request.trust,
        rate: request.max_rate.map(|max| Rate { max, min: network.rate.map_or(0, |rate| rate.min) }),
        link_state: None,
    };
    network = NetworkSettings {
        mac: set.mac.or(network.mac),
        vlan: set.vlan.or(network.vlan),
        spoof_check: set.spoof_check.or(network.spoof_check),
        trust: set.trust.or(network.trust),
        rate: set.rate.or(network.rate),
        link_state: network.link_state,
    };
    // What was dealt stays, and comes online again; another number of functions shares anew.
    let own = stays.filter(|settings| !remade && is_dealt(settings)).and_then(|settings| settings.nvme);
    let nvme = own.map(|own| NvmeResources { online: true, ..own }).or(share);
    let driver = kept.unwrap_or_else(|| driver_of_new(autoprobe));
    VfSettings { driver, network: is_network.then_some(network), nvme }
}

fn notes(
    machine: &Machine<'_>,
    host: &Host,
    function: PciAddress,
    old: &VfState,
    request: &VfRequest,
    interface: Option<&str>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if old.count() > 0 && request.count > 0 && old.count() != request.count {
        notes.push(format!(
            "the kernel goes from {} to {} through 0: all virtual functions of {function} vanish for a moment; those \
             that stay get their settings back",
            old.count(),
            request.count
        ));
    }
    if let Some(interface) = interface.filter(|_| request.count > 0) {
        if !ip::has_link(machine.kernel, interface) {
            notes.push(format!(
                "`{interface}` has no link, so its virtual functions carry no packets until it does \
                (`ip link set {interface} up`)"
            ));
        }
    }
    let routed = uses(host, &Ledger::default(), function)
        .into_iter()
        .any(|obstacle| matches!(obstacle, nearmetal_host::assignable::Obstacle::DefaultRoute { .. }));
    if routed && old.count() != request.count {
        notes.push(format!("the host's default route uses {function}: some drivers take the link down for a moment"));
    }
    let no_macs = interface.is_some() && request.count > old.count() && request.macs.is_none();
    if no_macs {
        notes.push(
            "new virtual functions have no fixed MAC address: each guest makes one up at every start \
            (--mac-base sets them)"
                .to_owned(),
        );
    }
    if !request.persist && request.count > 0 {
        notes.push("a reboot removes virtual functions (--persist makes them again)".to_owned());
    }
    notes
}
