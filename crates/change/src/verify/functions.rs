//! PCI functions a running guest is given: who drives them on the host, who holds them, and where they are.

use nearmetal_host::guests::{self, OpenFile};
use nearmetal_host::{HostFs, ReadError};
use nearmetal_place::DevicePlacement;
use nearmetal_units::PciAddress;

use super::{Check, CheckKind, ObservedFunction};

/// Looks at each planned function.
pub(super) fn look(files: &HostFs, pid: u32, planned: &[DevicePlacement]) -> Vec<ObservedFunction> {
    if planned.is_empty() {
        return Vec::new();
    }
    let open = guests::open_files(files, pid).map_err(|error| error.to_string());
    planned.iter().map(|device| look_at(files, &open, device.function)).collect()
}

fn look_at(files: &HostFs, open: &Result<Vec<OpenFile>, String>, function: PciAddress) -> ObservedFunction {
    let root = directory(function);
    let link = |name: &str| optional(files.link_name(&format!("{root}/{name}")));
    let node = optional(files.read(&format!("{root}/numa_node"))).and_then(|text| match text {
        None => Err(format!("`{root}/numa_node` is not there")),
        Some(text) => match text.trim().parse::<i64>() {
            Ok(number) => Ok(u32::try_from(number).ok()),
            Err(_) => Err(format!("`{root}/numa_node` holds `{}`, which is no node", text.trim())),
        },
    });
    let held = link("iommu_group").and_then(|group| {
        // By its group, or since Linux 6.6 by a device of its own.
        let own = optional(files.list(&format!("{root}/vfio-dev")))?.unwrap_or_default();
        let targets: Vec<String> = group
            .map(|group| format!("/dev/vfio/{group}"))
            .into_iter()
            .chain(own.iter().map(|name| format!("/dev/vfio/devices/{name}")))
            .collect();
        let open = open.as_ref().map_err(Clone::clone)?;
        Ok(open.iter().find(|file| targets.contains(&file.target)).map(|file| file.target.clone()))
    });
    ObservedFunction { function, driver: link("driver"), node, held }
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

/// Three checks a function: its driver, who holds it, its node.
pub(super) fn judge(planned: &[DevicePlacement], seen: &[ObservedFunction]) -> Vec<Check> {
    planned
        .iter()
        .flat_map(|device| {
            let subject = format!("PCI function {}", device.function);
            match seen.iter().find(|seen| seen.function == device.function) {
                Some(seen) => checks(device, seen, &subject),
                None => vec![Check::cannot_tell(CheckKind::Function, subject, "given", "it was not looked at")],
            }
        })
        .collect()
}

fn checks(device: &DevicePlacement, seen: &ObservedFunction, subject: &str) -> Vec<Check> {
    let root = directory(device.function);
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
    let held = seen.held.as_ref().map(|held| match held {
        Some(target) => (format!("held by QEMU through {target}"), true),
        None => ("not held by QEMU".to_owned(), false),
    });
    let mut checks = vec![
        check("driver vfio-pci".to_owned(), driver, format!("{root}/driver")),
        check("held by QEMU".to_owned(), held, format!("{root}/iommu_group")),
    ];
    if let Some(node) = device.node {
        let found = seen.node.as_ref().map(|found| match found {
            Some(found) => (format!("on node {found}"), *found == node),
            None => ("on no node the firmware tells of".to_owned(), false),
        });
        checks.push(check(format!("on node {node}"), found, format!("{root}/numa_node")));
    }
    checks
}
