//! Interrupts. Documentation/core-api/irq/irq-affinity.rst; Documentation/ABI/testing/sysfs-kernel-irq.

use std::collections::BTreeMap;

use nearmetal_units::PciAddress;

use crate::facts::{Facts, parsed};
use crate::parse::{cpu_list, line, number_u32};
use crate::{Interrupt, PciDevice};

pub(super) fn read(facts: &mut Facts<'_>, functions: &[PciDevice]) -> Vec<Interrupt> {
    let numbers: Vec<u32> = facts.list("/proc/irq").iter().filter_map(|name| number_u32(name).ok()).collect();
    if numbers.is_empty() {
        return Vec::new();
    }
    let owners = owners(facts, functions);
    numbers
        .into_iter()
        .map(|number| {
            let directory = format!("/proc/irq/{number}");
            let actions = actions(facts, number);
            Interrupt {
                number,
                device: owners.get(&number).copied(),
                actions,
                affinity: facts.optional(&format!("{directory}/smp_affinity_list"), cpu_list),
                effective: facts.optional(&format!("{directory}/effective_affinity_list"), cpu_list),
            }
        })
        .collect()
}

/// Names of those who listen to an interrupt. The file of one that nobody listens to is empty, without even a newline.
fn actions(facts: &mut Facts<'_>, number: u32) -> Vec<String> {
    let path = format!("/sys/kernel/irq/{number}/actions");
    let text = facts.text(&path).filter(|text| !text.is_empty());
    let names = text.and_then(|text| facts.noted(parsed(&path, &text, |text| line(text).map(str::to_owned))));
    names.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect()
}

/// Functions by the numbers of their message-signalled interrupts. Others share lines, which name nobody.
fn owners(facts: &mut Facts<'_>, functions: &[PciDevice]) -> BTreeMap<u32, PciAddress> {
    let mut owners = BTreeMap::new();
    for function in functions {
        let directory = format!("/sys/bus/pci/devices/{}/msi_irqs", function.address);
        for name in facts.list(&directory) {
            owners.extend(number_u32(&name).ok().map(|number| (number, function.address)));
        }
    }
    owners
}
