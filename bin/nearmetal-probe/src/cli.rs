//! The command line: definitions and help only.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use nearmetal_probe::binding::Request;
use nearmetal_probe::file_system::Kind;
use nearmetal_probe::memory::kernels::{Instructions, Stores};
use nearmetal_probe::memory::permutation::Pattern;
use nearmetal_probe::system::mapping::PageKind;
use nearmetal_units::{Bytes, CpuSet, NodeSet};

/// Measures this machine, bare metal or guest, with the same static binary on both sides.
///
/// Every command prints one JSON object on standard output (schema, version, what ran, raw samples with their unit)
/// and remarks for people on standard error. Exit codes: 0 done, 2 wrong use, 3 the machine refused.
#[derive(Debug, Parser)]
#[command(version, name = "nearmetal-probe", max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bind(BindArguments),
    At(AtArguments),
    /// Print the binding of this process as the kernel has it.
    ///
    /// CPUs from sched_getaffinity, policy and nodes from get_mempolicy, and the node a freshly touched page came
    /// from. Run it under `bind`, or under libvirt, to see what a process there really gets.
    SeeBinding,
    /// Memory latency and bandwidth.
    Memory {
        #[command(subcommand)]
        command: MemoryCommand,
    },
    /// What /dev/kvm is worth: accelerates, emulates, absent or not permitted; and what an exit costs.
    ///
    /// Runs guests of a few dozen bytes, for well under a second in all. Reports the instruction rate of the same loop
    /// in the guest and on the host, the cost of an exit to user space (`out`) and of one the kernel handles (`cpuid`),
    /// each as the slope over loops with 0, 1 and 2 exits. The verdict is data: the exit code is 0 in all four cases.
    ///
    /// Rough guides for silicon of the last ten years, not limits, and not measured for this text:
    /// ratio 0.95 to 1.0; cpuid 500 to 1500 ns; out 1 to 4 µs. Nested in another guest: ratio still near 1, exits 2
    /// to 20 times dearer. A ratio below 0.1 is emulation: guests will start, and crawl.
    Kvm,
    See(SeeArguments),
    Capture(CaptureArguments),
    FileSystem(FileSystemArguments),
    /// Print which file systems this machine can make and mount, and what is missing for the others.
    FileSystems,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileSystemName {
    Ext4,
    Xfs,
}

