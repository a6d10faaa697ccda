//! Request merging is off only on fast drives.

use nearmetal_host::BlockDevice;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "blk-nomerges-random",
    layer: Layer::Block,
    title: "Request merging is off only on fast drives",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/block/*/queue/{nomerges,rotational}"],
    good: "0 default; 2 acceptable when merged requests < 1% of I/O on NVMe random loads",
    applies: "random I/O throughput class",
    not_applies: "sequential or HDD",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-blk"],
    fix: Fix {
        live: Some("echo 2 > /sys/block/X/queue/nomerges"),
        persistent: "udev rule",
        needs: &[Need::Live],
        undo: "sequential loads slow down; undo 0",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let object = |device: &BlockDevice| {
        let slow = device.partition_of.is_none() && device.pci.is_some() && device.rotational == Some(true);
        let nomerges = device.queue.nomerges.filter(|nomerges| slow && *nomerges > 0)?;
        let path = format!("/sys/class/block/{}/queue/nomerges", device.name);
        let found = format!("{nomerges}: adjacent requests are not merged on a spinning disk");
        Some(Object::new(format!("drive {}", device.name), found, "0").cured_by(Cure::kernel_file(path, "0")))
    };
    Outcome::of(host.block_devices.iter().filter_map(object).collect())
}
