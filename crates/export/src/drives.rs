//! Drives by what does not change at a boot: never by names like sda, which are dealt anew.

use std::collections::BTreeMap;

use nearmetal_host::{BlockDevice, Host};
use nearmetal_units::PciAddress;

use crate::collect::{Collected, Wanted};
use crate::target::Target;

/// Which drives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// All NVMe namespaces. Under multipath they hang on no controller.
    Nvme,
    /// Drives of one kind behind one function.
    Behind {
        function: PciAddress,
        rotational: bool,
        /// Whether there are no drives of the other kind.
        alone: bool,
    },
}

/// Schedulers by drives, and drives that nothing stable tells apart.
pub(crate) fn schedulers(host: &Host, collected: &Collected) -> (BTreeMap<Pattern, Wanted<String>>, Vec<String>) {
    let mut found: BTreeMap<Pattern, Wanted<String>> = BTreeMap::new();
    let mut nameless = Vec::new();
    for (target, wanted) in &collected.files {
        let Target::Scheduler(name) = target else { continue };
        let pattern = host.block_device(name).and_then(|device| pattern(host, device));
        match pattern {
            None => nameless.push(name.clone()),
            Some(pattern) => {
                let known = found.entry(pattern).or_insert_with(|| wanted.clone());
                known.rules.extend(wanted.rules.iter().cloned());
            }
        }
    }
    (found, nameless)
}

fn pattern(host: &Host, device: &BlockDevice) -> Option<Pattern> {
    if device.name.starts_with("nvme") {
        return Some(Pattern::Nvme);
    }
    let (function, rotational) = (device.pci?, device.rotational?);
    let beside = host.block_devices.iter().filter(|other| other.pci == Some(function) && other.partition_of.is_none());
    let alone = beside.into_iter().all(|other| other.rotational == Some(rotational));
    Some(Pattern::Behind { function, rotational, alone })
}
