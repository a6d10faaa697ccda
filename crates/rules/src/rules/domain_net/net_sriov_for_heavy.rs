//! Highest-load or jitter-critical NICs are SR-IOV VFs or vDPA.

use nearmetal_domain::InterfaceFacts;
use nearmetal_host::PciDevice;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-sriov-for-heavy",
    layer: Layer::DomainNet,
    title: "Highest-load or jitter-critical NICs are SR-IOV VFs or vDPA",
    severity: Severity::Note,
    classes: &[WorkloadClass::Latency],
    reads: &["domain <interface type='hostdev'|'vdpa'>", "<teaming>"],
    good: "guests that exceed one virtio/vhost core (rule of thumb: > 10 Gbit/s or > 1 Mpps or SLA on latency) have VF/vDPA; failover via <teaming> if migration needed",
    applies: "throughput/latency",
    not_applies: "guests needing live migration without failover pair, many small guests, host switching/filtering",
    effect: "the SR-IOV paper SPECvirt: 8 tiles CPU 66.23% (virtio) -> 55.04% (SR-IOV); 10 tiles QoS 85.23 -> 100; 13 tiles only with SR-IOV; the INFN paper: SR-IOV latency 3x better than virtio, throughput about equal except with one VM",
    evidence: Evidence::A,
    sources: &["paper-sriov-specvirt", "paper-infn", "lv-dom", "k-ice"],
    fix: Fix {
        live: Some("attach-interface type hostdev (hot-plug)"),
        persistent: "virsh edit",
        needs: &[Need::Live, Need::VmRestart],
        undo: "no host firewall/bridge; VF count limited; undo virtio",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let capable = |device: &&PciDevice| {
        device.class.is_some_and(|class| class >> 16 == 0x02)
            && device.sriov.as_ref().is_some_and(|sriov| sriov.total_vfs > 0)
    };
    let Some(card) = host.pci_devices.iter().find(capable) else { return Outcome::NotApplicable };
    let direct = subject
        .facts
        .interfaces
        .iter()
        .any(|interface| matches!(interface.kind.as_str(), "hostdev" | "vdpa" | "vhostuser"));
    let through = !subject.facts.hostdevs.is_empty();
    let object = |interface: &InterfaceFacts| {
        Object::new(
            interface_name(interface),
            "through the host's kernel",
            format!("a VF of {}, if jitter matters", card.address),
        )
    };
    Outcome::of(if direct || through { Vec::new() } else { subject.tap_interfaces().map(object).collect() })
}
