//! Image store file system suits VM images.

use nearmetal_host::Mount;

use crate::file_disks::{FileDisk, file_disks};
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "fs-image-store-type",
    layer: Layer::Block,
    title: "Image store file system suits VM images",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/1/mountinfo", "domain <disk type='file'>"],
    good: "xfs or ext4 with relatime/noatime; or block/LVM; not ntfs-fuse/overlayfs/CIFS; NFS >= 4.1 with care",
    applies: "file-backed disks",
    not_applies: "block-backed disks",
    effect: "one 2021 home test, NVMe + qcow2: sequential 1M Q8 read ext4 897 MB/s, xfs 996 MB/s; 4K random about equal (weak evidence)",
    evidence: Evidence::A,
    sources: &["fsbench", "rh-rhel7io"],
    fix: Fix {
        live: Some("mount -o remount,noatime"),
        persistent: "fstab; move the image with virsh blockcopy",
        needs: &[Need::Live],
        undo: "low; undo remount",
    },
    check: Check::Domain(check),
};

/// Made for other things than large files that are written in place.
const UNSUITABLE: [&str; 10] = ["9p", "aufs", "cifs", "exfat", "fuseblk", "ntfs", "ntfs3", "overlay", "smb3", "vfat"];

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let disks = match file_disks(subject, host) {
        Ok(disks) => disks,
        Err(outcome) => return outcome,
    };
    let mut objects = Vec::new();
    for FileDisk { disk, path, mount, .. } in disks {
        let mut add = |found: String, wanted: &str| {
            objects.push(Object::new(format!("disk {}", disk.target), format!("{path} is on {found}"), wanted));
        };
        let kind = mount.kind.as_str();
        if UNSUITABLE.contains(&kind) {
            add(format!("{kind} ({})", mount.point), "xfs, ext4, or a block device");
        } else if kind.starts_with("nfs") && !is_new_nfs(mount) {
            let version = mount.option("vers").unwrap_or("?");
            add(format!("NFS {version} ({})", mount.point), "NFS 4.1 or later");
        }
        let local = !kind.starts_with("nfs") && !["tmpfs", "ramfs"].contains(&kind);
        if local && !mount.has("relatime") && !mount.has("noatime") && !mount.has("ro") {
            add(format!("{kind} that records every read ({})", mount.point), "relatime or noatime");
        }
    }
    Outcome::of(objects)
}

/// Sessions and parallel access came with 4.1.
fn is_new_nfs(mount: &Mount) -> bool {
    let minor = mount.option("vers").and_then(|version| version.strip_prefix("4."));
    minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= 1)
}
