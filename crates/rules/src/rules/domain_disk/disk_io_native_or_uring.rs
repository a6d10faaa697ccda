//! Asynchronous I/O engine suits the backing store.

use nearmetal_domain::DiskFacts;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::rules::domain_disk::disk_cache_none::is_worth_native;
use crate::subject::{Subject, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-io-native-or-uring",
    layer: Layer::DomainDisk,
    title: "Asynchronous I/O engine suits the backing store",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <disk><driver io='native|io_uring|threads'>"],
    good: "cache=none|directsync on block or preallocated raw/qcow2: native or io_uring; cache=writeback or sparse/NFS files: threads or io_uring; native with a cached mode is an error",
    applies: "virtio disks",
    not_applies: "kernel < 5.13 or kernel.io_uring_disabled != 0: no io_uring; QEMU 7.1.0 + iothread + io_uring hangs; Proxmox excludes LVM, CIFS, krbd with cache",
    effect: "unquantified across engines (Red Hat example cache=none io=native iothread); see iothread rules for gains",
    evidence: Evidence::B,
    sources: &[
        "rh-rhel10cache",
        "pve-drive",
        "bb-aio",
        "lxd-uring",
        "obs-uring",
        "talk-kvm-tuning",
        "paper-infn",
        "own",
    ],
    fix: Fix {
        live: None,
        persistent: "virsh edit <driver io='native' cache='none'/>",
        needs: &[Need::VmRestart],
        undo: "Linux AIO submit can block on sparse allocation; undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let uring_off = subject.context.host.and_then(|host| host.system.io_uring_disabled) == Some(2);
    let object = |disk: &DiskFacts| {
        let direct = matches!(disk.driver.cache.as_deref(), Some("none" | "directsync"));
        let what = format!("disk {} io", disk.target);
        let set = |name: &str, value: &str| of_disk(disk, "driver").map(|driver| Cure::attribute(driver, name, value));
        match disk.driver.io.as_deref() {
            Some("native") if !direct => {
                let found = "native with a cached mode, which QEMU refuses";
                // Where cache='none' is no way out, the engine that takes any cache is.
                let (name, value) = if subject.refuses_direct(disk) { ("io", "threads") } else { ("cache", "none") };
                let object = Object::new(what, found, "cache='none', or another engine");
                Some(object.cured_by_all(set(name, value)))
            }
            Some("io_uring") if uring_off => {
                let found = "io_uring, which this host forbids (io_uring_disabled is 2)";
                let engine = if direct { "native" } else { "threads" };
                Some(Object::new(what, found, engine).cured_by_all(set("io", engine)))
            }
            _ if direct && is_worth_native(subject, disk) => {
                let object = Object::new(what, "threads on a block device", "native or io_uring");
                Some(object.cured_by_all(set("io", "native")))
            }
            _ => None,
        }
    };
    Outcome::of(subject.disks().filter_map(object).collect())
}
