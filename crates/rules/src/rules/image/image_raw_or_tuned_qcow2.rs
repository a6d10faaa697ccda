//! Performance disks are raw, or qcow2 with suitable options.

use nearmetal_domain::DiskFacts;
use nearmetal_host::images::ImageChain;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-raw-or-tuned-qcow2",
    layer: Layer::Image,
    title: "Performance disks are raw, or qcow2 with suitable options",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["qemu-img info --output=json -U --backing-chain IMAGE", "domain <driver type>"],
    good: "raw on block or xfs for latency and throughput; qcow2 with preallocation and matching cache where snapshots are needed; not vmdk, vdi or vhd at run time",
    applies: "throughput and latency guests",
    not_applies: "golden-image clones, density",
    effect: "Proxmox (2013 benchmark): raw up to 10% faster than qcow2; the INFN paper: write speed differed by more than 50% between image choices in some cases, no values for each choice",
    evidence: Evidence::A,
    sources: &["pve-qm", "rh-rhel7io", "paper-infn"],
    fix: Fix {
        live: Some("virsh blockcopy DOM vda --dest X --format raw --pivot"),
        persistent: "convert: qemu-img convert -p -W -O raw; change <driver type='raw'>",
        needs: &[Need::Live, Need::VmRestart],
        undo: "loses snapshots and thinness; undo convert back",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let judge = |(disk, chain): (&DiskFacts, Result<&ImageChain, String>)| {
        // What QEMU opens it as counts: a definition that says raw of a qcow2 image is raw to the guest.
        let opened = disk.driver.format.as_deref().unwrap_or("raw");
        let below = chain.into_iter().flat_map(|chain| &chain.below).map(|image| image.format.as_str());
        let slow = std::iter::once(opened).chain(below).find(|format| !matches!(*format, "raw" | "qcow2"))?;
        Some(Object::new(format!("disk {}", disk.target), slow, "raw, or qcow2 where snapshots are needed"))
    };
    if subject.images().next().is_none() {
        return Outcome::NotApplicable;
    }
    Outcome::of(subject.images().filter_map(judge).collect())
}
