//! Guest sockets/cores/threads reflect the pins.

use std::collections::BTreeMap;

use nearmetal_domain::TopologyFacts;
use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "cpu-topology-honest",
    layer: Layer::DomainCpu,
    title: "Guest sockets/cores/threads reflect the pins",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <cpu><topology sockets dies clusters cores threads>", "<vcpupin>"],
    good: "threads == 1 when vCPUs are not pinned to sibling pairs; threads == 2 only with sibling-pair pins; sockets == number of vNUMA cells; sockets*dies*cores*threads == max vCPUs",
    applies: "pinned guests; Windows (socket licence limits); large guests",
    not_applies: "small floating guests: sockets=N is acceptable (KubeVirt measured sockets >= cores)",
    effect: "unquantified; the SGI UV paper pinned 2 vCPU per core with HT on",
    evidence: Evidence::B,
    sources: &["lv-dom", "kv-cpu", "rh-rhel10cpu", "nova-cpu", "paper-sgi-uv"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <topology>",
        needs: &[Need::VmRestart],
        undo: "licence and hotplug effect; AMD guests need topoext for threads=2; undo",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let vcpus = subject.facts.vcpus.maximum;
    let mut objects = Vec::new();
    let Some(topology) = &subject.facts.cpu.topology else {
        // Windows clients use two sockets at most; libvirt makes each vCPU a socket where nothing is written.
        let many = subject.class == WorkloadClass::Windows && vcpus > 2;
        return Outcome::one(many.then(|| {
            Object::new(
                "CPU topology",
                format!("none: {vcpus} sockets"),
                "sockets and cores as Windows is licensed for",
            )
        }));
    };
    if topology.vcpus() != u64::from(vcpus) {
        let found = format!("room for {} vCPUs", topology.vcpus());
        objects.push(Object::new("CPU topology", found, format!("{vcpus}, the most the domain has")));
    }
    let cells = subject.facts.cells.len() as u32;
    if cells > 1 && topology.sockets.saturating_mul(topology.dies) % cells != 0 && topology.sockets != 1 {
        let found = format!("{} sockets over {cells} cells", topology.sockets);
        objects.push(Object::new("CPU topology", found, "a multiple of the cells"));
    }
    let pins = subject.single_pins();
    if let (Some(host), false) = (subject.context.host, pins.is_empty()) {
        objects.extend(threads(host, topology, &pins));
    }
    Outcome::of(objects)
}

/// Guest threads 2k and 2k+1 are siblings; so must be the PUs they are pinned to, by the kernel's lists: firmware
/// numbers siblings in several ways.
fn threads(host: &Host, topology: &TopologyFacts, pins: &BTreeMap<u32, u32>) -> Vec<Object> {
    let sibling = |a: u32, b: u32| {
        let siblings = host.processor(a).and_then(|processor| processor.siblings.as_ref());
        siblings.is_some_and(|siblings| siblings.contains(b))
    };
    let mut objects = Vec::new();
    if topology.threads == 2 {
        for (vcpu, pu) in pins.iter().filter(|(vcpu, _)| *vcpu % 2 == 0) {
            if let Some(other) = pins.get(&(vcpu + 1)).filter(|other| !sibling(*pu, **other)) {
                let what = format!("vCPUs {vcpu} and {}", vcpu + 1);
                let found = format!("one guest core, on PUs {pu} and {other} of two host cores");
                objects.push(Object::new(what, found, "PUs of one core, or threads='1'"));
            }
        }
    } else if topology.threads == 1 {
        let pairs = pins.values().filter(|pu| pins.values().any(|other| other > *pu && sibling(**pu, *other))).count();
        if pairs > 0 {
            let found = format!("threads='1' with {pairs} pairs of vCPUs on one core each");
            objects.push(Object::new("CPU topology", found, "threads='2', and the pairs next to each other"));
        }
    }
    objects
}
