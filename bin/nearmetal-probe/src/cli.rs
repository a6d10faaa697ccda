//! The command line: definitions and help only.

pub(crate) mod load;
pub(crate) mod programs;
pub(crate) mod serve;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use nearmetal_probe::binding::Request;
use nearmetal_probe::file_system::Kind;
use nearmetal_probe::memory::kernels::{Instructions, Stores};
use nearmetal_probe::memory::permutation::Pattern;
use nearmetal_probe::system::mapping::PageKind;
use nearmetal_units::{Bytes, CpuSet, NodeSet};

/// Measure this machine, bare metal or guest, with the same static binary on both sides
///
/// What measures or looks prints one JSON object on standard output (schema, version, what ran, raw samples with their unit), and
/// what runs another program passes on its output. Remarks for people go to standard error. Exit codes: 0 done, 2 usage error, 3 the
/// machine refused.
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
    /// Print this process's binding, as the kernel reports it
    ///
    /// Prints the CPUs from sched_getaffinity, policy and nodes from get_mempolicy, and the node of a freshly touched
    /// page. Run it under `bind` or under libvirt to see what a process there really gets.
    SeeBinding,
    /// Measure memory latency and bandwidth
    Memory {
        #[command(subcommand)]
        command: MemoryCommand,
    },
    /// Check what /dev/kvm is worth (accelerates, emulates, absent or not permitted), and what an exit costs
    ///
    /// Runs guests of a few dozen bytes, for well under a second in all. Reports the instruction rate of the same loop
    /// in the guest and on the host, and the cost of an exit to user space (`out`) and of one that the kernel handles
    /// (`cpuid`), each as the slope over loops with 0, 1 and 2 exits. The verdict is data: the exit code is 0 in all
    /// four cases.
    ///
    /// Rough guides for silicon of the last ten years, not limits, and not measured for this text:
    /// ratio 0.95 to 1.0; cpuid 500 to 1500 ns; out 1 to 4 µs. Nested in another guest: ratio still near 1, exits 2
    /// to 20 times dearer. A ratio below 0.1 is emulation: guests will start, and crawl.
    Kvm,
    /// Load a server from outside with requests that are due at their own moments, and measure how long they take
    Load {
        #[command(subcommand)]
        command: load::LoadCommand,
    },
    Reach(ReachArguments),
    /// Start a server on generated contents, for `load`, and wait for it; it ends when this is killed
    Serve {
        #[command(subcommand)]
        command: serve::ServeCommand,
    },
    See(SeeArguments),
    Capture(CaptureArguments),
    FileSystem(FileSystemArguments),
    Programs(programs::ProgramsArguments),
    /// Ask the gate at which a program of `programs --gate` waits once it has prepared its load
    Gate {
        #[command(subcommand)]
        command: programs::GateCommand,
    },
    Count(CountArguments),
    /// Print which file systems this machine can make and mount, and what the others lack
    FileSystems,
}

/// Wait until a server accepts connections
///
/// Connects and closes the connection again; what the server says is not read. Exits with 3 if nobody accepts one in time.
///
/// Example: nearmetal-probe reach --address 192.0.2.10:80 --seconds 60
#[derive(Debug, Args)]
pub(crate) struct ReachArguments {
    /// Where it is to answer, such as 192.0.2.1:80 or [2001:db8::1]:80
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) address: SocketAddr,
    /// How long to try, in seconds: 1 to 3600
    #[arg(long, value_name = "NUMBER", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FileSystemName {
    Ext4,
    Xfs,
}

