//! PCI functions a guest is given: who drives them on the host, who holds them, where they are, behind which IOMMU domain,
//! and what the card of a virtual one says of it.

use nearmetal_domain::DomainFacts;
use nearmetal_host::guests::{self, OpenFile};
use nearmetal_host::{HostFs, ReadError};
use nearmetal_place::{FunctionKind, Placement};
use nearmetal_units::{CpuSet, PciAddress};

use super::observed::{ObservedCard, ObservedGroup};
use super::{Check, CheckKind, ObservedFunction, interrupts};
use crate::devices::link::Link;
use crate::devices::{NetworkSettings, card, ip, vfio_files};

/// A function that a guest is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) function: PciAddress,
    /// Node of the host it was chosen on.
    node: Option<u32>,
    /// Guest cell it is shown on.
    pub(super) cell: Option<u32>,
    /// What libvirt sets of it through its card.
    mac: Option<String>,
    vlan: Option<u32>,
}

/// The functions the plan gives, and those the stored definition hands through beside them.
pub(super) fn expected(placement: &Placement, stored: &Result<DomainFacts, String>) -> Vec<Expected> {
    let mut all: Vec<Expected> = Vec::new();
    for found in stored.iter().flat_map(|facts| &facts.functions) {
        let (function, cell) = (found.address, found.cell);
        let vlan = found.vlans.first().copied();
        all.push(Expected { function, node: None, cell, mac: found.mac.clone(), vlan });
    }
    for device in &placement.devices {
        let known = all.iter().position(|own| own.function == device.function).map(|at| all.remove(at));
        let (mut mac, mut vlan) = known.map_or((None, None), |own| (own.mac, own.vlan));
        if let FunctionKind::NetworkVirtual { mac: own, vlan: tag } = &device.kind {
            mac = own.map(|own| own.to_string()).or(mac);
            vlan = tag.map(|tag| u32::from(u16::from(tag))).or(vlan);
        }
        all.push(Expected { function: device.function, node: device.node, cell: device.cell, mac, vlan });
    }
    all
}

/// Looks at each function. Without a `pid` the guest is off, and nobody ought to hold them.
pub(super) fn look(files: &HostFs, pid: Option<u32>, expected: &[Expected]) -> Vec<ObservedFunction> {
    if expected.is_empty() {
        return Vec::new();
    }
    let open = pid.map(|pid| guests::open_files(files, pid).map_err(|error| error.to_string()));
    let open = open.unwrap_or_else(|| Ok(Vec::new()));
    expected.iter().map(|expected| look_at(files, pid, &open, expected.function)).collect()
}

