//! Completions run on the submitting CPU group.

use nearmetal_host::BlockDevice;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "blk-rq-affinity",
    layer: Layer::Block,
    title: "Completions run on the submitting CPU group",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/sys/block/*/queue/rq_affinity"],
    good: "1 (default) generally; 2 for high-IOPS devices when the completing CPU is saturated",
    applies: "high IOPS",
    not_applies: "isolated-CPU hosts (keep completions off vCPU cores)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-blk"],
    fix: Fix {
        live: Some("echo 2 > /sys/block/X/queue/rq_affinity"),
        persistent: "udev rule",
        needs: &[Need::Live],
        undo: "more IPIs; undo 1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    // With isolated PUs whoever took completions away from the PU that asked may have meant to.
    if !host.isolated_cpus().is_empty() {
        return if host.block_devices.iter().all(|device| device.queue.rq_affinity != Some(0)) {
            Outcome::Clean
        } else {
            Outcome::NotApplicable
        };
    }
    let fast = host
        .block_devices
        .iter()
        .filter(|device| device.partition_of.is_none() && device.pci.is_some() && device.rotational == Some(false));
    let object = |device: &BlockDevice| {
        let off = device.queue.rq_affinity == Some(0);
        off.then(|| {
            let path = format!("/sys/class/block/{}/queue/rq_affinity", device.name);
            let found = "0: requests complete wherever the interrupt lands";
            Object::new(format!("drive {}", device.name), found, "1, the default")
                .cured_by(Cure::kernel_file(path, "1"))
        })
    };
    Outcome::of(fast.filter_map(object).collect())
}
