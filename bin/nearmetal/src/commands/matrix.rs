//! `nearmetal bench --matrix disk`: the arms, the race, the winner, and what to use.

use std::path::PathBuf;

use anyhow::bail;
use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::{Hypervisor, Libvirt, Versions};
use nearmetal_measure::{
    ArmKind, Container, DiskPath, FioJob, Ground, MatrixRequest, MatrixResults, PathTable, Store, Workload, arms,
    least_seconds, matrix, path_words, read_back_paths,
};
use nearmetal_units::Bytes;

use super::bench;
use super::measuring::{need_root, pinned_in_plan, plan_of, watch, written};
use super::net_matrix::NetArgs;
use super::shared::Format;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::job::matrix::{chart, list_text, text};
use crate::job::paths::paths_text;
use crate::printer::Printer;

/// Where matrices are kept below the state directory: `nearmetal plan` looks for them there.
pub(crate) const STORE: &str = "results.sqlite";
/// Seconds of one sample.
const SECONDS: u32 = 3;
/// Fresh rounds of the winner: Student's factor is then near that of many, 2.26 against 1.96.
const PAIRS: u32 = 10;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MatrixKind {
    /// Ways to a disk: cache, engine, iothreads, queues, bus, container
    Disk,
    /// Ways to a port: vhost-net or user space on a bridge, macvtap, virtual functions; needs a peer
    Net,
}

/// What only a matrix takes.
#[derive(Debug, clap::Args)]
pub(crate) struct MatrixArgs {
    /// Compare many ways to a disk or a network instead, and say which to use for this VM on this machine
    ///
    /// The ways (arms) are disks or cards of a clone of the domain. Each is read back first: one that did not take effect is
    /// reported and not measured. Then they race: in every round each arm left runs once, in random order; after 4, 8
    /// and 16 rounds those shown worse leave, at an error stated beforehand (--error). The winner is measured again on
    /// fresh pairs against QEMU's or libvirt's default and the bare slice. The result is kept, and `nearmetal plan` uses it where
    /// drive and kernel are the same.
    ///
    /// --matrix net needs --port, --peer and --address; docs/guides/net-matrix.md begins at the beginning.
    ///
    /// Scratch space for --matrix disk: a whole device, for arms on blocks; a directory, for raw and qcow2 files; or both.
    #[arg(long, value_enum, conflicts_with_all = ["own_guest", "quick"])]
    matrix: Option<MatrixKind>,
    /// With --matrix: show the arms, what is left out and why, and the time it takes; measures nothing
    #[arg(long, requires = "matrix")]
    pub(super) list: bool,
    /// With --matrix: no race; make every path there is (of disks each container with each cache and engine), read each
    /// back, print one table with the evidence, and remove all
    #[arg(long, requires = "matrix", conflicts_with = "list")]
    pub(super) read_back_only: bool,
    /// With --matrix: seconds for all of it
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u32).range(60..=86_400))]
    pub(super) budget: u32,
    /// With --matrix: probability in percent that the best arm is dropped by mistake, over all arms and looks together
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = error_percent)]
    pub(super) error: f64,
    /// With --matrix: leave out arms with this word, such as `writethrough`, `virtio-scsi`, `native`, `qcow2-metadata`, `macvtap`;
    /// can be given several times, and the default always stays
    #[arg(long, value_name = "WORD", requires = "matrix")]
    pub(super) without: Vec<String>,
    /// With --matrix: measure cache=unsafe too, which ignores the guest's flushes and so loses data when the host stops;
    /// it never wins
    #[arg(long, requires = "matrix")]
    unsafe_loses_data: bool,
    /// With --matrix: how much of its storage each arm works on; with --workload iozone alone: size of all files together
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = span)]
    pub(super) span: Bytes,
    /// With --matrix: write the chart here as SVG
    #[arg(long, value_name = "FILE", requires = "matrix")]
    pub(super) chart: Option<PathBuf>,
    /// With --matrix: what is printed
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "matrix")]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) net: NetArgs,
}

impl MatrixArgs {
    /// Which matrix, if one is asked for.
    pub(super) fn kind(&self) -> Option<MatrixKind> {
        self.matrix
    }
}

fn error_percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=20.0).contains(&value) => Ok(value),
        _ => Err("write a number from 0.1 to 20, such as 5".to_owned()),
    }
}

/// 4 MiB at least: fewer blocks are read again and again within a sample.
fn span(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: nearmetal_units::ParseError| error.to_string())?;
    if size < Bytes::from_mib(4) || size.get() % (1 << 20) != 0 {
        return Err(format!("{size} is no span: write a multiple of 1 MiB from 4 MiB up, such as 256MiB"));
    }
    Ok(size)
}

/// Refuses a word that fits no way on any machine: hours later its arms would have been measured all the same.
pub(super) fn known_words(without: &[String], known: &[String]) -> anyhow::Result<()> {
    match without.iter().find(|word| !known.contains(word)) {
        None => Ok(()),
        Some(word) => {
            Err(WrongUse(format!("--without: no way is called `{word}`; write one of {}", known.join(", "))).into())
        }
    }
}

