//! PUs of guests that want no other work beside them, and cures that name them.
//!
//! Several rules cure themselves with the same kernel arguments and interrupt masks. Each must name the same PUs, or one
//! would undo the other: they are computed here, once for all.

use nearmetal_host::{Host, Interrupt, NumaNode};
use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::Which;
use crate::subject::Subject;

/// PUs in isolated partitions of control groups.
pub(crate) fn partitioned(host: &Host) -> CpuSet {
    let partitions = host.cpusets.iter().filter(|set| set.is_isolated());
    partitions.filter_map(|set| set.effective_cpus.as_ref()).flat_map(CpuSet::iter).collect()
}

/// What [`Context::quiet`] is.
pub(crate) fn quiet_pus(context: &Context<'_>) -> Option<CpuSet> {
    let host = context.host?;
    let mut pins = CpuSet::new();
    for domain in context.domains.iter().filter(|domain| domain.class == WorkloadClass::Latency) {
        for (facts, which) in [(&domain.running, Which::Running), (&domain.defined, Which::Defined)] {
            let subject = facts.as_ref().map(|facts| Subject::new(context, domain, facts, which));
            subject.iter().flat_map(|subject| subject.single_pins().into_values()).for_each(|pu| _ = pins.insert(pu));
        }
    }
    let quiet = pins.difference(&partitioned(host)).union(host.system.isolated.as_ref()?);
    let spare = |node: &NumaNode| {
        host.cores.iter().any(|core| core.cpus.is_subset(&node.cpus) && core.cpus.is_disjoint(&quiet))
    };
    host.nodes.iter().filter(|node| !node.cpus.is_empty()).all(spare).then_some(quiet)
}

/// Keeps tasks, and interrupts that the kernel spreads by itself, off the quiet PUs.
pub(crate) fn isolate(context: &Context<'_>) -> Option<Cure> {
    let quiet = context.quiet.as_ref().filter(|quiet| !quiet.is_empty())?;
    Some(Cure::kernel_argument("isolcpus", format!("managed_irq,domain,{quiet}")))
}

/// Keeps the scheduler's tick and RCU's callbacks off the quiet PUs, beside those that have none already.
pub(crate) fn stop_tick(context: &Context<'_>, without: &CpuSet) -> Vec<Cure> {
    let Some(quiet) = &context.quiet else { return Vec::new() };
    let list = without.union(quiet).to_string();
    ["nohz_full", "rcu_nocbs"].map(|name| Cure::kernel_argument(name, list.clone())).into()
}

/// Sends interrupts of devices that come later, and of all at boot, to the PUs that are not quiet.
pub(crate) fn default_home(context: &Context<'_>) -> Option<Cure> {
    let home = context.online.difference(context.quiet.as_ref()?);
    (!home.is_empty()).then(|| Cure::kernel_argument("irqaffinity", home.to_string()))
}

/// PUs where a device's interrupt belongs: those of its node, else any, that are not quiet. `None` if there are none,
/// or quiet ones are unknown.
pub(crate) fn interrupt_home(context: &Context<'_>, interrupt: &Interrupt) -> Option<CpuSet> {
    let (host, quiet) = (context.host?, context.quiet.as_ref()?);
    let device = host.pci_devices.iter().find(|device| Some(device.address) == interrupt.device);
    let near = device.and_then(|device| host.node(device.node?)).map(|node| node.cpus.difference(quiet));
    let home = near.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| context.online.difference(quiet));
    Some(home).filter(|cpus| !cpus.is_empty())
}

/// Moves an interrupt where it belongs, now and, as numbers of interrupts change, by the default for all of them. Those
/// of queues that the kernel spreads over PUs by itself cannot be written; they follow `isolcpus=managed_irq`.
pub(crate) fn send_home(context: &Context<'_>, interrupt: &Interrupt) -> Vec<Cure> {
    let Some(home) = interrupt_home(context, interrupt) else { return Vec::new() };
    if interrupt.actions.iter().any(|action| is_managed(action)) {
        return isolate(context).into_iter().collect();
    }
    vec![Cure::kernel_file(format!("/proc/irq/{}/smp_affinity_list", interrupt.number), home.to_string())]
}

/// Whether the kernel alone places an interrupt (`PCI_IRQ_AFFINITY`): queues of NVMe but the first, which is the
/// administrator's, and request queues of virtio. drivers/nvme/host/pci.c, drivers/virtio/virtio_pci_common.c.
fn is_managed(action: &str) -> bool {
    let queue = action.strip_prefix("nvme").and_then(|rest| rest.split_once('q')?.1.parse::<u32>().ok());
    queue.is_some_and(|queue| queue > 0)
        || action.strip_prefix("virtio").is_some_and(|rest| rest.contains("-req.") || rest.contains("-request"))
}
