//! Host I/O scheduler suits the device.

use nearmetal_host::BlockDevice;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "blk-scheduler-none-fast",
    layer: Layer::Block,
    title: "Host I/O scheduler suits the device",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/block/*/queue/{scheduler,rotational}"],
    good: "NVMe and fast arrays: none; SATA/SAS SSD: none or mq-deadline; HDD: mq-deadline (bfq only for interactive fairness)",
    applies: "all hosts with local disks",
    not_applies: "stacked dm/md devices show none; act on the leaf devices; virtio disks of a host that is a guest itself",
    effect: "unquantified; RHEL guide: NVMe default none, do not change",
    evidence: Evidence::B,
    sources: &["k-blk", "rh-sched", "rh-rhel6perf"],
    fix: Fix {
        live: Some("echo none > /sys/block/nvme0n1/queue/scheduler"),
        persistent: "udev rule ATTR{queue/scheduler}='none' or tuned [disk] elevator",
        needs: &[Need::Live],
        undo: "low; undo echo the old name",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    let object = |device: &BlockDevice| {
        // Behind a virtio disk another kernel has a scheduler of its own, and says nothing true of the medium.
        let leaf = device.partition_of.is_none() && device.pci.is_some() && !device.name.starts_with("vd");
        let scheduler = device.scheduler.as_deref()?;
        let wanted = match device.rotational {
            _ if device.name.starts_with("nvme") => "none",
            Some(true) => "mq-deadline",
            _ => "none or mq-deadline",
        };
        let good = wanted.contains(scheduler) || (device.rotational == Some(true) && scheduler == "bfq");
        // Where the kernel does not say whether it spins, nothing is chosen.
        let chosen = if wanted == "none or mq-deadline" { device.rotational.map(|_| "none") } else { Some(wanted) };
        let file = format!("/sys/class/block/{}/queue/scheduler", device.name);
        (leaf && !good).then(|| {
            Object::new(format!("drive {}", device.name), scheduler, wanted)
                .cured_by_all(chosen.map(|chosen| Cure::kernel_file(file, chosen)))
        })
    };
    Outcome::of(host.block_devices.iter().filter_map(object).collect())
}
