//! `nearmetal bench`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{
    ArmKind, Comparison, Conditions, Design, Environment, Estimate, FileJob, FileSystem, FioJob, FunctionRequest,
    MemoryJob, Order, OwnGuestRequest, Pattern, ProbePages, Request, Results, Store, Workload, bench as measure,
    bench_function, bench_own_guest, compare, cost_table, cost_text, costs_of_guests, function_of, lift_text,
};
use nearmetal_stats::ShownRatio;
use nearmetal_units::Bytes;

use super::matrix::{MatrixArgs, MatrixKind, disk_matrix};
use super::measuring::{in_plan, need_root, plan_of, watch, written};
use super::net_matrix::net_matrix;
use super::shared::{StateArgs, beside_this_program};
use super::together::{TogetherArgs, together};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Block sizes of the first seed paper's random I/O figure.
const SIZES: [u64; 5] = [512, 1024, 2048, 4096, 8192];
/// Block sizes of the second seed's sequential reads and writes.
const SEQUENTIAL_SIZES: [u64; 6] = [2048, 4096, 8192, 16_384, 32_768, 65_536];
/// Size of one read or write of the IOzone set: large enough that a file system's own work per request does not hide the
/// disk's, small enough for many of them.
const RECORDS: [u64; 1] = [65_536];
/// The size that is paired in quick mode.
const QUICK_SIZE: u64 = 4096;
/// Quick mode's pairs: enough for an interval, few enough for minutes.
const QUICK_PAIRS: u32 = 6;
/// Seconds of a quick mode's sample of the paired size.
const QUICK_SECONDS: u32 = 5;
/// Seconds of a sample that is taken once: it shows a trend over sizes, and no interval.
const SINGLE_SHOT_SECONDS: u32 = 2;
/// Pairs otherwise: the pilot, from whose scatter the number of pairs is fixed.
const PAIRS: u32 = 10;
/// A/A pairs of each of two arms.
const SAME_ARM_PAIRS: u32 = 2;
/// What --device and --together work on, from the beginning: written once before, and more than a drive's own cache holds
/// back for long.
pub(super) const SPAN: Bytes = Bytes::from_mib(256);
/// Memory buffer: 4,096 pages beyond any TLB of today, small enough for a small guest.
const MEMORY_BUFFER: Bytes = Bytes::from_mib(64);

/// Compare a guest with the same slice of its own bare metal
///
/// Runs the same workload with the same arguments in clones of the domain (as found, as planned, as virt-install writes it)
/// and on the host itself bound to exactly the guest's PUs and node. Every arm has an equal region of one scratch device.
/// Only one arm runs at a time; the order is drawn at random in every round; ratios carry a 95 % interval.
///
/// The scratch device's contents are lost. It must be empty, and should be on the same drive as the guest's disk.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Domain; its plan must have been applied, or be named with --plan
    pub(super) domain: String,
    /// Whole block device to measure on; ITS CONTENTS ARE LOST. With --matrix also a directory, or both
    #[arg(long, value_name = "DEVICE", required_unless_present_any = ["own_guest", "list", "port", "device"])]
    pub(super) scratch: Vec<String>,
    /// Measure in the domain itself as it runs, not in clones: its own kernel, reading its own disk, nothing written
    ///
    /// Needs its guest agent, and fio in it. Arms are the bare slice and the domain; it is paused while the bare slice
    /// is measured (--pause).
    #[arg(long, conflicts_with_all = ["scratch", "no_single_shots"])]
    own_guest: bool,
    /// Measure a drive that the guest has for itself: the PCI function of an NVMe drive, or `own` for the one it is given
    ///
    /// Host and guest take turns on it: bound to the host's driver, and handed to a clone by VFIO. It is given back as it
    /// was found. THE NAMESPACE'S CONTENTS ARE LOST; one that holds a file system or partitions is refused.
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["scratch", "own_guest"])]
    pub(super) device: Option<String>,
    /// The namespace of --device that is written to, by its number (NSID) [default: the only one]
    #[arg(long, value_name = "NUMBER", requires = "device")]
    pub(super) namespace: Option<u32>,
    /// The plan [default: the one that was last applied to the domain]
    #[arg(long, value_name = "FILE")]
    pub(super) plan: Option<PathBuf>,
    /// Minutes instead of hours: guests stay up, only 4 KiB is paired, six pairs of 5 s samples, other sizes once for 2 s
    #[arg(long)]
    pub(super) quick: bool,
    /// Allow the domain itself to be paused while its slice is measured
    #[arg(long)]
    pub(super) pause: bool,
    /// Pairs, no more and no fewer [default: a pilot of 10 and what --resolve takes, quick: 6, matrix: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(super) pairs: Option<u32>,
    /// How far the interval of each ratio may reach to either side, in percent: after a pilot of 10 pairs their number is fixed
    /// for it, 100 at most
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent, conflicts_with_all = ["pairs", "quick"])]
    resolve: f64,
    /// Seconds of one sample [default: 30, quick: 5, matrix: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(super) seconds: Option<u32>,
    /// Block size that is paired; can be given several times [default: random 512B to 8KiB, sequential 2KiB to 64KiB, iozone 64KiB; of random, quick and matrix: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    pub(super) block_size: Vec<Bytes>,
    /// What is run
    #[arg(long, value_enum, default_value_t = WorkloadKind::Random, conflicts_with = "own_guest")]
    pub(super) workload: WorkloadKind,
    /// Seed of order and bootstrap; the same seed gives the same order
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Leave memory latency and bandwidth out
    #[arg(long)]
    no_memory: bool,
    /// Leave out the sizes that quick mode runs once
    #[arg(long)]
    no_single_shots: bool,
    /// Directory of the measuring appliance (vmlinuz, initramfs.cpio.gz)
    #[arg(long, value_name = "DIR", default_value = "/usr/share/nearmetal/appliance")]
    pub(super) appliance: PathBuf,
    /// Write all runs here as JSON
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Add all runs to this SQLite store [default for a matrix: results.sqlite in the state directory]
    #[arg(long, value_name = "FILE")]
    pub(super) store: Option<PathBuf>,
    #[command(flatten)]
    pub(super) matrix: MatrixArgs,
    #[command(flatten)]
    pub(super) several: TogetherArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
}

