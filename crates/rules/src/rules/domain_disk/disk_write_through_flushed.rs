//! A write that was called safe is on the drive.

use nearmetal_domain::DiskFacts;
use nearmetal_host::Host;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::lvm::mapped_name;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::rules::domain_disk::disk_cache_none::is_worth_native;
use crate::rules::host_kernel::version_floor_for_features::{Version, version};
use crate::subject::{Subject, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-write-through-flushed",
    layer: Layer::DomainDisk,
    title: "A write that the guest was told is safe is on the drive",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &[
        "domain <disk type><target bus><driver cache io type>",
        "domain <os><type machine>",
        "versions of QEMU and libvirt, from libvirt",
        "/sys/block/*/queue/write_cache",
    ],
    good: "raw disks: io=io_uring, or io=native with cache=none or directsync. Without virtio-scsi, cache=none is as good: the guest flushes by itself",
    applies: "raw disks (file, block, volume) with io=threads, the default: with cache=writethrough or directsync from QEMU 10.0.3 on; on a SCSI bus with any cache but unsafe from QEMU 10.1 on with a machine type of 10.1 or later, for the guest's FUA writes. With any io: cache=writethrough or directsync, QEMU 9.0 to 9.2 and libvirt 11 or later",
    not_applies: "qcow2: QEMU flushes below it after each write; QEMU before 9.0; device='lun'; a block device without a volatile cache (queue/write_cache `write through`) with cache=none or directsync. A distribution's build may have the change or its cure under another version: for QEMU 10.0.0 to 10.0.2 (RHEL's qemu-kvm 10.0.0-8 has the change) and for machine types of distributions the rule cannot tell",
    effect: "a write is called safe while it is in a volatile cache, and a power loss takes it. Measured with qemu-io under strace (QEMU 10.0.13, 11.1.3): no flush follows the first write after opening or after a completed flush, nor a write that lands while the fdatasync of another runs; other writes, one after the other, are flushed. Measured in a guest (10.0.13): 1 MiB written and synced was gone after a power loss, and io_uring kept it. Read in the source and not measured: guests' FUA writes on scsi-hd take the same way (Linux sends one right after a flush, at each commit of a journal), and QEMU 9.0 to 9.2 misses flushes where libvirt leaves the raw layer out. The cause: commit d402da1360c2 calls bdrv_co_flush, which does nothing while write_gen equals flushed_gen, and write_gen rises only when the write is over. Reported in December 2025; no merge was found",
    evidence: Evidence::A,
    sources: &["q-fua", "q-missed-flush", "q-dpofua", "lv-raw-layer", "own"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <driver io='io_uring'/>",
        needs: &[Need::VmRestart],
        undo: "io='threads'",
    },
    check: Check::Domain(check),
};

/// The first stable release with the fault; no release without it is known since.
const SINCE: Version = (10, 0, 3);
/// The first release with writes that carry FUA down to files; builds between this and [`SINCE`] decide for themselves.
const NATIVE_FUA: Version = (10, 0, 0);
/// The first release whose SCSI disks tell guests that they take FUA writes, with machine types as new.
const SCSI_FUA: Version = (10, 1, 0);
/// The first release that libvirt gives raw images to without a raw layer.
const WITHOUT_RAW_LAYER: Version = (9, 0, 0);
/// The first libvirt that does.
const LIBVIRT_WITHOUT_RAW_LAYER: Version = (11, 0, 0);

/// What is missing where the version is.
const QEMU_UNKNOWN: &str = "the version of QEMU (libvirt tells it, on the machine itself)";

/// Whether, and why, a disk loses flushes.
enum Verdict {
    Safe,
    /// The words for it, and what to set.
    Exposed(String, Vec<(&'static str, &'static str)>),
    Unknown(String),
}

