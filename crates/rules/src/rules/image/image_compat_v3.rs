//! qcow2 uses version 3 and is not marked as damaged.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-compat-v3",
    layer: Layer::Image,
    title: "qcow2 uses version 3 and is not marked as damaged",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["qemu-img info --output=json -U --backing-chain IMAGE: compat, corrupt"],
    good: "compat '1.1', corrupt false",
    applies: "qcow2",
    not_applies: "images that very old tools have to read",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["q-help"],
    fix: Fix {
        live: None,
        persistent: "qemu-img check; qemu-img amend -o compat=1.1 while the VM is off",
        needs: &[Need::VmOffline],
        undo: "old QEMU cannot open it; undo amend compat=0.10",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    subject.judge_images(
        |_| true,
        |disk, chain| {
            let of_format = std::iter::once(&chain.top).chain(&chain.below).filter(|image| image.format == "qcow2");
            let mut objects = Vec::new();
            let mut judged = false;
            for image in of_format {
                judged = true;
                let mut object = |found: &str, wanted: &str| {
                    objects.push(Object::new(format!("disk {}, {}", disk.target, image.name), found, wanted));
                };
                if image.compat.as_deref() == Some("0.10") {
                    object("version 2 (compat 0.10)", "version 3 (compat 1.1)");
                }
                if image.corrupt == Some(true) {
                    object("marked as damaged, opens read-only", "sound: see `qemu-img check`");
                }
            }
            judged.then(|| Outcome::of(objects))
        },
    )
}
