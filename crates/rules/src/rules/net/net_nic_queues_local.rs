//! NICs have several queues (RSS), which interrupt CPUs near the NIC.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::isolation::send_home;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "net-nic-queues-local",
    layer: Layer::Net,
    title: "NICs have several queues (RSS), which interrupt CPUs near the NIC",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/class/net/*/{speed,queues,device/numa_node}", "/proc/irq/*/effective_affinity_list"],
    good: "combined queues >= min(8, local cores) on 10G+; every queue IRQ on a CPU of the NIC's node and off isolated CPUs",
    applies: "multi-queue NICs",
    not_applies: "single-queue or virtual NICs",
    effect: "unquantified; Intel ice doc: stop irqbalance and set affinity by hand for best results",
    evidence: Evidence::B,
    sources: &["k-scaling", "k-ice"],
    fix: Fix {
        live: Some(
            "ethtool -L <nic> combined N; echo CPU > /proc/irq/N/smp_affinity_list (irqbalance stopped or banned)",
        ),
        persistent: "tuned, NIC vendor set_irq_affinity script unit",
        needs: &[Need::Live],
        undo: "IRQ load on housekeeping CPUs; undo old value",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let mut objects = Vec::new();
    let fast = host.network_interfaces.iter().filter(|interface| interface.speed.is_some_and(|speed| speed >= 10_000));
    for interface in fast {
        let Some(card) = interface.pci else { continue };
        let near = interface.node.and_then(|node| host.node(node)).map_or(context.online.len(), |node| node.cpus.len());
        let enough = near.min(context.settings.queues_enough as usize);
        if let Some(queues) = interface.receive_queues.filter(|queues| (*queues as usize) < enough) {
            objects.push(Object::new(
                format!("interface {}", interface.name),
                format!("{queues} queues"),
                format!("{enough} queues"),
            ));
        }
        let Some(node) = interface.node.and_then(|node| host.node(node)).filter(|node| !node.cpus.is_empty()) else {
            continue;
        };
        let far =
            host.interrupts.iter().filter(|interrupt| interrupt.device == Some(card) && !interrupt.actions.is_empty());
        let far = far.filter_map(|interrupt| {
            Some((
                interrupt,
                interrupt.effective.as_ref().filter(|cpus| !cpus.is_empty() && cpus.is_disjoint(&node.cpus))?,
            ))
        });
        objects.extend(far.map(|(interrupt, cpus)| {
            let what = format!("interface {} interrupt {}", interface.name, interrupt.number);
            Object::new(what, format!("on PUs {cpus}"), format!("PUs of node {}", node.index))
                .cured_by_all(send_home(context, interrupt))
        }));
    }
    Outcome::of(objects)
}
