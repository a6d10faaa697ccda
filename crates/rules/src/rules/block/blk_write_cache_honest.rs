//! The host's write-cache setting is true, and flushes reach the drive.

use nearmetal_host::BlockDevice;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "blk-write-cache-honest",
    layer: Layer::Block,
    title: "The host's write-cache setting is true, and flushes reach the drive",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/sys/block/*/queue/{write_cache,fua}", "/sys/block/*/device/scsi_disk/*/cache_type"],
    good: "value matches the hardware; 'write through' only with power-loss protection; no cache='unsafe' on data disks",
    applies: "all",
    not_applies: "scratch/CI guests that are thrown away",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-blk", "rh-rhel10cache"],
    fix: Fix {
        live: Some("hdparm/nvme set-feature; echo 'write through' only tells the kernel"),
        persistent: "firmware or udev",
        needs: &[Need::Live],
        undo: "data loss on a power failure if wrong; undo: write back",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let object = |device: &BlockDevice| {
        let leaf = device.partition_of.is_none() && device.pci.is_some();
        let queue = &device.queue;
        if !leaf || queue.write_cache.as_deref() != Some("write through") {
            return None;
        }
        // Drivers offer forced writes together with a volatile cache, and a SCSI drive names its cache itself: where
        // either is seen beside `write through`, somebody wrote that into the kernel's file.
        let told = queue.drive_cache.as_deref().is_some_and(|cache| cache.starts_with("write back"));
        let seen = match (told, queue.forced_unit_access == Some(true)) {
            (true, _) => "the drive says write back",
            (false, true) => "its driver found a volatile cache",
            (false, false) => return None,
        };
        let found = format!("set to write through by hand: the kernel sends no flush, and {seen}");
        Some(Object::new(
            format!("drive {}", device.name),
            found,
            "write back, unless the cache survives a power failure",
        ))
    };
    Outcome::of(host.block_devices.iter().filter_map(object).collect())
}