/// What is run on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum WorkloadKind {
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

impl WorkloadKind {
    /// Block sizes that are run.
    fn sizes(self) -> &'static [u64] {
        match self {
            Self::Random => &SIZES,
            Self::Sequential | Self::SequentialRead | Self::SequentialWrite => &SEQUENTIAL_SIZES,
            Self::Iozone | Self::IozoneExt4 | Self::IozoneXfs => &RECORDS,
        }
    }

    /// The workloads of one block size. `span`: what the files take together.
    pub(super) fn of_size(self, size: Bytes, seconds: u32, ramp: u32, span: Bytes) -> Vec<Workload> {
        let sequential = |reads| Workload::Fio(FioJob::second_seed(size, reads, seconds, ramp));
        let files = |file_system| Workload::FileSystem(FileJob::fourth_seed(file_system, size, span));
        match self {
            Self::Random => vec![Workload::Fio(FioJob::first_seed(size, seconds, ramp))],
            Self::Sequential => vec![sequential(true), sequential(false)],
            Self::SequentialRead => vec![sequential(true)],
            Self::SequentialWrite => vec![sequential(false)],
            Self::Iozone => vec![files(FileSystem::Ext4), files(FileSystem::Xfs)],
            Self::IozoneExt4 => vec![files(FileSystem::Ext4)],
            Self::IozoneXfs => vec![files(FileSystem::Xfs)],
        }
    }

    /// The size that is run where there is one.
    pub(super) fn usual_size(self) -> Bytes {
        match self.sizes() {
            [only] => Bytes::new(*only),
            _ => Bytes::new(QUICK_SIZE),
        }
    }
}

