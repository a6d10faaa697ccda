//! Overlays allocate parts of clusters.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-cluster-extended-l2",
    layer: Layer::Image,
    title: "Overlays allocate parts of clusters",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["qemu-img info --output=json -U --backing-chain IMAGE: cluster-size, extended-l2"],
    good: "overlays with backing files and small random writes: extended_l2=on with clusters of 128 KiB to 2 MiB; 64 KiB, the default, elsewhere",
    applies: "qcow2 overlays (QEMU 5.2 and later)",
    not_applies: "raw; images without backing file",
    effect: "unquantified (the first write to a cluster copies less from the backing file)",
    evidence: Evidence::B,
    sources: &["igalia-sub", "q-qcow2cache"],
    fix: Fix {
        live: None,
        persistent: "qemu-img create -o cluster_size=128k,extended_l2=on for the next overlay",
        needs: &[Need::VmOffline],
        undo: "tools older than QEMU 5.2 cannot open it; undo convert",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    subject.judge_images(
        |_| true,
        |disk, chain| {
            let image = &chain.top;
            if image.format != "qcow2" || image.backing.is_none() {
                return None;
            }
            let object = (image.extended_l2 != Some(true)).then(|| {
                let found = match image.cluster {
                    Some(cluster) => format!("an overlay with whole clusters of {cluster}"),
                    None => "an overlay with whole clusters".to_owned(),
                };
                Object::new(format!("disk {}", disk.target), found, "extended_l2=on")
            });
            Some(Outcome::one(object))
        },
    )
}
