//! All of the machine's memory is in a node.

use nearmetal_host::invariants::memory_apart;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "numa-memory-adds-up",
    layer: Layer::Numa,
    title: "What the nodes have together is what the machine has",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/proc/meminfo", "/sys/devices/system/node/node*/meminfo"],
    good: "the sums of MemTotal differ by 3 % at most",
    applies: "all",
    not_applies: "-",
    effect: "unquantified: memory that is in no node cannot be bound, so no plan gives it to a guest. Seen on a virtual machine: 10 GiB in its one node, 24 GiB in the machine",
    evidence: Evidence::C,
    sources: &["own"],
    fix: Fix {
        live: None,
        persistent: "the firmware's table of memory (SRAT), or the hypervisor below this machine that makes it: give added memory a node",
        needs: &[Need::Firmware],
        undo: "-",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if host.system.memory_total.is_none() {
        return Outcome::unknown("/proc/meminfo");
    }
    if host.memory_of_nodes().is_none() {
        return Outcome::unknown("/sys/devices/system/node/node*/meminfo");
    }
    Outcome::one(memory_apart(host).map(|found| Object::new("memory", found, "every block of memory in a node")))
}
