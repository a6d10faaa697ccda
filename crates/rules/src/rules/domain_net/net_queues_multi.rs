//! Multi-vCPU network-heavy guests have virtio-net multiqueue.

use nearmetal_domain::InterfaceFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name, of_interface};

pub(crate) const RULE: Rule = Rule {
    id: "net-queues-multi",
    layer: Layer::DomainNet,
    title: "Multi-vCPU network-heavy guests have virtio-net multiqueue",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <interface><driver queues>"],
    good: "queues == min(vCPU, 8) for heavy NICs (8 is chosen here); vectors == 2*queues+2; guest 'combined' equals it",
    applies: "many flows, large packets, > 1 vCPU",
    not_applies: "many NICs per guest, few vCPUs, small-packet single flow (may regress TX)",
    effect: "unquantified ('much higher throughput' in libvirt's words); RHEL 7 guide: best with large packets and many connections; TX of small TCP packets may regress",
    evidence: Evidence::B,
    sources: &["rh-rhel7mq", "okd-mq", "pve-qm", "lv-dom", "nova-net"],
    fix: Fix {
        live: None,
        persistent: "<driver name='vhost' queues='4'/>; Nova hw:vif_multiqueue_enabled; KubeVirt networkInterfaceMultiqueue",
        needs: &[Need::VmRestart],
        undo: "each queue: vhost thread and about 64 KiB vhost memory; undo queues='1'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let vcpus = subject.facts.vcpus.current;
    let enough = vcpus.min(subject.context.settings.queues_enough);
    let object = |interface: &InterfaceFacts| {
        let queues = interface.queues.unwrap_or(1);
        let set =
            |count: u32| of_interface(interface, "driver").map(|at| Cure::attribute(at, "queues", count.to_string()));
        if queues > subject.facts.vcpus.maximum {
            let wanted = format!("at most {}, the vCPUs", subject.facts.vcpus.maximum);
            let object = Object::new(interface_name(interface), format!("{queues} queues"), wanted);
            return Some(object.cured_by_all(set(enough)));
        }
        let few = subject.class == WorkloadClass::Throughput && queues < enough;
        few.then(|| {
            let object = Object::new(interface_name(interface), format!("{queues} queues"), format!("{enough} queues"));
            object.cured_by_all(set(enough))
        })
    };
    Outcome::of(subject.tap_interfaces().filter_map(object).collect())
}
