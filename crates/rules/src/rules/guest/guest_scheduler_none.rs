//! Guest block devices use no scheduler.

use nearmetal_host::{BlockDevice, Host};
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-scheduler-none",
    layer: Layer::Guest,
    title: "Guest block devices use no scheduler",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /sys/block/{vd*,sd*}/queue/scheduler", "guest /sys/block/*/mq"],
    good: "none (or mq-deadline on a disk with one queue)",
    applies: "Linux guests",
    not_applies: "guests that need bfq or io.weight for each control group",
    effect: "unquantified; the host reorders again below the guest",
    evidence: Evidence::B,
    sources: &["k-blk", "rh-sched", "t-vg"],
    fix: Fix {
        live: Some("in the guest: echo none > /sys/block/vda/queue/scheduler"),
        persistent: "in the guest: udev rule, or tuned virtual-guest",
        needs: &[Need::Live],
        undo: "low; undo echo the old name",
    },
    check: Check::Inside(check),
};

fn check(subject: &Subject<'_>, inside: &Host) -> Outcome {
    let is_disk = |device: &&BlockDevice| {
        let named = ["vd", "sd", "xvd", "nvme"].iter().any(|prefix| device.name.starts_with(prefix));
        device.partition_of.is_none() && named && device.scheduler.is_some()
    };
    let disks: Vec<&BlockDevice> = inside.block_devices.iter().filter(is_disk).collect();
    if disks.is_empty() {
        return Outcome::unknown(format!("/sys/block/*/queue/scheduler in {}", subject.domain.name));
    }
    let object = |device: &&BlockDevice| {
        let scheduler = device.scheduler.as_deref()?;
        // Linux itself gives mq-deadline to disks with one queue.
        let good = scheduler == "none" || (scheduler == "mq-deadline" && device.queues.is_none_or(|queues| queues < 2));
        (!good).then(|| Object::new(format!("disk {} in the guest", device.name), scheduler, "none"))
    };
    Outcome::of(disks.iter().filter_map(object).collect())
}
