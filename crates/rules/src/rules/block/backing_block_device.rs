//! Busy disks are on block devices or NVMe, not in sparse files.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "backing-block-device",
    layer: Layer::Block,
    title: "Busy disks are on block devices or NVMe, not in sparse files",
    severity: Severity::Note,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <disk type>"],
    good: "throughput/latency database disks: type='block' (LV, LUN, namespace) or preallocated raw",
    applies: "I/O-heavy guests",
    not_applies: "density class where snapshots/thin files matter more",
    effect: "the INFN paper recommends block devices for lower latency and higher throughput, without numbers; unquantified",
    evidence: Evidence::B,
    sources: &["paper-infn", "rh-rhel7io", "lv-dom"],
    fix: Fix {
        live: Some("virsh blockcopy DOM vda --dest /dev/vg/lv --blockdev --pivot"),
        persistent: "virsh edit",
        needs: &[Need::Live],
        undo: "file snapshots get harder; undo: blockcopy back",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let file = subject.disks().filter(|disk| disk.kind == "file" && disk.source.is_some());
    Outcome::of(
        file.map(|disk| {
            Object::new(format!("disk {}", disk.target), "an image file", "a block device, for the busiest disks")
        })
        .collect(),
    )
}