/// Make a file system on a block device or in a file, WHOSE CONTENTS ARE LOST, and run a command in it
///
/// Only this command sees the mount, and the mount ends with the command, even if it is killed. The command's working
/// directory is the file system.
///
/// Example: nearmetal-probe file-system --device /dev/vdb --kind xfs -- fio job.fio
#[derive(Debug, Args)]
pub(crate) struct FileSystemArguments {
    /// The block device or file; its contents are lost
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: String,
    /// The file system to make
    #[arg(long, value_enum)]
    kind: FileSystemName,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl FileSystemArguments {
    pub(crate) fn kind(&self) -> Kind {
        self.kind.into()
    }
}

impl From<FileSystemName> for Kind {
    fn from(name: FileSystemName) -> Self {
        match name {
            FileSystemName::Ext4 => Self::Ext4,
            FileSystemName::Xfs => Self::Xfs,
        }
    }
}

/// Count what the processors of a lab do while a command runs: instructions, entries into guests, accesses by node
///
/// Only in a lab started with --count (`nearmetal lab up --count work` or `--count locality`). The counts are those of all
/// PUs, whoever runs there. What the command prints goes to standard error. Without a command, the counts are those since
/// the lab was switched on.
///
/// Example: nearmetal-probe count -- nearmetal-probe bind --cpus 3 --nodes 1 -- md5sum /usr/bin/fio
#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// Hold the counters against loops of known length, on the host and in a guest of a few bytes, and against KVM's count
    #[arg(long, conflicts_with = "command")]
    pub(crate) check: bool,
    /// Count accesses to memory by node while the command runs, in a lab that counts only work; it is several times slower then
    #[arg(long, requires = "command")]
    pub(crate) memory: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    Latency(LatencyArguments),
    Bandwidth(BandwidthArguments),
    Work(WorkArguments),
}

/// Where to run.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// CPUs to run on, such as 2-3,8. The probe asks the kernel afterwards; any other answer is an error (exit 3)
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// NUMA nodes that all memory must come from (MPOL_BIND), such as 1; verified like --cpus, with a touched page
    #[arg(long, value_name = "LIST")]
    nodes: Option<NodeSet>,
}

impl From<Where> for Request {
    fn from(arguments: Where) -> Self {
        Self { cpus: arguments.cpus, nodes: arguments.nodes }
    }
}

/// Run a command on these CPUs with memory from these nodes, verified with the kernel before it starts
///
/// Uses sched_setaffinity and set_mempolicy, reads both back, touches a page and asks the kernel for its node. If
/// anything differs from the request, the probe does not start the command and exits with 3. Otherwise this process
/// becomes the command, so output and exit code are the command's.
///
/// Example: nearmetal-probe bind --cpus 2-3 --nodes 1 -- fio job.fio
#[derive(Debug, Args)]
pub(crate) struct BindArguments {
    #[command(flatten)]
    pub(crate) place: Where,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Start a command at a given moment, so that several machines start together
///
/// Waits until this machine's clock (CLOCK_REALTIME) reaches the moment, then becomes the command. If the moment has
/// already passed, the probe does not start the command and exits with 3, since it would start later than the others.
///
/// Example: nearmetal-probe at --nanoseconds 1700000000000000000 -- fio job.fio
#[derive(Debug, Args)]
pub(crate) struct AtArguments {
    /// Nanoseconds since 1970, at most ten minutes ahead
    #[arg(long, value_name = "NUMBER")]
    pub(crate) nanoseconds: u64,
    /// After the command's output, print when it ran by this machine's clock: BEGAN= and ENDED=, ns since 1970
    #[arg(long)]
    pub(crate) stamp: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Page size of a buffer.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PageSizeName {
    /// 4 KiB, without transparent huge pages
    #[value(name = "4k")]
    Small,
    /// 2 MiB from the huge page pool; 4 KiB with a remark if the pool is short
    #[value(name = "2m")]
    Huge,
    /// Whatever transparent huge pages give
    #[value(name = "thp")]
    Transparent,
}

/// The buffer.
#[derive(Debug, Args)]
pub(crate) struct Buffer {
    /// Memory to measure, such as 64MiB: 4 KiB to 64 GiB, at most three quarters of free memory
    #[arg(long)]
    pub(crate) size: Option<Bytes>,
    /// Page size to ask for; `backing` in the output says what really backs the buffer, from /proc/self/smaps
    #[arg(long, value_name = "SIZE", value_enum, default_value = "4k")]
    page_size: PageSizeName,
    /// Refuse to measure (exit 3) if the pages are not the size asked for
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
    /// Random within groups of 64 pages and across the groups: cache and memory, few TLB misses
    Groups,
    /// One line per 4 KiB page, pages in random order: every load needs another translation
    Page,
}

/// Measure nanoseconds per load in a pointer chase, where each load depends on the one before
///
/// Runs on the first CPU of --cpus. Populates the buffer, drops the first pass and keeps every sample; prints median,
/// 99th percentile and minimum as well. Two patterns: `groups` shows caches and memory, `page` adds
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
    /// The order of the loads
    #[arg(long, value_enum, default_value = "groups")]
    pattern: PatternName,
    /// Samples to take: 3 to 100000
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) samples: u64,
    /// Loads per sample: 1000 to 1000000000
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub(crate) loads: u64,
    /// Seed of the walk; use the same on both sides of a comparison
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
    /// The widest that this CPU shows; a hypervisor may hide some
    Auto,
    Sse2,
    Avx2,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoresName {
    /// Through the caches: the CPU reads lines before it writes them, and this traffic does not count
    Ordinary,
    /// Past the caches (MOVNT)
    NonTemporal,
}

/// Measure bytes per second of four loops (read, write, copy, triad), one thread per CPU
///
/// Every loop covers all of --size, divided among the threads; each thread populates its own part. Bytes read and bytes
/// written both count. A sample takes at least 20 ms and lasts until the last thread is done. Without --size, the
/// buffer is four times the last-level caches of the CPUs used, or as much as fits, and the output then says so.
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
    /// Threads, 1 to 4096 [default: one per CPU of the binding]
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<u64>,
    /// Samples of each loop: 3 to 10000
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) samples: u64,
    /// Instruction set; use the same on both sides of a comparison
    #[arg(long, value_enum, default_value = "auto")]
    instructions: InstructionsName,
    /// How results go to memory
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

