//! detect_zeroes is off unless thin storage wants it.

use nearmetal_domain::DiskFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-detect-zeroes-off",
    layer: Layer::DomainDisk,
    title: "detect_zeroes is off unless thin storage wants it",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <disk><driver detect_zeroes discard>"],
    good: "off for performance disks; unmap only to keep images thin",
    applies: "throughput",
    not_applies: "density with thin images",
    effect: "unquantified; libvirt calls the detection compute intensive",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-help"],
    fix: Fix {
        live: None,
        persistent: "<driver detect_zeroes='off'/>",
        needs: &[Need::VmRestart],
        undo: "images grow; undo unmap",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let object = |disk: &DiskFacts| {
        let driver = &disk.driver;
        // Without discard QEMU takes `unmap` as `on`: every write is searched and nothing is given back.
        let thin = driver.discard.as_deref() == Some("unmap");
        let found = match driver.detect_zeroes.as_deref()? {
            "on" => "on: QEMU searches every write for zeroes",
            "unmap" if !thin => "unmap without discard='unmap': QEMU searches every write for zeroes and frees nothing",
            _ => return None,
        };
        let at = format!("devices/disk[target/@dev='{}']/driver", disk.target);
        let cure = Cure::attribute(at, "detect_zeroes", "off");
        Some(Object::new(format!("disk {} detect_zeroes", disk.target), found, "off").cured_by(cure))
    };
    Outcome::of(subject.disks().filter_map(object).collect())
}