/// Make a file system on a block device, WHOSE CONTENTS ARE LOST, and run a command in it.
///
/// It is mounted where only this command sees it, and is gone from sight when the command ends, also if it is killed.
/// The command's working directory is the file system.
///
/// Example: nearmetal-probe file-system --device /dev/vdb --kind xfs -- fio job.fio
#[derive(Debug, Args)]
pub(crate) struct FileSystemArguments {
    /// Block device; its contents are lost.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: String,
    /// Which file system.
    #[arg(long, value_enum)]
    kind: FileSystemName,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl FileSystemArguments {
    pub(crate) fn kind(&self) -> Kind {
        match self.kind {
            FileSystemName::Ext4 => Kind::Ext4,
            FileSystemName::Xfs => Kind::Xfs,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    Latency(LatencyArguments),
    Bandwidth(BandwidthArguments),
}

/// Where to run.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// CPUs to run on, such as 2-3,8. The kernel is asked afterwards; another answer is an error (exit 3).
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// NUMA nodes all memory must come from (MPOL_BIND), such as 1. Verified like --cpus, with a touched page.
    #[arg(long, value_name = "LIST")]
    nodes: Option<NodeSet>,
}

impl From<Where> for Request {
    fn from(arguments: Where) -> Self {
        Self { cpus: arguments.cpus, nodes: arguments.nodes }
    }
}

/// Run a command on these CPUs with memory from these nodes, proven from the kernel before it starts.
///
/// Uses sched_setaffinity and set_mempolicy, reads both back, touches a page and asks the kernel for its node. If any
/// of it is not as asked, the command is not started and the exit code is 3. Otherwise this process becomes the
/// command: its output and exit code are the command's.
///
/// Example: nearmetal-probe bind --cpus 2-3 --nodes 1 -- fio job.fio
#[derive(Debug, Args)]
pub(crate) struct BindArguments {
    #[command(flatten)]
    pub(crate) place: Where,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Become a command at a moment: the barrier behind which several machines begin at once.
///
/// Waits until this machine's clock (CLOCK_REALTIME) shows the moment. If it has passed already, the command is not
/// started and the exit code is 3: somebody who comes late has not begun with the others.
///
/// Example: nearmetal-probe at --nanoseconds 1700000000000000000 -- fio job.fio
#[derive(Debug, Args)]
pub(crate) struct AtArguments {
    /// Nanoseconds since 1970, at most ten minutes ahead.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) nanoseconds: u64,
    /// Say behind the command's own output when it ran on this machine's clock: BEGAN= and ENDED=, ns since 1970
    #[arg(long)]
    pub(crate) stamp: bool,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Page size of a buffer.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PageSizeName {
    /// 4 KiB, transparent huge pages refused.
    #[value(name = "4k")]
    Small,
    /// 2 MiB from the huge page pool; 4 KiB, and a remark, if the pool is short.
    #[value(name = "2m")]
    Huge,
    /// What transparent huge pages give.
    #[value(name = "thp")]
    Transparent,
}

/// The buffer.
#[derive(Debug, Args)]
pub(crate) struct Buffer {
    /// Memory to measure, such as 64MiB: 4 KiB to 64 GiB, at most three quarters of what is free.
    #[arg(long)]
    pub(crate) size: Option<Bytes>,
    /// Page size to ask for. What really backs the buffer is read from /proc/self/smaps and reported as `backing`.
    #[arg(long, value_name = "SIZE", value_enum, default_value = "4k")]
    page_size: PageSizeName,
    /// Refuse to measure (exit 3) on other pages than asked for.
    #[arg(long)]
    pub(crate) require_page_size: bool,
}

impl Buffer {
    pub(crate) fn pages(&self) -> PageKind {
        match self.page_size {
            PageSizeName::Small => PageKind::Small,
            PageSizeName::Huge => PageKind::Huge,
            PageSizeName::Transparent => PageKind::Transparent,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PatternName {
    /// Random within groups of 64 pages and of the groups: cache and memory, few TLB misses.
    Groups,
    /// One line per 4 KiB page, pages in random order: every load needs another translation.
    Page,
}

/// Nanoseconds per load of a chain in which each load needs the one before (a pointer chase).
///
/// Runs on the first CPU of --cpus. The buffer is populated, the first pass is dropped, every sample is kept; median,
/// 99th percentile and minimum are printed beside them. Two patterns: `groups` shows caches and memory, `page` adds
/// the page walk. Guest minus host of (page - groups) is what nested paging costs; compare equal page sizes only.
///
/// Rough guides for server silicon of the last ten years, not limits, and not measured for this text: first-level
/// cache 1 to 2 ns, second 3 to 6 ns, third 15 to 40 ns, local memory 70 to 130 ns, memory of another socket 130 to
/// 250 ns. Use --size of four times the last-level cache to see memory.
#[derive(Debug, Args)]
pub(crate) struct LatencyArguments {
    #[command(flatten)]
    pub(crate) place: Where,
    #[command(flatten)]
    pub(crate) buffer: Buffer,
    #[arg(long, value_enum, default_value = "groups")]
    pattern: PatternName,
    /// Samples to take: 3 to 100000.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) samples: u64,
    /// Loads per sample: 1000 to 1000000000.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub(crate) loads: u64,
    /// Seed of the walk; the same on both sides of a comparison.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl LatencyArguments {
    pub(crate) fn pattern(&self) -> Pattern {
        match self.pattern {
            PatternName::Groups => Pattern::Groups,
            PatternName::Page => Pattern::Page,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum InstructionsName {
    /// The widest this CPU shows; a hypervisor may hide some.
    Auto,
    Sse2,
    Avx2,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoresName {
    /// Through the caches: lines are read before they are written, and that traffic is not counted.
    Ordinary,
    /// Past the caches (MOVNT).
    NonTemporal,
}

/// Bytes per second of four loops (read, write, copy, triad) on threads held on one CPU each.
///
/// Every kernel goes over all of --size, which is divided among the threads; each thread populates its own part.
/// Bytes read and bytes written both count. A sample is at least 20 ms and lasts until the last thread is done.
/// Without --size: four times the last-level caches of the CPUs used, or what fits, which is then said.
///
/// Rough guides for server silicon, not limits, and not measured for this text: one thread 8 to 20 GB/s, a
/// socket with 8 channels of DDR4-3200 about 150 GB/s of the 205 its channels add up to. One thread does not
/// saturate a socket: compare equal thread counts.
#[derive(Debug, Args)]
pub(crate) struct BandwidthArguments {
    #[command(flatten)]
    pub(crate) place: Where,
    #[command(flatten)]
    pub(crate) buffer: Buffer,
    /// Threads, 1 to 4096; one per CPU of the binding if not given.
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<u64>,
    /// Samples of each kernel: 3 to 10000.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) samples: u64,
    /// Instruction set; the same on both sides of a comparison.
    #[arg(long, value_enum, default_value = "auto")]
    instructions: InstructionsName,
    /// How results go to memory.
    #[arg(long, value_enum, default_value = "ordinary")]
    stores: StoresName,
}

impl BandwidthArguments {
    pub(crate) fn instructions(&self) -> Option<Instructions> {
        match self.instructions {
            InstructionsName::Auto => None,
            InstructionsName::Sse2 => Some(Instructions::Sse2),
            InstructionsName::Avx2 => Some(Instructions::Avx2),
        }
    }

    pub(crate) fn stores(&self) -> Stores {
        match self.stores {
            StoresName::Ordinary => Stores::Ordinary,
            StoresName::NonTemporal => Stores::NonTemporal,
        }
    }
}

/// Write what this machine shows of itself to standard output, as a gzipped tar.
///
/// The one command that prints no JSON: `nearmetal inspect --host` runs it on another machine and reads its output.
/// What is in it, and what is masked, is told by `nearmetal capture --help`.
#[derive(Debug, Args)]
pub(crate) struct CaptureArguments {
    /// Keep serial numbers, hardware addresses and secrets as they are.
    #[arg(long)]
    pub(crate) unmasked: bool,
}

/// What this machine sees of itself: nodes, CPUs, caches, huge pages, block and network devices, kernel and clock.
///
/// In a guest this is the guest's side of the proof: its nodes and distances, the node and queues of its devices.
#[derive(Debug, Args)]
pub(crate) struct SeeArguments {
    /// Read /sys and /proc below this directory instead: a captured tree.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
}