fn check(subject: &Subject<'_>) -> Outcome {
    let raw = |disk: &&DiskFacts| {
        matches!(disk.driver.format.as_deref(), None | Some("raw"))
            && matches!(disk.kind.as_str(), "block" | "file" | "volume")
    };
    let raw: Vec<&DiskFacts> = subject.disks().filter(raw).collect();
    if raw.is_empty() {
        return Outcome::NotApplicable;
    }
    let asked: Vec<&DiskFacts> = raw.into_iter().filter(|disk| is_synchronous(disk) || takes_fua(disk)).collect();
    if asked.is_empty() {
        return Outcome::of(Vec::new());
    }
    let Some(host) = subject.context.host else { return Outcome::no_host() };
    let (mut objects, mut missing) = (Vec::new(), Vec::new());
    for disk in asked.into_iter().filter(|disk| !is_without_volatile_cache(host, disk)) {
        match verdict(subject, host, disk) {
            Verdict::Safe => {}
            Verdict::Unknown(fact) => missing.push(fact),
            Verdict::Exposed(found, settings) => objects.push(object(subject, disk, found, &settings)),
        }
    }
    missing.dedup();
    match (objects.is_empty(), missing.is_empty()) {
        (true, false) => Outcome::CannotTell(missing),
        _ => Outcome::of(objects),
    }
}

/// Whether QEMU has to flush each write itself: the guest sees no write cache and never asks.
fn is_synchronous(disk: &DiskFacts) -> bool {
    matches!(disk.driver.cache.as_deref(), Some("writethrough" | "directsync"))
}

/// Whether the guest may send FUA writes, on which QEMU acts.
fn takes_fua(disk: &DiskFacts) -> bool {
    disk.bus.as_deref() == Some("scsi") && disk.driver.cache.as_deref() != Some("unsafe")
}

fn is_direct(disk: &DiskFacts) -> bool {
    matches!(disk.driver.cache.as_deref(), Some("none" | "directsync"))
}

fn uses_threads(disk: &DiskFacts) -> bool {
    matches!(disk.driver.io.as_deref(), None | Some("threads"))
}

/// Whether a write past the page cache is safe once it is done: the block device is known, and keeps nothing in a
/// volatile cache. Files are left out: their own tables may not be written yet.
fn is_without_volatile_cache(host: &Host, disk: &DiskFacts) -> bool {
    let device = || {
        let name = disk.source.as_deref().filter(|_| disk.kind == "block")?.strip_prefix("/dev/")?;
        let mapped = mapped_name(disk);
        let of_volume = || host.block_devices.iter().find(|device| mapped.is_some() && device.mapped_name == mapped);
        host.block_device(name).or_else(of_volume)
    };
    is_direct(disk) && device().is_some_and(|device| device.queue.write_cache.as_deref() == Some("write through"))
}

fn verdict(subject: &Subject<'_>, host: &Host, disk: &DiskFacts) -> Verdict {
    let exact = host.system.qemu_version.as_deref().and_then(|text| Some((text, version(text)?)));
    // From 10.0 on the other engines ask the kernel for a synchronous write, whoever wants it.
    let matters = uses_threads(disk) || is_synchronous(disk);
    let Some((text, qemu)) = exact else {
        return if matters { Verdict::Unknown(QEMU_UNKNOWN.to_owned()) } else { Verdict::Safe };
    };
    if qemu < NATIVE_FUA {
        return if is_synchronous(disk) { without_raw_layer(host, disk, text, qemu) } else { Verdict::Safe };
    }
    if !uses_threads(disk) {
        return Verdict::Safe;
    }
    let cache = disk.driver.cache.as_deref().unwrap_or("writeback");
    let guest_fua = takes_fua(disk) && qemu >= SCSI_FUA;
    let settings = engine(subject, host, disk);
    if is_synchronous(disk) && qemu >= SINCE {
        let found =
            format!("cache={cache} with io=threads: QEMU {text} calls the first write after a flush safe unflushed");
        return Verdict::Exposed(found, settings);
    }
    if is_synchronous(disk) {
        return Verdict::Unknown(format!(
            "whether this build of QEMU {text} has commit d402da1360c2 (10.0.3 has it, and RHEL's 10.0.0-8)"
        ));
    }
    match (guest_fua, shows_fua(subject.facts.boot.machine.as_deref())) {
        (false, _) | (true, Some(false)) => Verdict::Safe,
        (true, None) => {
            let machine = subject.facts.boot.machine.as_deref().unwrap_or_default();
            Verdict::Unknown(format!("whether SCSI disks of machine type {machine} take FUA writes"))
        }
        (true, Some(true)) => {
            let found = format!(
                "cache={cache} with io=threads on SCSI: QEMU {text} calls a guest's FUA write after a flush safe unflushed"
            );
            Verdict::Exposed(found, settings)
        }
    }
}

