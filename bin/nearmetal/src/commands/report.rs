//! `nearmetal report`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use nearmetal_host::files;
use nearmetal_report::view::JobReport;
use nearmetal_report::{
    Moment, Surface, arms_svg, by_nodes_svg, experiment_text, html_page, machine_svg, race_svg, summary_json, terminal,
    tiles_svg, together_svg,
};
use nearmetal_stats::ShownRatio;

use crate::exit_status::{ExitStatus, WrongUse};
use crate::experiment;
use crate::job::{Document, Figure, JobError, JobFiles, assemble, headline_numbers};
use crate::printer::Printer;
use crate::results_store::{StoreArgs, open};
use crate::state::StateArgs;
use crate::style::style;

/// Turn a job directory, an experiment's directory, or one measurement into a report
///
/// A job directory holds plan.json (`plan -o`) and any of host-before.json and host-after.json (`inspect --format json`),
/// verification.json (`verify --format json`), results.json (`bench slice -o`, or from `bench inside` or `bench drive`),
/// rollback.json (`rollback --format json`) and job.json (title and remarks, as the demo writes it). The command prints
/// the report and writes report.html, summary.json, machine-before.svg and machine-after.svg.
///
/// An experiment's directory is what `nearmetal experiment run` wrote. The command prints its text and writes its page again.
///
/// A measurement is the JSON document of any `bench` command (`-o FILE`), or one that the store keeps (--measurement).
/// The command prints what `bench show` prints, and writes report.html with its charts as SVG files beside it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nearmetal report job
  nearmetal report results.json
  nearmetal report --measurement 12 -o web1-disk")]
pub(crate) struct Args {
    /// The directory of a job or an experiment, or the document of a measurement
    #[arg(value_name = "JOBDIR|FILE", required_unless_present = "measurement", conflicts_with = "measurement")]
    job: Option<PathBuf>,
    /// Report on this measurement of the store, by the number that `nearmetal bench history` lists
    #[arg(long, value_name = "ID")]
    measurement: Option<i64>,
    /// Read the measurement from this SQLite store [default: results.sqlite in the state directory]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The state directory with the store [default: $NEARMETAL_STATE, or /var/lib/nearmetal]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Write the files here [default: the job directory; for a measurement FILE without its extension and with `-report`
    /// after it, or measurement-ID-report]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Report on this domain of a job; needed if the plan places several and none was measured
    #[arg(long, value_name = "NAME", conflicts_with = "measurement")]
    domain: Option<String>,
}

impl Args {
    /// The report of a job, written into its own directory.
    pub(crate) fn of_job(directory: &Path) -> Self {
        Self {
            job: Some(directory.to_owned()),
            measurement: None,
            store: None,
            state: None,
            output: None,
            format: Format::Text,
            domain: None,
        }
    }

    /// The store to read.
    fn store(&self) -> PathBuf {
        StoreArgs::of(self.store.clone()).path(&StateArgs::of(self.state.clone()).journal())
    }
}

/// What is printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// Everything in the report, as data
    Json,
    /// The page itself
    Html,
}

/// Runs the command.
pub(crate) fn report(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    // clap does not see it where a document is named.
    if args.measurement.is_none() && (args.store.is_some() || args.state.is_some()) {
        return Err(WrongUse("--store and --state are for --measurement ID: leave them out".to_owned()).into());
    }
    let made = match (args.measurement, &args.job) {
        (Some(id), _) => {
            let measured = open(&args.store())?.measurement(id)?;
            let origin = PathBuf::from(format!("measurement-{id}"));
            of_measurement(&args, &Document::Measured(measured), &origin, printer)?
        }
        // What is not there is called a missing job, unless its name is a document's.
        (None, Some(path)) if path.join(experiment::RECORD).is_file() => of_experiment(&args, path, printer)?,
        (None, Some(path)) if path.is_dir() || (!path.exists() && path.extension().is_none()) => {
            of_job(&args, path, printer)?
        }
        (None, Some(path)) => match (&args.domain, Document::load(path)) {
            (None, Ok(document)) => of_measurement(&args, &document, path, printer)?,
            (None, Err(error)) => Err(error),
            (Some(_), _) => {
                return Err(WrongUse("--domain: a measurement is reported whole, so leave it out".to_owned()).into());
            }
        },
        (None, None) => return Err(WrongUse("name a job directory or a measurement's document".to_owned()).into()),
    };
    if let Err(error) = made {
        printer.important(&format!("error: {:#}", anyhow::Error::from(error)));
        return Ok(ExitStatus::WrongUse);
    }
    Ok(ExitStatus::Done)
}

