//! No guest disk is on an LVM volume with snapshots.

use nearmetal_domain::DiskFacts;

use crate::finding::{Object, Outcome};
use crate::lvm::mapped_name;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "blk-queue-limits-dm-thin",
    layer: Layer::Block,
    title: "No guest disk is on an LVM volume with snapshots",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/block/dm-*/{dm/name,slaves}", "domain <disk type='block'>"],
    good: "no dm-snapshot under a disk; thin pools are fine",
    applies: "disks on LVM volumes",
    not_applies: "plain partitions",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["own"],
    fix: Fix {
        live: Some("cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue <dev>"),
        persistent: "cryptsetup --persistent",
        needs: &[Need::Live],
        undo: "latency/CPU trade-off; undo refresh without the flags",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let volumes = subject.disks().filter_map(|disk| Some((disk, mapped_name(disk)?)));
    let volumes: Vec<(&DiskFacts, String)> = volumes.collect();
    if volumes.is_empty() {
        return Outcome::NotApplicable;
    }
    let object = |(disk, name): &(&DiskFacts, String)| {
        let device = host.block_devices.iter().find(|device| device.mapped_name.as_ref() == Some(name))?;
        let below = device.parts.iter().filter_map(|part| host.block_device(part)?.mapped_name.as_deref());
        let layer = below.filter_map(layer_of).find(|layer| matches!(*layer, "real" | "cow"))?;
        let found = match layer {
            "real" => "a volume with LVM snapshots: the first write to each chunk copies it",
            _ => "an LVM snapshot: the first write to each chunk copies it",
        };
        Some(Object::new(format!("disk {}", disk.target), found, "a volume without LVM snapshots, or a thin one"))
    };
    Outcome::of(volumes.iter().filter_map(object).collect())
}

/// `vg-lv-real` is the layer `real` of `vg-lv`: a hyphen inside a name would be doubled.
fn layer_of(name: &str) -> Option<&str> {
    let plain = name.replace("--", "\0\0");
    let mut ends = plain.match_indices('-').map(|(at, _)| at);
    match (ends.next(), ends.next(), ends.next()) {
        (Some(_), Some(end), None) => name.get(end + 1..),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::layer_of;

    #[test]
    fn hyphens_inside_names_are_doubled() {
        assert_eq!(layer_of("vg-lv-real"), Some("real"));
        assert_eq!(layer_of("my--vg-my--lv-cow"), Some("cow"));
        for plain in ["vg-lv", "a--b-real", "real", "", "a-b-c-d"] {
            assert_eq!(layer_of(plain), None, "{plain}");
        }
    }
}
