//! Disks with extreme IOPS use VFIO NVMe, nvme:// or vhost-user-blk.

use nearmetal_domain::DiskFacts;
use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "nvme-passthrough-choice",
    layer: Layer::Pci,
    title: "Disks with extreme IOPS use VFIO NVMe, nvme:// or vhost-user-blk",
    severity: Severity::Decide,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <disk type='nvme'>; <disk type='vhostuser'>; <iotune>", "/sys/class/block/*/stat", "/proc/uptime"],
    good: "disks that reach, or are allowed, `passthrough_iops` or more use one of these or iothread-vq-mapping",
    applies: "latency/throughput classes with a spare NVMe or VF",
    not_applies: "guests that must live-migrate or snapshot",
    effect: "QEMU commit bdd6a90a9e5f: nvme:// versus linux-aio, 4k randread QD1 10.5k -> 21.6k IOPS, randwrite 30.7k -> 37.0k; RHEL 6.3 talk: 800k IOPS by PCI passthrough",
    evidence: Evidence::A,
    sources: &["q-vfionvme", "talk-rhel63-io", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "<hostdev> or <disk type='nvme' model='virtio-blk'>",
        needs: &[Need::VmRestart],
        undo: "no live migration (VFIO without variant driver); device dedicated; undo virtio-blk",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let most = subject.context.settings.passthrough_iops;
    let mut objects = Vec::new();
    for disk in subject.disks() {
        let passes = matches!(disk.kind.as_str(), "nvme" | "vhostuser") || disk.driver.iothread_mapping.len() > 1;
        if passes {
            continue;
        }
        let rate = match measured(host, disk) {
            Ok(rate) => rate,
            Err(outcome) => return outcome,
        };
        let limit = |names: &[&str]| -> u64 {
            disk.limits.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|(_, limit)| limit).sum()
        };
        let allowed = limit(&["total_iops_sec", "read_iops_sec", "write_iops_sec"]);
        let found = match (rate, allowed) {
            (Some(rate), _) if rate >= most => {
                format!("{rate} IOPS on average since boot, through the host's block layer")
            }
            (_, allowed) if allowed >= most => format!("a limit of {allowed} IOPS, through the host's block layer"),
            _ => continue,
        };
        let wanted = "the drive or a virtual function passed through, or several iothreads, if the guest need not \
            migrate";
        objects.push(Object::new(format!("disk {}", disk.target), found, wanted));
    }
    Outcome::of(objects)
}

/// Requests each second since boot of the drive that is all the disk's own; `None` for disks that share one.
fn measured(host: &Host, disk: &DiskFacts) -> Result<Option<u64>, Outcome> {
    let name = disk.source.as_deref().and_then(|path| path.strip_prefix("/dev/"));
    let drive = name.filter(|_| disk.kind == "block").and_then(|name| host.block_device(name));
    let Some(drive) = drive.filter(|drive| drive.partition_of.is_none()) else { return Ok(None) };
    let Some(requests) = drive.requests else {
        return Err(Outcome::unknown(format!("/sys/class/block/{}/stat", drive.name)));
    };
    let Some(uptime) = host.system.uptime else { return Err(Outcome::unknown("/proc/uptime")) };
    Ok(Some(requests / uptime.max(1)))
}