/// QEMU before 10.0 makes FUA writes out of a write and a flush of the same node, which misses it unless a raw layer
/// lies above.
fn without_raw_layer(host: &Host, disk: &DiskFacts, text: &str, qemu: Version) -> Verdict {
    if qemu < WITHOUT_RAW_LAYER {
        return Verdict::Safe;
    }
    let Some(libvirt) = host.system.libvirt_version.as_deref().and_then(version) else {
        return Verdict::Unknown("the version of libvirt (it tells it, on the machine itself)".to_owned());
    };
    if libvirt < LIBVIRT_WITHOUT_RAW_LAYER {
        return Verdict::Safe;
    }
    let cache = disk.driver.cache.as_deref().unwrap_or_default();
    let found = format!(
        "cache={cache}: QEMU {text} without a raw layer, as this libvirt starts it, probably misses flushes (read in the source)"
    );
    Verdict::Exposed(found, vec![("cache", "none")])
}

/// What to set so that the kernel is asked for a synchronous write. On SCSI the guest's FUA writes need it too: another
/// cache mode alone is no cure there. Where `disk-cache-none` and `disk-io-native-or-uring` ask for io=native it is that, which is
/// as good: two values for one attribute would cure nothing.
fn engine(subject: &Subject<'_>, host: &Host, disk: &DiskFacts) -> Vec<(&'static str, &'static str)> {
    match (host.system.io_uring_disabled == Some(2), is_direct(disk)) {
        (_, true) if is_worth_native(subject, disk) => vec![("io", "native")],
        (_, false) if is_worth_native(subject, disk) => vec![("cache", "none"), ("io", "native")],
        (false, _) => vec![("io", "io_uring")],
        (true, true) => vec![("io", "native")],
        // QEMU takes io=native only past the page cache.
        (true, false) if disk.bus.as_deref() == Some("scsi") => vec![("cache", "none"), ("io", "native")],
        (true, false) => vec![("cache", "none")],
    }
}

/// Whether SCSI disks of this machine type tell guests that they take FUA writes. A name without a version is the newest
/// type; what types of distributions have is theirs to say.
fn shows_fua(machine: Option<&str>) -> Option<bool> {
    let Some((_, number)) = machine.and_then(|machine| machine.rsplit_once('-')) else { return Some(true) };
    let (major, minor) = number.split_once('.')?;
    Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?) >= (SCSI_FUA.0, SCSI_FUA.1))
}

fn object(subject: &Subject<'_>, disk: &DiskFacts, found: String, settings: &[(&'static str, &'static str)]) -> Object {
    let mut wanted: Vec<String> = settings.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let wanted = match settings {
        [("io", _)] if disk.bus.as_deref() != Some("scsi") => {
            wanted.push("or cache='none'".to_owned());
            wanted.join(", ")
        }
        _ => wanted.join(" and "),
    };
    let starts = !(subject.refuses_direct(disk) && settings.contains(&("cache", "none")));
    let cures = of_disk(disk, "driver")
        .filter(|_| starts)
        .into_iter()
        .flat_map(|driver| settings.iter().map(move |(name, value)| Cure::attribute(driver.clone(), name, *value)));
    Object::new(format!("disk {} cache", disk.target), found, wanted).cured_by_all(cures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_types_say_whether_guests_may_send_fua() {
        let table = [
            (None, Some(true)),
            (Some("q35"), Some(true)),
            (Some("pc-q35-10.1"), Some(true)),
            (Some("virt-11.0"), Some(true)),
            (Some("pc-q35-10.0"), Some(false)),
            (Some("pc-i440fx-9.2"), Some(false)),
            (Some("pc-q35-rhel9.6.0"), None),
            (Some("pc-q35-noble"), None),
        ];
        for (machine, shows) in table {
            assert_eq!(shows_fua(machine), shows, "{machine:?}");
        }
    }
}
