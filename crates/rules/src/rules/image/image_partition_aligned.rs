//! Guest partitions are aligned to 1 MiB or the optimal I/O size.

use nearmetal_host::{BlockDevice, Host};
use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-partition-aligned",
    layer: Layer::Image,
    title: "Guest partitions are aligned to 1 MiB or the optimal I/O size",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /sys/class/block/*/{start,size,queue/optimal_io_size}"],
    good: "start of every partition a multiple of 1 MiB, or of the optimal I/O size where the disk names one; partitions smaller than 1 MiB are containers and boot code",
    applies: "all (old images from physical machines are typical offenders)",
    not_applies: "Windows, which nearmetal does not read inside",
    effect: "unquantified (a misaligned 4 KiB write becomes two)",
    evidence: Evidence::C,
    sources: &["lv-dom", "k-blk", "own"],
    fix: Fix {
        live: None,
        persistent: "virt-resize, or recreate the partitions",
        needs: &[Need::VmOffline],
        undo: "moves data: back up first; undo: restore",
    },
    check: Check::Inside(check),
};

const MIB: Bytes = Bytes::from_mib(1);

fn check(_subject: &Subject<'_>, inside: &Host) -> Outcome {
    let parts: Vec<&BlockDevice> = inside.block_devices.iter().filter(|device| device.partition_of.is_some()).collect();
    if parts.is_empty() {
        return Outcome::NotApplicable;
    }
    if let Some(part) = parts.iter().find(|part| part.start.is_none()) {
        return Outcome::unknown(format!("/sys/class/block/{}/start", part.name));
    }
    let object = |part: &&BlockDevice| {
        let start = part.start?;
        // Extended partitions show as 1 KiB; what boot loaders need is never read again.
        let small = part.size.is_some_and(|size| size < MIB);
        let on = |unit: Bytes| start.get() % unit.get() == 0;
        let aligned = on(MIB) || part.optimal_io.is_some_and(on);
        let found = || format!("begins at byte {}", start.get());
        (!small && !aligned).then(|| Object::new(format!("partition {}", part.name), found(), "a multiple of 1 MiB"))
    };
    Outcome::of(parts.iter().filter_map(object).collect())
}
