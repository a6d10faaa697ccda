//! What is run on each side, by the words of `--workload`.

use nearmetal_measure::{
    FileJob, FileSystem, FioJob, MemoryBandwidth, MemoryJob, MemoryLatency, Pattern, ProbePages, Workload,
};
use nearmetal_units::Bytes;

/// Block sizes of the first seed paper's random I/O figure.
const RANDOM_SIZES: [u64; 5] = [512, 1024, 2048, 4096, 8192];
/// Block sizes of the second seed's sequential reads and writes.
const SEQUENTIAL_SIZES: [u64; 6] = [2048, 4096, 8192, 16_384, 32_768, 65_536];
/// Size of one read or write of the IOzone set: large enough that a file system's own work per request does not hide the
/// disk's, small enough for many of them.
const RECORDS: [u64; 1] = [65_536];
/// The size that is run where one is enough.
pub(super) const USUAL_SIZE: Bytes = Bytes::from_kib(4);
/// How much of a drive is worked on where a guest has it for itself, or several guests work at once: written once before,
/// and more than a drive's own cache holds back for long.
pub(super) const SPAN: Bytes = Bytes::from_mib(256);

/// One workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum One {
    /// Reads and writes, half each, anywhere on the device
    Random,
    /// Reads from beginning to end
    SequentialRead,
    /// Writes from beginning to end
    SequentialWrite,
    /// The steps of IOzone, by fio: write, rewrite, read, reread, random read and write, stride read of files with 8
    /// threads, on ext4
    IozoneExt4,
    /// The same on XFS
    IozoneXfs,
}

impl One {
    fn sizes(self) -> &'static [u64] {
        match self {
            Self::Random => &RANDOM_SIZES,
            Self::SequentialRead | Self::SequentialWrite => &SEQUENTIAL_SIZES,
            Self::IozoneExt4 | Self::IozoneXfs => &RECORDS,
        }
    }

    /// Whether it works on files: it then runs its steps to their end, and so has no length.
    pub(super) fn is_of_files(self) -> bool {
        matches!(self, Self::IozoneExt4 | Self::IozoneXfs)
    }

    /// The size that is run where one is enough.
    pub(super) fn usual_size(self) -> Bytes {
        match self.sizes() {
            [only] => Bytes::new(*only),
            _ => USUAL_SIZE,
        }
    }

    /// It with one block size. `span`: what the files take together.
    pub(super) fn of_size(self, size: Bytes, seconds: u32, ramp: u32, span: Bytes) -> Workload {
        match self {
            Self::Random => Workload::Fio(FioJob::first_seed(size, seconds, ramp)),
            Self::SequentialRead => Workload::Fio(FioJob::second_seed(size, true, seconds, ramp)),
            Self::SequentialWrite => Workload::Fio(FioJob::second_seed(size, false, seconds, ramp)),
            Self::IozoneExt4 => Workload::FileSystem(FileJob::fourth_seed(FileSystem::Ext4, size, span)),
            Self::IozoneXfs => Workload::FileSystem(FileJob::fourth_seed(FileSystem::Xfs, size, span)),
        }
    }
}

/// One workload, or two of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Several {
    /// Reads and writes, half each, anywhere on the device
    Random,
    /// Reads from beginning to end, and writes likewise, of 2 to 64 KiB, with processor time per request
    Sequential,
    /// Its reads alone
    SequentialRead,
    /// Its writes alone
    SequentialWrite,
    /// Write, rewrite, read, reread, random read and write, stride read of files with 8 threads, on ext4 and on XFS: the
    /// steps of IOzone, by fio
    Iozone,
    /// The same on ext4 alone
    IozoneExt4,
    /// The same on XFS alone
    IozoneXfs,
}

impl Several {
    fn ones(self) -> &'static [One] {
        match self {
            Self::Random => &[One::Random],
            Self::Sequential => &[One::SequentialRead, One::SequentialWrite],
            Self::SequentialRead => &[One::SequentialRead],
            Self::SequentialWrite => &[One::SequentialWrite],
            Self::Iozone => &[One::IozoneExt4, One::IozoneXfs],
            Self::IozoneExt4 => &[One::IozoneExt4],
            Self::IozoneXfs => &[One::IozoneXfs],
        }
    }

    /// Block sizes that are run: those of a kind have the same.
    pub(super) fn sizes(self) -> &'static [u64] {
        self.ones().first().map_or(&[], |one| one.sizes())
    }

    /// Whether it works on files.
    pub(super) fn is_of_files(self) -> bool {
        self.ones().iter().any(|one| one.is_of_files())
    }

    /// The size that is run where one is enough.
    pub(super) fn usual_size(self) -> Bytes {
        self.ones().first().map_or(USUAL_SIZE, |one| one.usual_size())
    }

    /// The workloads of one block size. `span`: what the files take together.
    pub(super) fn of_size(self, size: Bytes, seconds: u32, ramp: u32, span: Bytes) -> Vec<Workload> {
        self.ones().iter().map(|one| one.of_size(size, seconds, ramp, span)).collect()
    }
}

/// A span of storage: 4 MiB at least, since fewer blocks are read again and again within a sample.
pub(super) fn span(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: nearmetal_units::ParseError| error.to_string())?;
    if size < Bytes::from_mib(4) || size.get() % (1 << 20) != 0 {
        return Err(format!("{size} is not a span: write a multiple of 1 MiB from 4 MiB up, such as 256MiB"));
    }
    Ok(size)
}

/// Memory buffer: 4,096 pages beyond any TLB of today, small enough for a small guest.
const MEMORY_BUFFER: Bytes = Bytes::from_mib(64);

/// Latency and bandwidth of memory, run once on each side and page size.
pub(super) fn memory() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for pages in [ProbePages::Small, ProbePages::Transparent] {
        for pattern in [Pattern::Groups, Pattern::Page] {
            workloads.push(MemoryLatency(MemoryJob { size: MEMORY_BUFFER, pages, pattern }).into());
        }
        workloads.push(MemoryBandwidth(MemoryJob { size: MEMORY_BUFFER, pages, pattern: Pattern::Groups }).into());
    }
    workloads
}
