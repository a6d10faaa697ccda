//! Image store really supports O_DIRECT.

use crate::file_disks::{FileDisk, file_disks};
use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "fs-o-direct-capable",
    layer: Layer::Block,
    title: "Image store really supports O_DIRECT",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &[
        "/proc/1/mountinfo",
        "an open of the image with O_DIRECT, and /proc/PID/fdinfo of its QEMU, on the machine itself",
    ],
    good: "O_DIRECT open works and the running image fd has O_DIRECT when cache=none|directsync",
    applies: "cache=none guests",
    not_applies: "tmpfs before 6.6, some FUSE and network file systems",
    effect: "io=native without O_DIRECT is refused or falls back; unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "pve-drive", "rh-rhel10cache", "own"],
    fix: Fix {
        live: None,
        persistent: "move the image store to a file system that supports it",
        needs: &[Need::VmRestart],
        undo: "none",
    },
    check: Check::Domain(check),
};

/// File systems whose files can always be opened past the page cache.
const CAPABLE: [&str; 9] = ["btrfs", "ext2", "ext3", "ext4", "f2fs", "gfs2", "nfs", "nfs4", "xfs"];

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let mut disks = match file_disks(subject, host) {
        Ok(disks) => disks,
        Err(outcome) => return outcome,
    };
    disks.retain(|disk| matches!(disk.disk.driver.cache.as_deref(), Some("none" | "directsync")));
    if disks.is_empty() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    let mut unknown = false;
    for FileDisk { disk, path, mount, image } in disks {
        let what = format!("disk {}", disk.target);
        let running = subject.which == Which::Running;
        match image.map(|image| (image.direct, image.opened_direct)) {
            Some((Some(false), _)) => {
                let found = format!("{path} does not open with O_DIRECT, on {} ({})", mount.kind, mount.point);
                objects.push(Object::new(what, found, "a file system that takes O_DIRECT"));
            }
            Some((_, Some(false))) if running => {
                let found = format!("{path} is open through the page cache, although the definition says cache='none'");
                objects.push(Object::new(what, found, "opened with O_DIRECT"));
            }
            Some((Some(true), _)) => {}
            _ => unknown |= !CAPABLE.contains(&mount.kind.as_str()),
        }
    }
    if objects.is_empty() && unknown {
        return Outcome::unknown("whether images open with O_DIRECT (tried on the machine itself, as root)");
    }
    Outcome::of(objects)
}
