//! The qcow2 L2 cache covers the whole disk.

use nearmetal_domain::DefinitionEdit;
use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-qcow2-l2-cache",
    layer: Layer::Image,
    title: "The qcow2 L2 cache covers the whole disk",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &[
        "qemu-img info --output=json -U --backing-chain IMAGE: virtual-size, cluster-size, extended-l2",
        "domain <driver><metadata_cache><max_size>",
    ],
    good: "cache bytes >= virtual size * 8 / cluster size (twice that with extended L2): 1 MiB for 8 GiB at 64 KiB clusters; the default of at most 32 MiB covers 256 GiB",
    applies: "qcow2 disks the default does not cover",
    not_applies: "raw; small disks; density",
    effect: "unquantified (each miss costs one more table read)",
    evidence: Evidence::B,
    sources: &["q-qcow2cache", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "<metadata_cache><max_size unit='MiB'>64</max_size></metadata_cache> in <driver> (libvirt 7.0 and later)",
        needs: &[Need::VmRestart],
        undo: "takes memory for each disk; undo remove",
    },
    check: Check::Domain(check),
};

/// QEMU's limit where nothing is written, on Linux since 3.1.
const DEFAULT: Bytes = Bytes::from_mib(32);

fn check(subject: &Subject<'_>) -> Outcome {
    subject.judge_images(
        |disk| disk.driver.format.as_deref() == Some("qcow2"),
        |disk, chain| {
            let image = &chain.top;
            let (Some(cluster), "qcow2") = (image.cluster, image.format.as_str()) else { return None };
            let entry = if image.extended_l2 == Some(true) { 16 } else { 8 };
            let needed = Bytes::new(image.virtual_size.get().div_ceil(cluster.get())).times(entry);
            let given = disk.driver.metadata_cache.unwrap_or(DEFAULT);
            let object = (given < needed).then(|| {
                let driver = format!("devices/disk[target/@dev='{}']/driver/metadata_cache/max_size", disk.target);
                let mib = needed.get().div_ceil(1 << 20).to_string();
                Object::new(format!("disk {}", disk.target), format!("at most {given}"), format!("{mib} MiB"))
                    .cured_by(Cure::Definition(DefinitionEdit::SetText { at: driver.clone(), text: mib }))
                    .cured_by(Cure::attribute(driver, "unit", "MiB"))
            });
            Some(Outcome::one(object))
        },
    )
}