/// Runs the command. `args` are those of `bench`, of which a matrix is a part.
pub(super) fn disk_matrix(args: &bench::Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let own = &args.matrix;
    known_words(&own.without, &path_words())?;
    let fs = HostFs::live();
    let journal = args.state.journal();
    let plan = plan_of(args.plan.as_deref(), &args.domain, &journal)?;
    let (change, placement) = pinned_in_plan(&plan, &args.domain)?;
    let size = args.block_size.first().copied().unwrap_or(args.workload.usual_size());
    let seconds = args.seconds.unwrap_or(SECONDS);
    // Of the storage of an arm a quarter is left for a file system's own tables.
    let files_span = Bytes::new(own.span.get() / 4 * 3);
    let (mut job, mut files) = (FioJob::first_seed(size, seconds, 1), None);
    match args.workload.of_size(size, seconds, 1, files_span).as_slice() {
        [Workload::Fio(only)] => job = only.clone(),
        [Workload::FileSystem(only)] => files = Some(only.clone()),
        _ => bail!("a matrix races one workload: name sequential-read or sequential-write, iozone-ext4 or iozone-xfs"),
    }
    job.span = Some(own.span);
    let request = MatrixRequest {
        guest: args.domain.clone(),
        placement: placement.clone(),
        xml: change.xml_after.clone(),
        scratch: args.scratch.clone(),
        unsafe_allowed: own.unsafe_loses_data,
        without: own.without.clone(),
        job,
        files,
        budget: own.budget,
        error: own.error / 100.0,
        pairs: args.pairs.unwrap_or(PAIRS),
        conditions: bench::conditions(args, &fs, &journal)?,
    };
    if own.list {
        return Ok(list(&request, &fs, printer));
    }
    need_root("starts guests and drops caches", ", or see what it would do with --list")?;
    let mut libvirt = Libvirt::open(None)?;
    if own.read_back_only {
        let table = watch(printer, winner, |tell| read_back_paths(&request, &fs, &mut libvirt, tell))?;
        return show_paths(args, &table, printer);
    }
    let results = watch(printer, winner, |tell| matrix(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, &request.conditions.state.join(STORE), printer)?;
    Ok(ExitStatus::Done)
}

/// What would be measured. Needs no libvirt: what it would say is then unknown, and the arms it decides are listed.
fn list(request: &MatrixRequest, fs: &HostFs, printer: &mut Printer) -> ExitStatus {
    let versions: Option<Versions> = Libvirt::open(None).ok().and_then(|mut libvirt| libvirt.versions().ok());
    let mut ground: Ground = nearmetal_measure::ground(request, fs, &Host::read(fs), versions.as_ref());
    if request.scratch.is_empty() {
        // Nothing named yet: everything there is, so that a reader sees what a device and a directory give.
        ground.containers = Container::ALL.to_vec();
    }
    let (kept, left_out) = arms(&ground);
    let ids: Vec<DiskPath> = kept;
    printer.data(&list_text(&ids, &left_out, least_seconds(request, ids.len()), request.budget));
    ExitStatus::Done
}

fn keep(
    args: &bench::Args,
    results: &MatrixResults,
    store: &std::path::Path,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let own = &args.matrix;
    let document = written(results, args.output.as_deref())?;
    if let Some(path) = &own.chart {
        files::write_atomic(path, chart(results))?;
    }
    let store = args.store.as_deref().unwrap_or(store);
    Store::open(store)?.add_matrix(results)?;
    match own.format {
        Format::Json => printer.data(&document),
        Format::Text => printer.data(&text(results)),
    }
    printer.say(&format!("kept in {}: `nearmetal plan` uses it where drive and kernel are the same", store.display()));
    Ok(())
}

/// The table; a path that did not take effect is a failed verification.
fn show_paths(args: &bench::Args, table: &PathTable, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let document = written(table, args.output.as_deref())?;
    match args.matrix.format {
        Format::Json => printer.data(&document),
        Format::Text => printer.data(&paths_text(table)),
    }
    let amiss = table.rows.iter().any(|row| row.proof.amiss.is_some());
    Ok(if amiss { ExitStatus::Findings } else { ExitStatus::Done })
}

/// What a person calls an arm of the fresh rounds.
pub(super) fn winner(arm: ArmKind) -> &'static str {
    if arm == ArmKind::Planned { "the winner again" } else { arm.title() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_fits_no_way_is_refused_with_those_there_are() {
        let words = |word: &str| known_words(&[word.to_owned()], &path_words());
        assert!(words("main-loop").is_ok() && words("qcow2-falloc").is_ok());
        let error = words("main-lop").unwrap_err();
        assert!(error.is::<WrongUse>() && error.to_string().contains("main-loop"), "{error}");
    }
}
