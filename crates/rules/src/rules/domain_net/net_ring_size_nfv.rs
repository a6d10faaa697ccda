//! virtio-net rings are 1024 for NFV/burst loads.

use nearmetal_domain::InterfaceFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name, of_interface};

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
            // Both at once: the other may be no better.
            let size = if user { "1024" } else { "256" };
            let written = [("rx_queue_size", interface.receive_ring), ("tx_queue_size", interface.transmit_ring)];
            let poor = |size: Option<u32>| match size {
                Some(size) => !size.is_power_of_two() || !(256..=1024).contains(&size) || (user && size < 1024),
                None => user,
            };
            let few =
                |name: &str, size: Option<u32>| name == "tx_queue_size" && !user && size.is_some_and(|size| size > 256);
            let cures = written.into_iter().filter(|(name, size)| poor(*size) || few(name, *size));
            let cures =
                cures.filter_map(|(name, _)| Some(Cure::attribute(of_interface(interface, "driver")?, name, size)));
            Object::new(format!("{} {name} ring", interface_name(interface)), found, wanted).cured_by_all(cures)
        })
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