/// The report of a job. The inner error is of what was given: a mistake of whoever asks, not of the machine.
fn of_job(args: &Args, job: &Path, printer: &mut Printer) -> anyhow::Result<Result<(), JobError>> {
    let report = match JobFiles::load(job).and_then(|files| assemble(&files, args.domain.as_deref())) {
        Ok(report) => report,
        Err(error) => return Ok(Err(error)),
    };
    let directory = args.output.as_deref().unwrap_or(job);
    let page = html_page(&report)?;
    files::create_dir_all(directory)?;
    let summary = summary_json(&report).context("cannot make the summary")?;
    files::write_atomic(&directory.join("report.html"), &page)?;
    files::write_atomic(&directory.join("summary.json"), summary)?;
    for (moment, name) in [(Moment::Before, "machine-before.svg"), (Moment::After, "machine-after.svg")] {
        if let Some(picture) = machine_svg(&report, moment, Surface::Standalone) {
            files::write_atomic(&directory.join(name), picture)?;
        }
    }
    match args.format {
        Format::Text => {
            let style = style(printer);
            printer.data(&terminal(&report, &style));
        }
        Format::Json => printer.data(&serde_json::to_string_pretty(&report)?),
        Format::Html => printer.data(&page),
    }
    let numbers = headline_numbers(&report);
    let metric = report.metrics.iter().find(|metric| Some(&metric.id) == report.headline_metric.as_ref());
    let worse = metric.map_or("", |metric| metric.less_is_better());
    for (figure, against) in
        [(numbers.planned_to_found, "the VM as found"), (numbers.planned_to_other, "what virt-install writes")]
    {
        if let Some(figure) = figure {
            printer.say(&format!("Planned against {against}: {}{worse}", words(&figure)));
        }
    }
    printer.say(&format!("Report: {}", directory.join("report.html").display()));
    Ok(Ok(()))
}

/// The report of an experiment, in its own directory: its pages link to each other.
fn of_experiment(args: &Args, directory: &Path, printer: &mut Printer) -> anyhow::Result<Result<(), JobError>> {
    if args.domain.is_some() || args.output.is_some() {
        return Err(WrongUse("--domain and -o: an experiment is reported whole, in its directory".to_owned()).into());
    }
    let mut view = match experiment::load(directory) {
        Ok(Some(view)) => view,
        Ok(None) => return Ok(Ok(())),
        Err(error) => return Ok(Err(error)),
    };
    experiment::render(directory, &mut view)?;
    let page = directory.join(experiment::PAGE);
    match args.format {
        Format::Text => printer.data(&experiment_text(&view, &style(printer))),
        Format::Json => printer.data(&serde_json::to_string_pretty(&view)?),
        Format::Html => printer.data(&files::read_to_string(&page)?),
    }
    printer.say(&format!("Report: {}", page.display()));
    Ok(Ok(()))
}

/// The report of one measurement; `origin` is its document, or what stands for it.
fn of_measurement(
    args: &Args,
    document: &Document,
    origin: &Path,
    printer: &mut Printer,
) -> anyhow::Result<Result<(), JobError>> {
    let report = match document.report(origin) {
        Ok(report) => report,
        Err(error) => return Ok(Err(error)),
    };
    let directory = args.output.clone().unwrap_or_else(|| beside(origin));
    let page = html_page(&report)?;
    files::create_dir_all(&directory)?;
    files::write_atomic(&directory.join("report.html"), &page)?;
    for (name, chart) in charts(&report) {
        files::write_atomic(&directory.join(name), chart)?;
    }
    match args.format {
        Format::Text => printer.data(&document.text()?),
        Format::Json => printer.data(&serde_json::to_string_pretty(&report)?),
        Format::Html => printer.data(&page),
    }
    printer.say(&format!("Report: {}", directory.join("report.html").display()));
    Ok(Ok(()))
}

/// `net.json` is reported in `net-report`.
fn beside(document: &Path) -> PathBuf {
    let mut name = document.file_stem().unwrap_or(document.as_os_str()).to_owned();
    name.push("-report");
    document.with_file_name(name)
}

/// The charts of a measurement by the names of their files: the race, the guests at once, each metric measured in pairs.
fn charts(report: &JobReport) -> Vec<(String, String)> {
    let plain = |id: &str| id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect::<String>();
    let paired = |id: &str| report.comparisons.iter().any(|row| row.metric == id && !row.single_shot);
    let arms = report.metrics.iter().filter(|metric| paired(&metric.id)).filter_map(|metric| {
        Some((format!("arms-{}.svg", plain(&metric.id)), arms_svg(report, &metric.id, Surface::Standalone)?))
    });
    let race = race_svg(report).map(|chart| ("race.svg".to_owned(), chart));
    let together = together_svg(report, Surface::Standalone).map(|chart| ("together.svg".to_owned(), chart));
    let by_nodes = by_nodes_svg(report, Surface::Standalone).map(|chart| ("by-nodes.svg".to_owned(), chart));
    let tiles = tiles_svg(report, Surface::Standalone).map(|chart| ("tiles.svg".to_owned(), chart));
    race.into_iter().chain(together).chain(by_nodes).chain(tiles).chain(arms).collect()
}

fn words(figure: &Figure) -> String {
    let pairs = if figure.n == 1 { "1 pair".to_owned() } else { format!("{} pairs", figure.n) };
    let shown = ShownRatio::new(figure.ratio, figure.interval);
    match figure.interval {
        Some(_) => format!("{shown}, {pairs}"),
        None => format!("{shown}, single shot"),
    }
}
