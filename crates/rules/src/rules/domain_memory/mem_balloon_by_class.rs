//! Balloon device and free page reporting match the class.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "mem-balloon-by-class",
    layer: Layer::DomainMemory,
    title: "Balloon device and free page reporting match the class",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Density, WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <memballoon model autodeflate freePageReporting><stats period>"],
    good: "density: virtio + freePageReporting='on' (+stats period); throughput: present but current == max; RT/VFIO: model='none'",
    applies: "all",
    not_applies: "VFIO guests cannot balloon (pages are pinned)",
    effect: "unquantified; Proxmox: ballooning slows Windows",
    evidence: Evidence::B,
    sources: &["lv-dom", "pve-qm", "q-help"],
    fix: Fix {
        live: Some("virsh setmem DOM max --live (deflate)"),
        persistent: "virsh edit <memballoon model='none'/>",
        needs: &[Need::Live, Need::VmRestart],
        undo: "density falls without it; undo virtio",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let balloon = subject.peripherals("memballoon").next();
    let model = balloon.and_then(|balloon| balloon.model.as_deref()).unwrap_or("virtio");
    let facts = subject.facts;
    let object = match subject.class {
        WorkloadClass::Density if model == "none" => {
            Some(Object::new("balloon", "none", "virtio with free page reporting"))
        }
        WorkloadClass::Density => {
            let reports = balloon.and_then(|balloon| balloon.free_page_reporting.as_deref()) == Some("on");
            (!reports).then(|| Object::new("balloon", "without free page reporting", "freePageReporting='on'"))
        }
        WorkloadClass::Throughput => (facts.current_memory < facts.memory).then(|| {
            Object::new(
                "balloon",
                format!("{} of {}", facts.current_memory, facts.memory),
                "all of the memory from the start",
            )
        }),
        _ if model == "none" => None,
        _ if balloon.is_none() => Some(Object::new("balloon", "not written, so libvirt adds one", "model='none'")),
        _ => Some(Object::new("balloon", model, "model='none'")),
    };
    const AT: &str = "devices/memballoon";
    let cures = match subject.class {
        WorkloadClass::Density => vec![
            Cure::attribute(AT, "model", if model == "none" { "virtio" } else { model }),
            Cure::attribute(AT, "freePageReporting", "on"),
        ],
        // Without it libvirt takes all of the memory.
        WorkloadClass::Throughput => vec![Cure::no_element("currentMemory")],
        _ => vec![
            Cure::attribute(AT, "model", "none"),
            Cure::no_attribute(AT, "autodeflate"),
            Cure::no_attribute(AT, "freePageReporting"),
            Cure::no_element("devices/memballoon/stats"),
            Cure::no_element("devices/memballoon/address"),
            Cure::no_element("devices/memballoon/alias"),
        ],
    };
    Outcome::one(object.map(|object| object.cured_by_all(cures)))
}
