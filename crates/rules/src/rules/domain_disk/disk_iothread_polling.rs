//! IOThread polling time fits the device.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-iothread-polling",
    layer: Layer::DomainDisk,
    title: "IOThread polling time fits the device",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Density, WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <iothreadids><iothread><poll max>"],
    good: "32768 (default) for NVMe/SSD; 0 for density hosts or slow disks; tune 16000-64000 only with measured latency",
    applies: "NVMe class",
    not_applies: "CPU-short hosts",
    effect: "2016 NVMe tests: 16-32 us polling improved IOPS at QD 1 and 32 (chart not extracted); unquantified",
    evidence: Evidence::B,
    sources: &["q-iothread", "q-help", "q-plug", "lv-dom"],
    fix: Fix {
        live: Some("virsh iothreadset DOM id --poll-max-ns 32768 --live"),
        persistent: "virsh iothreadset --config; <iothreadids><iothread id='1'><poll max='32768'/></iothread> (newer libvirt, after 9.0)",
        needs: &[Need::Live],
        undo: "CPU use; undo old value",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let longest = subject.context.settings.polling_ns;
    let object = |(id, polling): &(u32, u64)| {
        let what = format!("iothread {id} polling");
        let set = |max: u64| Cure::attribute(format!("iothreadids/iothread[@id='{id}']/poll"), "max", max.to_string());
        match (subject.class, *polling) {
            (WorkloadClass::Density, polling) if polling > 0 => {
                Some(Object::new(what, format!("{polling} ns"), "0 ns").cured_by(set(0)))
            }
            (WorkloadClass::Density, _) => None,
            (_, 0) => Some(Object::new(what, "0 ns", "32768 ns, QEMU's default").cured_by(set(32_768))),
            (_, polling) if polling > longest => {
                let object = Object::new(what, format!("{polling} ns"), format!("at most {longest} ns"));
                Some(object.cured_by(set(longest)))
            }
            _ => None,
        }
    };
    Outcome::of(subject.facts.iothreads.polling.iter().filter_map(object).collect())
}
