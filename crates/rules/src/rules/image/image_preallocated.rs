//! Image files are preallocated (metadata or falloc/full).

use nearmetal_domain::DiskFacts;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-preallocated",
    layer: Layer::Image,
    title: "Image files are preallocated (metadata or falloc/full)",
    severity: Severity::Note,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &[
        "qemu-img info --output=json -U --backing-chain IMAGE: actual-size, virtual-size",
        "length of the image file",
    ],
    good: "performance image files: actual-size >= 95% of virtual-size (falloc or full); qcow2: at least its tables (preallocation=metadata), seen by a file as long as the disk",
    applies: "file-backed performance disks",
    not_applies: "thin density; disks with discard='unmap', which give space back on purpose",
    effect: "unquantified; saves the cost of allocating at the first write; RHV docs: preallocated gives faster \
        writes; the INFN paper: metadata alone slowed writes on hard disks and not on flash",
    evidence: Evidence::B,
    sources: &["q-help", "rh-rhv-prealloc", "paper-infn"],
    fix: Fix {
        live: None,
        persistent: "qemu-img create -f qcow2 -o preallocation=falloc, then copy; raw: fallocate while the VM is off",
        needs: &[Need::VmOffline],
        undo: "uses all space at once; undo: convert to sparse",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let settings = subject.context.settings;
    let thin = |disk: &DiskFacts| disk.driver.discard.as_deref() == Some("unmap");
    subject.judge_images(
        |disk| disk.kind == "file" && !thin(disk),
        |disk, chain| {
            let image = &chain.top;
            let Some(allocated) = image.allocated else {
                return Some(Outcome::unknown(format!("{}: the space it takes", image.name)));
            };
            let enough = image.virtual_size.get() / 100 * settings.preallocated_percent.min(100);
            if allocated.get() >= enough {
                return Some(Outcome::Clean);
            }
            if image.format == "qcow2" {
                match image.length {
                    // Tables that are there from the start point behind each other to the end of the disk.
                    Some(length) if length >= image.virtual_size => return Some(Outcome::Clean),
                    Some(_) => {}
                    None => return Some(Outcome::unknown(format!("{}: the length of its file", image.name))),
                }
            }
            let found = format!("{allocated} of {} allocated", image.virtual_size);
            Some(Outcome::one(Some(Object::new(format!("disk {}", disk.target), found, "preallocated"))))
        },
    )
}