fn look_at(
    files: &HostFs,
    pid: Option<u32>,
    open: &Result<Vec<OpenFile>, String>,
    function: PciAddress,
) -> ObservedFunction {
    let root = directory(function);
    let link = |name: &str| optional(files.link_name(&format!("{root}/{name}")));
    let present = files.exists(&root);
    let node = optional(files.read(&format!("{root}/numa_node"))).and_then(|text| match text {
        None => Err(format!("`{root}/numa_node` does not exist")),
        Some(text) => match text.trim().parse::<i64>() {
            Ok(number) => Ok(u32::try_from(number).ok()),
            Err(_) => Err(format!("`{root}/numa_node` holds `{}`, which is not a node", text.trim())),
        },
    });
    let group = link("iommu_group");
    let targets = vfio_files(files, function).map_err(|error| error.to_string());
    let held = targets.clone().and_then(|targets| Ok(among(open.as_ref().map_err(Clone::clone)?, &targets)));
    let holder = match (&held, &targets) {
        (Ok(None), Ok(targets)) => holder(files, pid, function, targets),
        _ => None,
    };
    let group = group.map(|group| {
        group.map(|number| {
            let domain = files.read(&format!("/sys/kernel/iommu_groups/{number}/type")).ok();
            ObservedGroup { number, domain: domain.map(|text| text.trim().to_owned()) }
        })
    });
    let word = |name: &str| {
        let text = files.read(&format!("{root}/{name}")).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    ObservedFunction {
        function,
        present,
        driver: link("driver"),
        node,
        held,
        holder,
        group,
        card: card_of(files, function),
        id: word("vendor").zip(word("device")),
        interrupts: interrupts::of_function(files, function),
    }
}

/// The descriptor's target that is one of these.
fn among(open: &[OpenFile], targets: &[String]) -> Option<String> {
    open.iter().find(|file| targets.contains(&file.target)).map(|file| file.target.clone())
}

/// The guest whose QEMU holds one of these files, or is about to: it opens them when its memory is there, which takes a while, and
/// names the function from the start. Not this one, and no process of a user who runs no guests.
pub(crate) fn holder(files: &HostFs, pid: Option<u32>, function: PciAddress, targets: &[String]) -> Option<String> {
    let others = guests::trusted(files).ok()?.into_iter().filter(|(other, _)| Some(*other) != pid);
    others.into_iter().find_map(|(other, line)| {
        let has = guests::open_files(files, other).is_ok_and(|open| among(&open, targets).is_some());
        if !has && !names(files, other, function) {
            return None;
        }
        let name = line.name.map(|name| name.escape_debug().to_string());
        Some(name.unwrap_or_else(|| format!("of process {other}")))
    })
}

/// Whether a QEMU is told to hand a function through: `host` of vfio-pci, as JSON or not.
fn names(files: &HostFs, pid: u32, function: PciAddress) -> bool {
    let line = files.read_bytes(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    line.contains(&format!("\"host\":\"{function}\"")) || line.contains(&format!("host={function}"))
}

/// The card of a virtual function, with its link and its row for it.
fn card_of(files: &HostFs, function: PciAddress) -> Option<ObservedCard> {
    let address: PciAddress = files.link_name(&format!("{}/physfn", directory(function))).ok()?.parse().ok()?;
    let interface = card::interface(files, address).ok().flatten()?;
    let link = Link::of(files, &interface);
    let functions = card::addresses(files, address).map_err(|error| error.to_string());
    let row = functions.and_then(|functions| {
        let number = functions.iter().position(|own| *own == function).ok_or("its card does not list it")?;
        let rows = ip::rows(files, &interface, functions.len()).map_err(|error| error.to_string())?;
        Ok((number, rows.into_iter().nth(number).unwrap_or_default()))
    });
    Some(ObservedCard { function: address, interface, link, row })
}

fn directory(function: PciAddress) -> String {
    format!("/sys/bus/pci/devices/{function}")
}

fn optional<T>(read: Result<T, ReadError>) -> Result<Option<T>, String> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The checks of each function of a running guest.
pub(super) fn judge(expected: &[Expected], interrupts: &CpuSet, seen: &[ObservedFunction]) -> Vec<Check> {
    expected
        .iter()
        .flat_map(|device| {
            let subject = subject(device.function);
            match seen.iter().find(|seen| seen.function == device.function) {
                Some(seen) => checks(device, seen, interrupts, &subject),
                None => vec![Check::cannot_tell(CheckKind::Function, subject, "given", "it was not looked at")],
            }
        })
        .collect()
}

/// Of a guest that is off: another one must not have its functions.
pub(super) fn judge_off(seen: &[ObservedFunction]) -> Vec<Check> {
    let taken = seen.iter().filter_map(|seen| Some((seen.function, seen.holder.as_ref()?)));
    taken
        .map(|(function, holder)| {
            let found = format!("held by the guest `{holder}`");
            Check::compared(CheckKind::Function, subject(function), "free for this guest", found, false)
        })
        .collect()
}

/// Of a function, and in a plan's parts.
fn subject(function: PciAddress) -> String {
    format!("PCI function {function}")
}

/// Found of a function that is gone.
const GONE: &str = "the machine has no such function: it was removed, or its card now has fewer virtual functions";
/// Begins what is found of one that another guest has.
const ANOTHERS: &str = "not held by QEMU: the guest";

/// Whether a mismatch is of what the guest's next start brings: it `waits` for this function, which is free for it.
pub(super) fn is_of_a_start(about: &str, found: &str, waits: &[String]) -> bool {
    let is_ours = |part: &String| {
        let function = part.strip_prefix("PCI function ");
        function.is_some_and(|function| about == part || about.starts_with(&format!("row of {function} ")))
    };
    waits.iter().any(is_ours) && found != GONE && !found.starts_with(ANOTHERS)
}

fn checks(device: &Expected, seen: &ObservedFunction, planned: &CpuSet, subject: &str) -> Vec<Check> {
    let root = directory(device.function);
    if !seen.present {
        return vec![Check::compared(CheckKind::Function, subject, "held by QEMU", GONE, false).at(root)];
    }
    let check = |planned: String, found: Result<(String, bool), &String>, place: String| {
        match found {
            Ok((found, equal)) => Check::compared(CheckKind::Function, subject, planned, found, equal),
            Err(why) => Check::cannot_tell(CheckKind::Function, subject, planned, why),
        }
        .at(place)
    };
    // Cards with drivers of their own for handing through say so in the name: mlx5_vfio_pci.
    let driver = seen.driver.as_ref().map(|driver| match driver {
        Some(driver) => (format!("driver {driver}"), driver.contains("vfio")),
        None => ("no driver".to_owned(), false),
    });
    let held = seen.held.as_ref().map(|held| match (held, &seen.holder) {
        (Some(target), _) => (format!("held by QEMU through {target}"), true),
        (None, Some(other)) => (format!("{ANOTHERS} `{other}` has it"), false),
        (None, None) => ("not held by QEMU".to_owned(), false),
    });
    let no_iommu = matches!(&seen.held, Ok(Some(target)) if target.contains("noiommu"));
    let group = seen.group.as_ref().map(|group| match group {
        None => ("in no IOMMU group".to_owned(), false),
        Some(group) if no_iommu => {
            (format!("group {} without an IOMMU: its DMA is not contained", group.number), false)
        }
        Some(group) => {
            let domain = group.domain.as_deref().unwrap_or("unknown");
            (format!("group {}, of type {domain} while the host has it", group.number), true)
        }
    });
    let mut checks = vec![
        check("driver vfio-pci".to_owned(), driver, format!("{root}/driver")),
        check("held by QEMU".to_owned(), held, format!("{root}/iommu_group")),
        check("behind the IOMMU".to_owned(), group, format!("{root}/iommu_group/type")),
    ];
    if let Some(node) = device.node {
        let found = seen.node.as_ref().map(|found| match found {
            Some(found) => (format!("on node {found}"), *found == node),
            None => ("on a node that the firmware does not report".to_owned(), false),
        });
        checks.push(check(format!("on node {node}"), found, format!("{root}/numa_node")));
    }
    if let Some(card) = &seen.card {
        checks.push(card.link.check(CheckKind::Function, card.function, &card.interface));
        checks.extend(row(device, card));
    }
    if !planned.is_empty() {
        checks.extend(interrupts::judge(device.function, planned, &seen.interrupts));
    }
    checks
}

/// What the card was told of a virtual function that libvirt sets the address and VLAN of.
fn row(device: &Expected, card: &ObservedCard) -> Option<Check> {
    let wanted: Vec<String> = [
        device.mac.as_ref().map(|mac| format!("MAC {}", mac.to_lowercase())),
        device.vlan.map(|vlan| format!("VLAN {vlan}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if wanted.is_empty() {
        return None;
    }
    let subject = format!("row of {} on its card {}", device.function, card.interface);
    let place = format!("ip -details link show dev {}", card.interface);
    Some(match &card.row {
        Err(why) => Check::cannot_tell(CheckKind::Function, subject, wanted.join(", "), why).at(place),
        Ok((number, row)) => {
            let same_mac = |mac: &String| row.mac.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(mac));
            let vlan = row.vlan.map(|vlan| vlan.id);
            let equal = device.mac.as_ref().is_none_or(same_mac) && device.vlan.is_none_or(|id| vlan == Some(id));
            let found = format!("VF {number}: {}", words(row));
            Check::compared(CheckKind::Function, subject, wanted.join(", "), found, equal).at(place)
        }
    })
}

/// A row in words; what the driver does not tell is unknown.
fn words(row: &NetworkSettings) -> String {
    let text = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    format!(
        "MAC {}, VLAN {}, spoof check {}, trust {}, link {}, rate {}",
        text(row.mac.clone()),
        text(row.vlan.map(|vlan| vlan.to_string())),
        text(row.spoof_check.map(switch)),
        text(row.trust.map(switch)),
        text(row.link_state.clone()),
        text(row.rate.map(|rate| rate.to_string())),
    )
}
