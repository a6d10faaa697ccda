//! A flavor: the shape of a VM.

use std::collections::BTreeMap;

use nearmetal_place::FunctionKind;
use serde_json::{Value, json};

use crate::Limit;
use crate::guests::Guest;
use crate::limit::{polling, shared_disks};
use crate::names::dns_label;

/// A flavor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flavor {
    pub(super) name: String,
    pub(super) vcpus: u32,
    /// Memory in MiB, which Nova calls MB.
    pub(super) mebibytes: u64,
    /// Extra specs.
    pub(super) properties: BTreeMap<String, String>,
}

impl Flavor {
    /// Whether both are the same shape.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.vcpus, self.mebibytes, &self.properties) == (other.vcpus, other.mebibytes, &other.properties)
    }

    /// As `openstack flavor show -f json` prints it.
    pub(super) fn json(&self) -> Value {
        json!({
            "OS-FLV-DISABLED:disabled": false,
            "OS-FLV-EXT-DATA:ephemeral": 0,
            "disk": 0,
            "name": self.name,
            "os-flavor-access:is_public": true,
            "properties": self.properties,
            "ram": self.mebibytes,
            "rxtx_factor": 1.0,
            "swap": 0,
            "vcpus": self.vcpus,
        })
    }
}

/// The alias of a function, in nova.conf and in a flavor.
pub(super) fn alias(function: nearmetal_units::PciAddress) -> String {
    format!("nearmetal-{}", dns_label(&function.to_string(), "function"))
}

/// The flavor of a VM, without a name, and what no flavor says.
pub(super) fn of(guest: &Guest<'_>) -> (Flavor, Vec<Limit>) {
    let mut limits = Vec::new();
    let mut properties = BTreeMap::new();
    let mut set = |key: &str, value: String| _ = properties.insert(key.to_owned(), value);
    let (sockets, cores, threads) = guest.topology();
    for (key, count) in [("hw:cpu_sockets", sockets), ("hw:cpu_cores", cores), ("hw:cpu_threads", threads)] {
        set(key, count.to_string());
    }
    let placement = guest.placement;
    if guest.is_one_to_one() {
        set("hw:cpu_policy", "dedicated".to_owned());
        let siblings = placement.threads_per_core.unwrap_or(threads) > 1;
        // `isolate` would ask Placement for hosts without SMT (nova.scheduler.utils, `_translate_pinning_policies`), and so
        // exclude the planned one.
        let idle = guest.idle();
        let policy = if siblings && idle.is_empty() { "require" } else { "prefer" };
        if !idle.is_empty() {
            let why = "Nova's `isolate` takes only hosts without SMT";
            let by_hand = "nothing to do: cpu_dedicated_set of the host leaves them out";
            limits.push(Limit::of(guest, "PUs that stay idle", &idle, why, by_hand));
        }
        set("hw:cpu_thread_policy", policy.to_owned());
        if !placement.emulator.is_empty() && placement.emulator.is_disjoint(&guest.vcpu_pus()) {
            set("hw:emulator_threads_policy", "share".to_owned());
        }
    } else if !placement.is_floating() {
        set("hw:cpu_policy", "shared".to_owned());
    }
    memory(guest, &mut set, &mut limits);
    limits.extend(Limit::cells_of_functions(guest, placement, "Nova"));
    limits.extend(shared_disks(guest, "Nova"));
    limits.extend(polling(guest, "Nova"));
    limits.extend(Limit::served_by_qemu(guest, placement, "Nova"));
    let several = |queues: Option<u32>| queues.is_some_and(|queues| queues > 1);
    if guest.facts.interfaces.iter().any(|interface| several(interface.queues)) {
        set("hw:vif_multiqueue_enabled", "true".to_owned());
        let vcpus = guest.facts.vcpus.maximum;
        for interface in guest.facts.interfaces.iter().filter(|one| several(one.queues) && one.queues != Some(vcpus)) {
            let what = format!("interface {}", interface.mac.as_deref().unwrap_or("without address"));
            let planned = format!("{} queues", interface.queues.unwrap_or(1));
            let why = "Nova gives a queue for each vCPU, or one";
            limits.push(Limit::of(guest, &what, planned, why, "nothing to do"));
        }
    }
    let decided = placement.devices.iter().filter(|device| !matches!(device.kind, FunctionKind::NetworkVirtual { .. }));
    let functions = decided.map(|device| device.function).chain(guest.undecided_functions());
    let aliases: Vec<String> = functions.map(|function| format!("{}:1", alias(function))).collect();
    if !aliases.is_empty() {
        set("pci_passthrough:alias", aliases.join(","));
    }
    let nodes = guest.nodes();
    if !placement.devices.is_empty()
        && placement.devices.iter().all(|one| one.node.is_some_and(|node| nodes.contains(node)))
    {
        set("hw:pci_numa_affinity_policy", "required".to_owned());
    }
    let mebibytes = guest.facts.memory.get() >> 20;
    if guest.facts.memory.get() % (1 << 20) != 0 {
        let by_hand = "plan it with whole MiB";
        limits.push(Limit::of(guest, "memory", guest.facts.memory, "Nova counts whole MiB", by_hand));
    }
    (Flavor { name: String::new(), vcpus: guest.facts.vcpus.maximum, mebibytes, properties }, limits)
}

/// Cells and pages.
fn memory(guest: &Guest<'_>, set: &mut impl FnMut(&str, String), limits: &mut Vec<Limit>) {
    let placement = guest.placement;
    if let Some(size) = placement.memory.page_size {
        // Without a unit Nova reads KiB.
        set("hw:mem_page_size", size.bytes().kib().to_string());
    }
    if placement.is_floating() {
        return;
    }
    if placement.cells.is_empty() {
        if placement.memory.nodes.len() > 1 {
            let planned = format!("nodes {} as one", placement.memory.nodes);
            let why = "Nova shows each node it takes from as one of the guest's";
            let by_hand = "plan it with guest cells, or on one node";
            limits.push(Limit::of(guest, "memory nodes", planned, why, by_hand));
        } else {
            set("hw:numa_nodes", "1".to_owned());
            if !placement.memory.nodes.is_empty() {
                let (why, by_hand) = ("Nova chooses the node", "compare after the start: `virsh numatune`");
                limits.push(Limit::of(guest, "memory nodes", &placement.memory.nodes, why, by_hand));
            }
        }
        return;
    }
    set("hw:numa_nodes", placement.cells.len().to_string());
    for (number, cell) in placement.cells.iter().enumerate() {
        set(&format!("hw:numa_cpus.{number}"), cell.vcpus.to_string());
        set(&format!("hw:numa_mem.{number}"), (cell.memory.get() >> 20).to_string());
        let planned = format!("on node {}", cell.node);
        let why = "Nova chooses the node";
        limits.push(Limit::of(guest, &format!("guest cell {number}"), planned, why, "nothing to do"));
    }
    limits.extend(Limit::distances(guest, placement, "Nova"));
}
