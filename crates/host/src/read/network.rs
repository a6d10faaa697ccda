//! Network interfaces. Documentation/ABI/testing/sysfs-class-net.

use super::pci::{function_in_path, node_of};
use crate::facts::{Facts, index_after};
use crate::parse::word;
use crate::{NetworkInterface, PciDevice};

const ROOT: &str = "/sys/class/net";

pub(super) fn read(facts: &mut Facts<'_>, functions: &[PciDevice]) -> Vec<NetworkInterface> {
    let mut interfaces = Vec::new();
    for name in facts.list(ROOT) {
        // bonding_masters is a file among the interfaces.
        if facts.fs.exists(&format!("{ROOT}/{name}/.")) {
            interfaces.push(read_interface(facts, name, functions));
        }
    }
    interfaces
}

fn read_interface(facts: &mut Facts<'_>, name: String, functions: &[PciDevice]) -> NetworkInterface {
    let root = format!("{ROOT}/{name}");
    let place = facts.fs.resolve(&root);
    let place = facts.noted(place).unwrap_or_default();
    let pci = function_in_path(&place);
    let queues = facts.list(&format!("{root}/queues"));
    let count = |prefix: &str| {
        let queues = queues.iter().filter(|queue| index_after(queue, prefix).is_some()).count();
        u32::try_from(queues).ok().filter(|queues| *queues > 0)
    };
    NetworkInterface {
        pci,
        node: node_of(functions, pci),
        driver: pci.and_then(|_| facts.link_name(&format!("{root}/device/driver"))),
        master: facts.link_name(&format!("{root}/master")),
        receive_queues: count("rx-"),
        transmit_queues: count("tx-"),
        state: facts.optional(&format!("{root}/operstate"), word),
        name,
    }
}
