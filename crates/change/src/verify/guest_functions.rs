//! PCI functions as the guest sees them.

use nearmetal_host::PciDevice;
use nearmetal_units::PciAddress;
use serde::{Deserialize, Serialize};

use super::functions::Expected;
use super::{Check, CheckKind, Observed};

/// One PCI function of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFunction {
    /// Its address in the guest.
    pub address: PciAddress,
    /// Vendor and device id.
    pub id: (u16, u16),
    /// The guest's driver.
    pub driver: Option<String>,
    /// The guest's node.
    pub node: Option<u32>,
}

impl GuestFunction {
    /// From what the probe read in the guest.
    pub(super) fn of(device: &PciDevice) -> Option<Self> {
        let id = device.vendor.zip(device.device)?;
        Some(Self { address: device.address, id, driver: device.driver.clone(), node: device.node })
    }

    /// From the lines of its `uevent`: `DRIVER=nvme`, `PCI_ID=1B36:0010`.
    pub(super) fn told(address: PciAddress, uevent: &[String], node: Option<u32>) -> Option<Self> {
        let value = |name: &str| uevent.iter().find_map(|line| line.trim().strip_prefix(name));
        let (vendor, device) = value("PCI_ID=")?.split_once(':')?;
        let number = |digits: &str| u16::from_str_radix(digits, 16).ok();
        Some(Self {
            address,
            id: number(vendor).zip(number(device))?,
            driver: value("DRIVER=").map(str::to_owned),
            node,
        })
    }
}

/// Whether the guest has each function, and where its plan shows them to it. A guest numbers its buses by itself, so a
/// function is known there by what it is.
pub(super) fn judge(expected: &[Expected], observed: &Observed) -> Vec<Check> {
    let mut left: Vec<&GuestFunction> = observed.view.iter().flat_map(|view| &view.functions).collect();
    let mut checks = Vec::new();
    for device in expected {
        let subject = format!("PCI function {} as the guest sees it", device.function);
        let on_node = |node: u32| format!(", on its node {node}");
        let id = observed.functions.iter().find(|seen| seen.function == device.function).and_then(|seen| seen.id);
        let wanted = match id {
            Some((vendor, model)) => format!("{vendor:04x}:{model:04x} there"),
            None => "there".to_owned(),
        } + &device.cell.map_or_else(String::new, on_node);
        let view = match &observed.view {
            Ok(view) => view,
            Err(why) => {
                checks.push(Check::cannot_tell(CheckKind::Guest, subject, wanted, why));
                continue;
            }
        };
        if view.functions.is_empty() || id.is_none() {
            let why = match id {
                None => "the host cannot read what it is",
                Some(_) => "the guest reports no PCI functions",
            };
            checks.push(Check::cannot_tell(CheckKind::Guest, subject, wanted, why));
            continue;
        }
        let same: Vec<usize> = (0..left.len()).filter(|at| Some(left[*at].id) == id).collect();
        let right = same.iter().find(|at| device.cell.is_none() || left[**at].node == device.cell);
        checks.push(
            match right.or(same.first()) {
                None => Check::compared(CheckKind::Guest, subject, wanted, "no such function", false),
                Some(at) => {
                    let found = left.remove(*at);
                    let equal = device.cell.is_none() || found.node == device.cell;
                    let driver =
                        found.driver.as_deref().map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"));
                    let node = found.node.map_or_else(String::new, on_node);
                    let text = format!("{}, {driver}{node}", found.address);
                    Check::compared(CheckKind::Guest, subject, wanted, text, equal)
                }
            }
            .at("/sys/bus/pci/devices in the guest"),
        );
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uevent_tells_what_a_function_is() {
        let lines = ["DRIVER=nvme", "PCI_CLASS=10802", "PCI_ID=1B36:0010"].map(str::to_owned);
        let address = "0000:01:00.0".parse().unwrap();
        let function = GuestFunction::told(address, &lines, Some(1)).unwrap();
        assert_eq!((function.id, function.driver.as_deref()), ((0x1b36, 0x0010), Some("nvme")));
        for junk in [vec![], vec!["PCI_ID=1B36".to_owned()], vec!["PCI_ID=:10".to_owned()]] {
            assert_eq!(GuestFunction::told(address, &junk, None), None);
        }
    }
}
