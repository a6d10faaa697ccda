//! What was measured on this machine goes before what holds in general.

use nearmetal_host::Host;

use crate::plan::{CacheMode, DiskEngine, Plan, Reason};

/// A way to a disk that was measured on the same model of drive under the same kernel, and shown faster than QEMU's
/// default.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredDisk {
    /// Guest whose disk it is for.
    pub guest: String,
    /// Target name of that disk, `vda`.
    pub target: String,
    /// Host page cache.
    pub cache: CacheMode,
    /// Submission engine.
    pub engine: DiskEngine,
    /// Whether an iothread serves it, or QEMU's main loop.
    pub iothread: bool,
    /// Virtqueues; `None`: as the planner has it.
    pub queues: Option<u32>,
    /// When, where and how much: `measured 2026-01-01 in web1: 1.93 times …`.
    pub because: String,
}

impl MeasuredDisk {
    fn choice(&self) -> String {
        let cache = match self.cache {
            CacheMode::None => "none",
            CacheMode::Writeback => "writeback",
        };
        let thread = if self.iothread { "an iothread" } else { "QEMU's main loop" };
        format!("cache {cache}, engine {}, {thread}", self.engine.name())
    }
}

/// Puts what was measured into a plan, in place of the choices that rest on rules, and says so. A disk the plan leaves as
/// it is stays so; an engine the kernel refuses now is not used, and the reason says that too.
pub fn use_measured(host: &Host, plan: &mut Plan, measured: &[MeasuredDisk]) {
    for placement in &mut plan.placements {
        for disk in &mut placement.disks {
            let own = |one: &&MeasuredDisk| one.guest == placement.guest && one.target == disk.target;
            let Some(measured) = measured.iter().find(own) else { continue };
            let subject = format!("disk {}", disk.target);
            let at = placement.reasons.iter().position(|reason| reason.subject == subject);
            let at = at.unwrap_or(placement.reasons.len());
            let refused =
                host.system.io_uring_disabled.filter(|value| *value > 0 && measured.engine == DiskEngine::IoUring);
            if let Some(value) = refused {
                let because =
                    format!("{}; but io_uring_disabled is {value} now, so the rules decide", measured.because);
                let choice = format!("not {}", measured.choice());
                placement.reasons.insert(at, Reason { subject, choice, because, source: None });
                continue;
            }
            disk.cache = measured.cache;
            disk.engine = measured.engine;
            disk.iothread = disk.iothread.filter(|_| measured.iothread);
            disk.queues = measured.queues.or(disk.queues);
            let replaced = |reason: &Reason| {
                let words: &[&str] =
                    if measured.iothread { &["cache ", "engine "] } else { &["cache ", "engine ", "iothread "] };
                reason.subject == subject && words.iter().any(|word| reason.choice.starts_with(word))
            };
            placement.reasons.retain(|reason| !replaced(reason));
            let at = at.min(placement.reasons.len());
            let (choice, because) = (measured.choice(), measured.because.clone());
            placement.reasons.insert(at, Reason { subject, choice, because, source: None });
        }
    }
}
