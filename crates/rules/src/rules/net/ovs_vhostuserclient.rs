//! vhost-user ports use client mode, with shared hugepages as guest memory.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "ovs-vhostuserclient",
    layer: Layer::Net,
    title: "vhost-user ports use client mode, with shared hugepages as guest memory",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <interface type='vhostuser'><source mode>"],
    good: "client-mode port on OVS, server mode in QEMU, share=true, vectors == 2*queues + 2",
    applies: "OVS-DPDK",
    not_applies: "kernel datapath",
    effect: "OVS doc: server-mode type is deprecated; client mode survives an OVS restart; unquantified",
    evidence: Evidence::B,
    sources: &["ovs-vhu", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "virsh edit; ovs-vsctl add-port ... type=dpdkvhostuserclient",
        needs: &[Need::VmRestart],
        undo: "port re-creation drops traffic; undo type",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let client = subject.facts.interfaces.iter().filter(|interface| interface.kind == "vhostuser");
    let client: Vec<Object> = client
        .filter(|interface| interface.source_mode.as_deref() != Some("server"))
        // A client that calls again comes back too, and passt is started by libvirt itself.
        .filter(|interface| interface.reconnect.as_deref() != Some("yes") && interface.backend.is_none())
        .map(|interface| {
            let found = "QEMU is the socket's client: the port does not survive a restart of the switch";
            Object::new(interface_name(interface), found, "<source mode='server'>")
        })
        .collect();
    Outcome::of(client)
}
