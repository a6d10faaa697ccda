//! Which engine QEMU really uses for a disk, by what moves while the disk works.
//!
//! QEMU falls back without a word: where the kernel refuses io_uring, or the file system O_DIRECT, the command line and
//! libvirt go on saying what was asked for. What moves cannot lie:
//! - **io_uring**: completions of a ring. QEMU may have two kinds, of the same size (128 entries in QEMU 10.0): the
//!   block layer's, and its event loop's (util/fdmon-io_uring.c), which turns for every wakeup whatever engine the
//!   disks use and so proves nothing. The event loop's waits for descriptors, and the kernel lists what it waits for
//!   (`PollList` in fdinfo); the block layer's waits for none. From QEMU 10.2 on one ring does both: one that waits
//!   counts where nothing else moved.
//! - **threads**: bytes read by the threads called `worker` (/proc/PID/task/TID/io, rchar: counted at the system call,
//!   so reads that hit the page cache count too). Their mere existence proves little, since flushes and discards go
//!   through workers with every engine.
//! - **native**: no sign of its own but the ring mapped as `/[aio]`, so it is what remains when requests were served,
//!   that ring exists and neither workers nor a ring of io_uring moved.

use std::collections::BTreeSet;

use nearmetal_place::DiskEngine;

use super::{Load, RingMovement};

/// What moved between two looks with a load between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEvidence {
    /// What the disk did meanwhile.
    pub load: Load,
    /// Rings of io_uring.
    pub rings: Vec<RingMovement>,
    /// Contexts of Linux AIO.
    pub aio_rings: usize,
    /// Worker threads after the load.
    pub workers: BTreeSet<u32>,
    /// Bytes they read, `None` if their counters could not be read.
    pub worker_bytes: Option<u64>,
}

impl EngineEvidence {
    /// No evidence, and why.
    pub fn none(why: impl Into<String>) -> Self {
        Self {
            load: Load::None { why: why.into() },
            rings: Vec::new(),
            aio_rings: 0,
            workers: BTreeSet::new(),
            worker_bytes: None,
        }
    }
}

/// The engine, and the evidence in words; `Err` says why it cannot be told.
pub(super) fn engine(evidence: &EngineEvidence) -> Result<(DiskEngine, String), String> {
    let (requests, bytes) = match &evidence.load {
        Load::None { why } => return Err(why.clone()),
        Load::Read { requests, bytes, .. } | Load::Natural { requests, bytes } => (*requests, *bytes),
    };
    // Other disks and the guest's own work move the same counters: half of the load is more than they do meanwhile,
    // and requests that QEMU merged are fewer than the guest sent.
    let most = |count: u64, of: u64| count > 0 && count >= of / 2;
    let ring = |waits: bool| {
        let moved = evidence.rings.iter().filter(|ring| ring.waits == waits);
        moved.max_by_key(|ring| ring.completions).filter(|ring| most(u64::from(ring.completions), requests))
    };
    let by_ring = |ring: &RingMovement| {
        let text = format!(
            "{} completions in the ring of {} entries (descriptor {}) for {requests} requests",
            ring.completions, ring.entries, ring.fd
        );
        Ok((DiskEngine::IoUring, text))
    };
    if let Some(ring) = ring(false) {
        return by_ring(ring);
    }
    match evidence.worker_bytes {
        Some(read) if most(read, bytes) => {
            let threads: Vec<String> = evidence.workers.iter().map(u32::to_string).collect();
            let text = format!(
                "worker threads ({}) read {} KiB of {} KiB",
                threads.join(", "),
                read.div_ceil(1024),
                bytes.div_ceil(1024)
            );
            return Ok((DiskEngine::Threads, text));
        }
        None if !evidence.workers.is_empty() => {
            return Err("there are worker threads, but only root can see how much they read: run this as \
                root"
                .to_owned());
        }
        _ => {}
    }
    if evidence.aio_rings > 0 {
        let text = format!(
            "{requests} requests served, {} context{} of Linux AIO, io_uring and worker threads stood still",
            evidence.aio_rings,
            if evidence.aio_rings == 1 { "" } else { "s" }
        );
        return Ok((DiskEngine::Native, text));
    }
    match ring(true) {
        Some(ring) => by_ring(ring),
        None => Err(format!(
            "{requests} requests were served, but io_uring, Linux AIO and worker threads all stood still: the guest's \
             page cache may have answered; try again"
        )),
    }
}
