//! What no manifest can say.

use crate::Limit;
use crate::guests::{Guest, Host};
use crate::limit::{NO_PAGES, after_start, followed, polling, pools, shared_disks};
use crate::names::is_label_value;

/// Of a host: what its kubelet needs.
pub(super) fn of_host(host: &Host<'_>) -> Vec<Limit> {
    let mut limits = pools(host, NO_PAGES);
    if host.guests.iter().any(Guest::is_one_to_one) {
        let widest = host.guests.iter().map(|guest| guest.nodes().len()).max().unwrap_or(0);
        let policy = if widest > 1 { "restricted" } else { "single-numa-node" };
        let pinned = host.guests.iter().filter(|guest| guest.is_one_to_one()).count();
        limits.push(Limit::on(
            host,
            "CPUs and memory of one node",
            format!("{pinned} VMs with PUs of their own"),
            "the kubelet places them, by its own configuration",
            &format!(
                "in the KubeletConfiguration: cpuManagerPolicy static with full-pcpus-only, topologyManagerPolicy {policy}, \
                 memoryManagerPolicy Static; in the KubeVirt resource: feature gates CPUManager and NUMA"
            ),
        ));
    }
    limits
}

/// Of a guest.
pub(super) fn of_guest(guest: &Guest<'_>, name: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut limit = |what: &str, planned: String, why: &str, by_hand: &str| {
        limits.push(Limit::of(guest, what, planned, why, by_hand));
    };
    if name != guest.name {
        let kept = "the annotation nearmetal/domain keeps it";
        limit("name", format!("as `{name}`"), "names in Kubernetes are DNS labels, and unique in a namespace", kept);
    }
    if !is_label_value(guest.host) {
        let by_hand = "add a nodeSelector for the node that this host is";
        limit("host", guest.host.to_owned(), "it is not a value of a label", by_hand);
    }
    if !guest.facts.boot.is_q35() {
        let machine = guest.facts.boot.machine.clone().unwrap_or_else(|| "unknown".to_owned());
        let by_hand = "a guest that was installed on another machine type may have to be installed again";
        limit("machine type", machine, "KubeVirt runs q35 on x86", by_hand);
    }
    let placement = guest.placement;
    if guest.is_one_to_one() {
        limit(
            "vCPU pins",
            guest.pins_text(),
            "the kubelet's CPU manager chooses the PUs",
            "compare after the start: `virsh vcpupin` in the virt-launcher pod; only the number, and with \
             topologyManagerPolicy the node, are kept",
        );
    } else if !placement.vcpus.is_empty() {
        limit(
            "vCPU pins",
            guest.pins_text(),
            "dedicatedCpuPlacement gives each vCPU a PU of its own, and these share theirs",
            "keep shared VMs on the kubelet's shared pool; nothing pins them there",
        );
    }
    let nodes = guest.nodes();
    let lost = if !guest.is_one_to_one() {
        Some((
            "guestMappingPassthrough needs a PU for each vCPU, which the plan does not give",
            "plan it with PUs of its own and hugepages; nothing keeps the memory of shared VMs on a node there",
        ))
    } else if placement.memory.page_size.is_none() {
        Some((
            "guestMappingPassthrough needs hugepages, which the plan does not give",
            "plan it with hugepages, or rely on memoryManagerPolicy Static",
        ))
    } else {
        None
    };
    if let Some((why, by_hand)) = lost.filter(|_| !nodes.is_empty()) {
        limit("memory nodes", nodes.to_string(), why, by_hand);
    }
    if guest.is_uefi() {
        let nvram = guest.facts.boot.nvram.as_ref();
        limit(
            "UEFI",
            nvram.map_or_else(String::new, |nvram| format!("with its variables in {nvram}")),
            "KubeVirt makes its variables anew at each start, and the manifest asks for firmware without secure boot",
            "add `\"persistent\": true` beside `secureBoot` to keep them; if it boots with secure boot, set that to true and enable \
             `domain.features.smm`, which KubeVirt requires for it",
        );
    }
    if !placement.emulator.is_empty() {
        limit(
            "emulator thread",
            format!("on PUs {}", placement.emulator),
            "isolateEmulatorThread gives it a PU that the CPU manager chooses",
            "nothing to do; the VM then takes one PU more than it has vCPUs",
        );
    }
    for (number, pus) in placement.iothreads.iter().enumerate() {
        limit(
            &format!("iothread {}", number + 1),
            format!("on PUs {pus}"),
            "KubeVirt places iothreads beside the vCPUs or on the emulator's PU",
            "nothing to do",
        );
    }
    for (number, cell) in guest.cells().iter().enumerate() {
        limit(
            &format!("guest cell {number}"),
            format!("vCPUs {} with {} on node {}", cell.vcpus, cell.memory, cell.node),
            "guestMappingPassthrough makes the cells from the PUs that the CPU manager chose",
            "check them inside the guest: `numactl -H`",
        );
    }
    limits.extend(Limit::distances(guest, placement, "KubeVirt"));
    limits.extend(Limit::cells_of_functions(guest, placement, "KubeVirt"));
    limits.extend(shared_disks(guest, "KubeVirt"));
    limits.extend(polling(guest, "KubeVirt"));
    limits.extend(Limit::served_by_qemu(guest, placement, "KubeVirt"));
    let (why, by_hand) = (
        "no hook of nearmetal runs in a pod",
        "keep irqbalance away from these PUs on the host: IRQBALANCE_BANNED_CPULIST",
    );
    limits.extend(after_start(guest, why, by_hand));
    let why = "the manifest has the plan's decisions, not every setting of the definition";
    limits.extend(followed(guest, why, "set its field in the manifest if KubeVirt has one, or use a hook sidecar"));
    limits
}