/// Runs the command.
pub fn bench(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if args.matrix.net.port.is_some() && args.matrix.kind().is_none() && args.several.together.is_empty() {
        bail!("--port belongs to --matrix net, and to --together for several guests at once");
    }
    match args.matrix.kind() {
        Some(MatrixKind::Disk) => return disk_matrix(&args, printer),
        Some(MatrixKind::Net) => return net_matrix(&args, printer),
        None => {}
    }
    if args.scratch.len() > 1 && args.several.together.is_empty() {
        bail!("{} scratch devices are named, and only --matrix and --together take more than one", args.scratch.len());
    }
    need_root("starts guests and drops caches", "")?;
    let journal = args.state.journal();
    if !args.several.together.is_empty() {
        return together(&args, &journal, printer);
    }
    let plan = plan_of(args.plan.as_deref(), &args.domain, &journal)?;
    let (change, placement) = in_plan(&plan, &args.domain)?;
    let fs = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    if args.own_guest {
        if !args.pause {
            bail!(
                "`{}` is measured against its own slice, which must be free meanwhile: allow it to be paused (--pause)",
                args.domain
            );
        }
        let request = OwnGuestRequest {
            guest: args.domain.clone(),
            placement: placement.clone(),
            design: reading_design(&args),
            memory: if args.no_memory { Vec::new() } else { memory() },
            seed: args.seed,
            probe: beside_this_program("nearmetal-probe")?,
            state: journal.state_directory().to_owned(),
            environment: Environment::detect(&fs),
        };
        let results = watch(printer, ArmKind::title, |tell| bench_own_guest(&request, &fs, &mut libvirt, tell))?;
        return keep(&args, &results, printer);
    }
    if let Some(device) = &args.device {
        let function = match device.as_str() {
            "own" => function_of(&change.xml_after, &args.domain)?,
            address => address.parse().with_context(|| format!("--device {address}"))?,
        };
        let request = FunctionRequest {
            guest: args.domain.clone(),
            placement: placement.clone(),
            xml_planned: change.xml_after.clone(),
            function,
            namespace: args.namespace,
            design: two_sided_design(&args),
            conditions: conditions(&args, &fs, &journal)?,
        };
        let results = watch(printer, ArmKind::title, |tell| bench_function(&request, &fs, &mut libvirt, tell))?;
        return keep(&args, &results, printer);
    }
    if change.is_new() {
        bail!(
            "`{}` is made by its plan, so it has no definition as found to measure the planned one against: measure the \
             guest itself against its slice (--own-guest --pause)",
            args.domain
        );
    }
    let request = Request {
        guest: args.domain.clone(),
        placement: placement.clone(),
        xml_found: change.xml_before.clone(),
        xml_planned: change.xml_after.clone(),
        scratch: args.scratch.first().cloned().unwrap_or_default(),
        design: design(&args),
        resolve: (args.pairs.is_none() && !args.quick).then_some(args.resolve / 100.0),
        memory: if args.no_memory { Vec::new() } else { memory() },
        quick: args.quick,
        conditions: conditions(&args, &fs, &journal)?,
    };
    let results = watch(printer, ArmKind::title, |tell| measure(&request, &fs, &mut libvirt, tell))?;
    keep(&args, &results, printer)
}

/// What a measurement is made under.
pub(super) fn conditions(args: &Args, fs: &HostFs, journal: &Journal) -> anyhow::Result<Conditions> {
    Ok(Conditions {
        seed: args.seed,
        appliance: args.appliance.clone(),
        probe: beside_this_program("nearmetal-probe")?,
        state: journal.state_directory().to_owned(),
        environment: Environment::detect(fs),
        pause: args.pause,
    })
}

/// Writes the results where they were asked for, and shows the ratios.
fn keep(args: &Args, results: &Results, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    written(results, args.output.as_deref())?;
    if let Some(path) = &args.store {
        Store::open(path)?.add(results)?;
    }
    printer.data(&text(results, &compare(results)?));
    let costs = cost_table(results);
    if !costs.is_empty() {
        let lifts = lift_text(&costs_of_guests(&costs));
        printer.data(&format!("where the time goes, for each I/O:\n{}{lifts}", cost_text(&costs)));
    }
    Ok(ExitStatus::Done)
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=100.0).contains(&value) => Ok(value),
        _ => Err("write a number from 0.1 to 100, such as 5".to_owned()),
    }
}

/// What a drive can be asked for at once with O_DIRECT: whole sectors, 16 MiB at most.
fn block_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: nearmetal_units::ParseError| error.to_string())?;
    if size.get() == 0 || size.get() % 512 != 0 || size > Bytes::from_mib(16) {
        return Err(format!("{size} is no block size: write a multiple of 512 B up to 16 MiB, such as 4KiB"));
    }
    Ok(size)
}

fn design(args: &Args) -> Design {
    let (seconds, ramp) = if args.quick { (QUICK_SECONDS, 1) } else { (30, 5) };
    let seconds = args.seconds.unwrap_or(seconds);
    let kind = args.workload;
    let jobs = |size: u64, seconds: u32| kind.of_size(Bytes::new(size), seconds, ramp, args.matrix.span);
    let once = seconds.min(SINGLE_SHOT_SECONDS);
    let sizes = kind.sizes();
    let paired_size = |size: &u64| match args.block_size.as_slice() {
        [] => !args.quick || Bytes::new(*size) == kind.usual_size(),
        chosen => chosen.contains(&Bytes::new(*size)),
    };
    let (mut paired, mut single): (Vec<u64>, Vec<u64>) = sizes.iter().partition(|size| paired_size(size));
    paired.extend(args.block_size.iter().map(|size| size.get()).filter(|size| !sizes.contains(size)));
    // A set over a file system has no fixed length, so it is not run on the side.
    if !args.quick || sizes.len() == 1 {
        single.clear();
    }
    Design {
        arms: vec![ArmKind::BareSlice, ArmKind::AsFound, ArmKind::Planned, ArmKind::VirtInstall],
        paired: paired.into_iter().flat_map(|size| jobs(size, seconds)).collect(),
        rounds: args.pairs.unwrap_or(if args.quick { QUICK_PAIRS } else { PAIRS }),
        same_arm: if args.quick { vec![ArmKind::Planned] } else { vec![ArmKind::BareSlice, ArmKind::Planned] },
        same_arm_pairs: SAME_ARM_PAIRS,
        single_shot: if args.no_single_shots {
            Vec::new()
        } else {
            single.into_iter().flat_map(|size| jobs(size, once)).collect()
        },
    }
}

