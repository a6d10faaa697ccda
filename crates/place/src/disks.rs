//! Host cache, engine, iothread and queues of a guest's disks.

use nearmetal_host::Host;

use crate::plan::{CacheMode, DiskEngine, DiskPlacement, Reason};
use crate::policy::Policy;
use crate::request::{DiskRequest, GuestRequest};
use crate::sources;
use crate::versions::major_minor;

/// The first kernel whose io_uring QEMU can rely on: older ones lose requests or refuse what QEMU asks (LXD's cut-off).
const IO_URING_KERNEL: (u32, u32) = (5, 13);

/// Whether any disk of the guest can be served by an iothread.
pub fn wants_iothread(guest: &GuestRequest) -> bool {
    guest.disks.iter().any(|disk| disk.is_virtio_blk && is_placed(disk))
}

/// Read-only drives, empty drives and network disks are left as they are.
fn is_placed(disk: &DiskRequest) -> bool {
    !disk.is_read_only && disk.source.is_some()
}

/// Options of every disk that changes, and why. Disks are dealt to the iothreads in turn.
pub fn disk_placements(
    host: &Host,
    policy: &Policy,
    guest: &GuestRequest,
    iothreads: u32,
) -> (Vec<DiskPlacement>, Vec<Reason>) {
    let (mut placements, mut reasons) = (Vec::new(), Vec::new());
    let mut served = 0;
    for disk in &guest.disks {
        if !is_placed(disk) {
            reasons.push(untouched(disk));
            continue;
        }
        let (cache, why_cache) = cache(host, disk);
        let (engine, why_engine) = engine(host, disk);
        let virtio = disk.is_virtio_blk;
        let queues = virtio.then(|| guest.vcpus.min(policy.max_queues).max(1));
        let shared = queues.map(|queues| queues.min(iothreads)).filter(|count| policy.share_queues && *count > 1);
        let iothread = (virtio && iothreads > 0 && shared.is_none()).then(|| {
            served += 1;
            (served - 1) % iothreads + 1
        });
        placements.push(DiskPlacement {
            target: disk.target.clone(),
            block_device: disk.block_device.clone().filter(|_| disk.is_block),
            cache,
            engine,
            iothread,
            iothreads: shared,
            queues,
        });
        reasons.push(why_cache);
        reasons.extend(reasons_of(disk, guest, policy, engine, why_engine, (iothread, shared), queues));
    }
    (placements, reasons)
}

fn untouched(disk: &DiskRequest) -> Reason {
    let because = match (disk.is_read_only, &disk.source) {
        (true, _) => "it is a read-only or removable drive: nothing is written through it".to_owned(),
        (false, _) => "it has no path on this host: its storage is elsewhere, or the drive is empty".to_owned(),
    };
    Reason { subject: format!("disk {}", disk.target), choice: "left as it is".to_owned(), because, source: None }
}

fn reason(disk: &DiskRequest, choice: String, because: String, source: &str) -> Reason {
    Reason { subject: format!("disk {}", disk.target), choice, because, source: Some(source.to_owned()) }
}

/// The host's page cache, and the facts it rests on.
fn cache(host: &Host, disk: &DiskRequest) -> (CacheMode, Reason) {
    let (cache, choice, because) = match disk.source.as_deref().is_some_and(|path| host.refuses_direct(path)) {
        true => (
            CacheMode::Writeback,
            "cache writeback",
            "its file system refuses to open the file past the host's page cache (O_DIRECT), and with cache none the guest \
             would not start; its flushes reach the drive"
                .to_owned(),
        ),
        false => {
            let storage = if disk.is_block { "block device" } else { "file" };
            let because = format!(
                "the {storage} is read and written past the host's page cache: no second copy in the host's memory, and the guest's flushes reach the drive"
            );
            (CacheMode::None, "cache none", because)
        }
    };
    (cache, reason(disk, choice.to_owned(), because, sources::LIBVIRT_DISKS))
}

/// The engine, and the facts it rests on.
fn engine(host: &Host, disk: &DiskRequest) -> (DiskEngine, String) {
    // Linux AIO is asynchronous on devices; on files its submission can block while the file system allocates.
    let (instead, name) = match disk.is_block {
        true => (DiskEngine::Native, "Linux AIO is asynchronous on a block device without host cache"),
        false => {
            (DiskEngine::Threads, "Linux AIO can block on a file whose blocks are not allocated yet, threads do not")
        }
    };
    let kernel = host.system.kernel.as_deref();
    if let Some(version) = kernel.and_then(major_minor).filter(|version| *version < IO_URING_KERNEL) {
        let (major, minor) = version;
        return (
            instead,
            format!("kernel {major}.{minor} is older than 5.13, the first whose io_uring QEMU can rely on; {name}"),
        );
    }
    match host.system.io_uring_disabled {
        Some(0) => (DiskEngine::IoUring, "io_uring_disabled is 0: QEMU may use it".to_owned()),
        None => (
            DiskEngine::IoUring,
            "the kernel has no io_uring_disabled (it came with 6.6), or it was not read: io_uring is taken as allowed"
                .to_owned(),
        ),
        Some(1) => (
            instead,
            format!(
                "io_uring_disabled is 1: only members of one group may use it, QEMU would fall back silently; {name}"
            ),
        ),
        Some(value) => (instead, format!("io_uring_disabled is {value}: the kernel refuses io_uring; {name}")),
    }
}

fn reasons_of(
    disk: &DiskRequest,
    guest: &GuestRequest,
    policy: &Policy,
    engine: DiskEngine,
    why_engine: String,
    (iothread, shared): (Option<u32>, Option<u32>),
    queues: Option<u32>,
) -> Vec<Reason> {
    let reason = |choice: String, because: String, source: &str| reason(disk, choice, because, source);
    let mut reasons = vec![reason(format!("engine {}", engine.name()), why_engine, sources::KERNEL_IO_URING)];
    if let Some(iothread) = iothread {
        let because = "its requests are handled by a thread of their own instead of QEMU's main loop".to_owned();
        reasons.push(reason(format!("iothread {iothread}"), because, sources::LIBVIRT_IOTHREADS));
    }
    if let Some(count) = shared {
        let because =
            "its queues are handled in turns by threads of their own: one PU full of disk work holds up no other queue";
        reasons.push(reason(format!("iothread 1 to {count}"), because.to_owned(), sources::LIBVIRT_IOTHREADS));
    }
    if let Some(queues) = queues {
        let because = match queues < guest.vcpus {
            true => format!(
                "one for each of {} vCPUs is more than the policy's limit of {}",
                guest.vcpus, policy.max_queues
            ),
            false => "one for each vCPU: no vCPU waits for another's queue".to_owned(),
        };
        reasons.push(reason(format!("queues {queues}"), because, sources::QEMU_QUEUES));
    }
    reasons
}

impl DiskEngine {
    /// libvirt's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Native => "native",
            Self::IoUring => "io_uring",
        }
    }
}
