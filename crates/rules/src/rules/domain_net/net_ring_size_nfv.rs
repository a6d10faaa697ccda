//! virtio-net rings are 1024 for NFV/burst loads.

use nearmetal_domain::InterfaceFacts;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-ring-size-nfv",
    layer: Layer::DomainNet,
    title: "virtio-net rings are 1024 for NFV/burst loads",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <driver rx_queue_size tx_queue_size>"],
    good: "1024/1024 for NFV (tx > 256 only with vhost-user); 256 default else; power of two 256-1024",
    applies: "vhost-user, bursty UDP",
    not_applies: "latency class with small bursts, old guest drivers",
    effect: "unquantified; Red Hat/TripleO set 1024 against drops",
    evidence: Evidence::B,
    sources: &["rh-ovsdrops", "lv-dom", "ovs-vhu"],
    fix: Fix {
        live: None,
        persistent: "<driver rx_queue_size='1024' tx_queue_size='1024'/>; Nova rx_queue_size/tx_queue_size",
        needs: &[Need::VmRestart],
        undo: "more memory and latency; undo 256",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let object = |interface: &InterfaceFacts| {
        let user = interface.kind == "vhostuser";
        // passt has no bursts to hold, and small rings keep the latency class's packets from queueing.
        let bursts = user && interface.backend.is_none() && subject.class != WorkloadClass::Latency;
        let rings = [("receive", interface.receive_ring), ("transmit", interface.transmit_ring)];
        let poor = rings.into_iter().find_map(|(name, size)| match size {
            Some(size) if !size.is_power_of_two() || !(256..=1024).contains(&size) => {
                Some((name, size.to_string(), "a power of two from 256 to 1024"))
            }
            Some(size) if name == "transmit" && size > 256 && !user && interface.kind != "vdpa" => {
                Some((name, size.to_string(), "256: more needs vhost-user"))
            }
            size if bursts && size.unwrap_or(256) < 1024 => Some((name, size.unwrap_or(256).to_string(), "1024")),
            _ => None,
        });
        poor.map(|(name, found, wanted)| {
            Object::new(format!("{} {name} ring", interface_name(interface)), found, wanted)
        })
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
