//! Disks of vhost-user servers come back after the server restarts.

use nearmetal_domain::DiskFacts;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-vhost-user-blk-for-extreme",
    layer: Layer::DomainDisk,
    title: "Disks of vhost-user servers come back after the server restarts",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["domain <disk type='vhostuser'><source><reconnect>"],
    good: "reconnect set; for shared memory see mem-shared-for-vhost-user",
    applies: "disks served by SPDK or another vhost-user process",
    not_applies: "guests that need snapshots, iotune, blockcopy in QEMU",
    effect: "proposed kernel vhost-blk (never merged as of the thread): SSD 4k randread QD128 host 95.8k, QEMU virtio 57.5k, vhost-blk 95.6k IOPS",
    evidence: Evidence::A,
    sources: &["vhostblk", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <disk type='vhostuser'>",
        needs: &[Need::VmRestart],
        undo: "QEMU block features are lost; undo virtio-blk",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let disks: Vec<&DiskFacts> = subject.facts.disks.iter().filter(|disk| disk.kind == "vhostuser").collect();
    if disks.is_empty() {
        return Outcome::NotApplicable;
    }
    let object = |disk: &&&DiskFacts| {
        let again = disk.reconnect.as_deref() == Some("yes");
        let at = format!("devices/disk[target/@dev='{}']/source/reconnect", disk.target);
        (!again).then(|| {
            let found = "no <reconnect>: it does not survive a restart of its server";
            Object::new(format!("disk {}", disk.target), found, "<reconnect enabled='yes'/>")
                .cured_by(Cure::attribute(at, "enabled", "yes"))
        })
    };
    Outcome::of(disks.iter().filter_map(|disk| object(&disk)).collect())
}