/// Random reads of the paired size; two arms, since the domain runs as it was applied.
fn reading_design(args: &Args) -> Design {
    let seconds = args.seconds.unwrap_or(if args.quick { QUICK_SECONDS } else { 30 });
    let job = FioJob { read_percent: 100, ..FioJob::first_seed(Bytes::new(QUICK_SIZE), seconds, 1) };
    Design {
        arms: vec![ArmKind::BareSlice, ArmKind::Planned],
        paired: vec![Workload::Fio(job)],
        rounds: args.pairs.unwrap_or(if args.quick { QUICK_PAIRS } else { PAIRS }),
        same_arm: vec![ArmKind::Planned],
        same_arm_pairs: SAME_ARM_PAIRS,
        single_shot: Vec::new(),
    }
}

/// Bare slice and guest, with the sizes asked for or 4 KiB alone: each turn costs a change of drivers.
fn two_sided_design(args: &Args) -> Design {
    let seconds = args.seconds.unwrap_or(if args.quick { QUICK_SECONDS } else { 30 });
    let ramp = if args.quick { 1 } else { 5 };
    let sizes = match args.block_size.as_slice() {
        [] => vec![Bytes::new(QUICK_SIZE)],
        chosen => chosen.to_vec(),
    };
    let job = |size| Workload::Fio(FioJob { span: Some(SPAN), ..FioJob::first_seed(size, seconds, ramp) });
    Design {
        arms: vec![ArmKind::BareSlice, ArmKind::Planned],
        paired: sizes.into_iter().map(job).collect(),
        rounds: args.pairs.unwrap_or(if args.quick { QUICK_PAIRS } else { PAIRS }),
        same_arm: vec![ArmKind::Planned],
        same_arm_pairs: SAME_ARM_PAIRS,
        single_shot: Vec::new(),
    }
}

fn memory() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for pages in [ProbePages::Small, ProbePages::Transparent] {
        for pattern in [Pattern::Groups, Pattern::Page] {
            workloads.push(Workload::MemoryLatency(MemoryJob { size: MEMORY_BUFFER, pages, pattern }));
        }
        workloads.push(Workload::MemoryBandwidth(MemoryJob { size: MEMORY_BUFFER, pages, pattern: Pattern::Groups }));
    }
    workloads
}

/// One line a comparison: the ratio with its interval, and what may be said.
fn text(results: &Results, comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare arms, not machines\n"));
    }
    for comparison in comparisons.iter().filter(|comparison| is_shown(comparison)) {
        let pair = format!("{} / {}", comparison.subject.title(), comparison.reference.title());
        let figure = match &comparison.estimate {
            Estimate::Paired { ratio, verdict, .. } => format!("{ratio}, n = {}, {verdict}", ratio.n),
            Estimate::SingleShot { ratio } => format!("{}, single shot", ShownRatio::new(*ratio, None)),
        };
        let mut what = comparison.workload.label();
        if comparison.metric != "iops" {
            what.push_str(&format!(": {}", metric_title(&comparison.metric)));
        }
        text.push_str(&format!("{what:44} {pair:28} {figure}\n"));
    }
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    text
}

/// Rates and medians; every step of a set; processor time where it was asked for, with sequential requests.
fn is_shown(comparison: &Comparison) -> bool {
    let sequential = matches!(&comparison.workload, Workload::Fio(job) if job.order == Order::Sequential);
    let metric = comparison.metric.as_str();
    metric.starts_with("iops") || metric == "latency.median" || (sequential && matches!(metric, "cpu" | "cpu.host"))
}

fn metric_title(metric: &str) -> String {
    match metric {
        "cpu" => "fio's processor time per request".to_owned(),
        "cpu.host" => "the host's processor time per request".to_owned(),
        other => other.strip_prefix("iops.").unwrap_or(other).to_owned(),
    }
}
