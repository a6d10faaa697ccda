//! Images on btrfs are NOCOW.

use crate::file_disks::{FileDisk, file_disks};
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "fs-btrfs-nocow",
    layer: Layer::Block,
    title: "Images on btrfs are NOCOW",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/1/mountinfo", "the file's flags (lsattr), asked on the machine itself"],
    good: "C flag set on the file (was set on the directory before the file was made) and no compression",
    applies: "btrfs stores",
    not_applies: "xfs, ext4, zfs (zfs has no such flag)",
    effect: "QEMU commit text: 'low performance' for VM images on btrfs; unquantified",
    evidence: Evidence::B,
    sources: &["lv-nocow", "q-nocow"],
    fix: Fix {
        live: Some("none for a filled file; copy: truncate new; chattr +C new; cp --reflink=never"),
        persistent: "chattr +C on the pool directory; libvirt volume <nocow/>",
        needs: &[Need::Live, Need::VmRestart],
        undo: "loses data checksums and compression; undo: copy again without C",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let mut disks = match file_disks(subject, host) {
        Ok(disks) => disks,
        Err(outcome) => return outcome,
    };
    disks.retain(|disk| disk.mount.kind == "btrfs");
    if disks.is_empty() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    for FileDisk { disk, path, mount, image } in disks {
        if mount.has("nodatacow") {
            continue;
        }
        match image.and_then(|image| image.no_copy_on_write) {
            Some(true) => {}
            Some(false) => {
                let found = format!("btrfs copies {path} on every write ({})", mount.point);
                objects.push(Object::new(format!("disk {}", disk.target), found, "the flag C (chattr +C)"));
            }
            None => {
                return Outcome::unknown("flags of images on btrfs (`lsattr`; read on the machine itself, as root)");
            }
        }
    }
    Outcome::of(objects)
}