/// Measure loads per second of threads that the kernel places, each on memory of its own
///
/// Stands in for a server program. --cpus and --nodes bind the process; where each thread runs within them is the kernel's
/// choice, so the figures show what this machine's kernel makes of its nodes. Each thread populates its own part of --size,
/// waits for the others, and follows a ring of pointers (the pattern `groups` of `memory latency`) until --seconds have
/// passed since all began. Parts are whole pages of the size asked for, of at least 256 KiB. Without --size, the buffer is
/// four times the last-level caches of the CPUs allowed, or as much as fits, and the output then says so.
///
/// The output says when all had begun and when the last ended by this machine's clock, so that you can tell whether several
/// machines worked at the same time. Compare equal thread counts, sizes and page sizes only.
///
/// Example: nearmetal-probe memory work --threads 4 --seconds 30 --size 512MiB
#[derive(Debug, Args)]
pub(crate) struct WorkArguments {
    #[command(flatten)]
    pub(crate) place: Where,
    #[command(flatten)]
    pub(crate) buffer: Buffer,
    /// Threads, 1 to 4096 [default: one per CPU of the binding]
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<u64>,
    /// How long to work, in seconds: 1 to 3600
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Seed of the first thread's walk, the next number for the next thread's; use the same on both sides of a comparison
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Write a capture of this machine to standard output, as a gzipped tar
///
/// `nearmetal inspect --host` runs it on another machine and reads its output. `nearmetal capture --help` says what a capture holds
/// and what is masked.
#[derive(Debug, Args)]
pub(crate) struct CaptureArguments {
    /// Do not mask serial numbers, MAC addresses and secrets
    #[arg(long)]
    pub(crate) unmasked: bool,
}

/// Print what this machine sees of itself: nodes, CPUs, caches, huge pages, block and network devices, kernel, clock
///
/// In a guest, this is the guest's side of the proof: its nodes and distances, and the node and queues of its devices.
#[derive(Debug, Args)]
pub(crate) struct SeeArguments {
    /// Read /sys and /proc below this directory instead, from a captured tree
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_reference_is_current() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages = nearmetal_cli_reference::pages(Cli::command(), true);
        let checked = nearmetal_cli_reference::check(&docs, "nearmetal-probe", &[], &pages);
        checked.unwrap_or_else(|stale| panic!("UPDATE_GOLDENS=1 cargo test -p nearmetal-probe reference\n{stale}"));
    }
}
