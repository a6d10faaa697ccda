//! Device IRQs do not land on vCPU CPUs (except the VFIO IRQs of that VM).

use nearmetal_host::Interrupt;
use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::finding::{Object, Outcome};
use crate::isolation::{default_home, send_home};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

/// Base class of mass storage controllers. PCI Code and ID Assignment Specification.
const MASS_STORAGE: u32 = 0x01;

pub(crate) const RULE: Rule = Rule {
    id: "irq-affinity-off-isolated",
    layer: Layer::HostKernel,
    title: "Device IRQs do not land on vCPU CPUs (except the VFIO IRQs of that VM)",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &["/proc/irq/*/effective_affinity_list", "domain <vcpupin>"],
    good: "no non-VFIO IRQ effective on isolated CPUs; irqbalance bans them (or is stopped on RT hosts)",
    applies: "latency/RT/NFV",
    not_applies: "general hosts (irqbalance on is right)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-cp", "t-rvh", "k-params", "rh-rt", "k-ice"],
    fix: Fix {
        live: Some("for i in /proc/irq/*/smp_affinity_list: echo <housekeeping>"),
        persistent: "tuned [irqbalance] banned_cpus; irqaffinity=<hk>; isolcpus=managed_irq,...",
        needs: &[Need::Live, Need::HostReboot],
        undo: "housekeeping cores can saturate with IRQs; undo restore masks",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let pins: CpuSet = subject.single_pins().values().copied().collect();
    if pins.is_empty() {
        return Outcome::NotApplicable;
    }
    if host.interrupts.is_empty() {
        return Outcome::unknown("/proc/irq");
    }
    let own = |interrupt: &&Interrupt| interrupt.device.is_some_and(|device| subject.facts.hostdevs.contains(&device));
    // Drivers of drives give each PU a queue whose interrupt cannot be moved, and which fires for I/O from that PU alone.
    let local_queue = |interrupt: &&Interrupt| {
        let function = host.pci_devices.iter().find(|function| Some(function.address) == interrupt.device);
        let storage = function.is_some_and(|function| function.class.is_some_and(|class| class >> 16 == MASS_STORAGE));
        storage && interrupt.affinity.as_ref().is_some_and(|cpus| cpus.is_subset(&pins))
    };
    let mut objects = Vec::new();
    let judged = |interrupt: &&Interrupt| !interrupt.actions.is_empty() && !own(interrupt) && !local_queue(interrupt);
    for interrupt in host.interrupts.iter().filter(judged) {
        let hit = interrupt.effective.as_ref().map(|cpus| cpus.intersection(&pins)).filter(|hit| !hit.is_empty());
        if let Some(hit) = hit {
            let what = format!("interrupt {} ({})", interrupt.number, interrupt.actions.join(", "));
            let default = default_home(subject.context);
            let cures = send_home(subject.context, interrupt).into_iter().chain(default);
            objects.push(Object::new(what, format!("on PUs {hit} of vCPUs"), "PUs without vCPUs").cured_by_all(cures));
        }
    }
    Outcome::of(objects)
}
