//! `nearmetal report`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use nearmetal_host::files;
use nearmetal_report::view::JobReport;
use nearmetal_report::{Moment, Surface, html_page, machine_svg, summary_json, terminal};
use nearmetal_stats::ShownRatio;

use crate::exit_status::ExitStatus;
use crate::job::{Figure, JobError, JobFiles, assemble, headline_numbers};
use crate::printer::Printer;
use crate::style::style;

/// Turn a job directory into a report
///
/// The directory holds plan.json (`plan -o`) and any of host-before.json and host-after.json (`inspect --format json`),
/// verification.json (`verify --format json`), results.json (`bench slice -o`, or from `bench inside` or `bench drive`),
/// rollback.json (`rollback --format json`) and job.json (title and remarks, as the demo writes it). The command prints
/// the report and writes report.html, summary.json, machine-before.svg and machine-after.svg.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job directory
    #[arg(value_name = "JOBDIR")]
    job: PathBuf,
    /// Write the files here [default: the job directory]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Report on this domain; needed if the plan places several and none was measured
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
}

impl Args {
    /// The report of a job, written into its own directory.
    pub(crate) fn of_job(directory: &Path) -> Self {
        Self { job: directory.to_owned(), output: None, format: Format::Text, domain: None }
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
    let report = match load(&args) {
        Ok(report) => report,
        Err(error) => {
            printer.important(&format!("error: {:#}", anyhow::Error::from(error)));
            return Ok(ExitStatus::WrongUse);
        }
    };
    let directory = args.output.unwrap_or(args.job);
    let page = html_page(&report)?;
    write(&directory, &report, &page)?;
    match args.format {
        Format::Text => {
            let style = style(printer);
            printer.data(&terminal(&report, &style));
        }
        Format::Json => printer.data(&serde_json::to_string_pretty(&report)?),
        Format::Html => printer.data(&page),
    }
    let numbers = headline_numbers(&report);
    for (figure, against) in
        [(numbers.planned_to_found, "the VM as found"), (numbers.planned_to_other, "what virt-install writes")]
    {
        if let Some(figure) = figure {
            printer.say(&format!("Planned against {against}: {}", words(&figure)));
        }
    }
    printer.say(&format!("Report: {}", directory.join("report.html").display()));
    Ok(ExitStatus::Done)
}

fn load(args: &Args) -> Result<JobReport, JobError> {
    assemble(&JobFiles::load(&args.job)?, args.domain.as_deref())
}

fn write(directory: &Path, report: &JobReport, page: &str) -> anyhow::Result<()> {
    files::create_dir_all(directory)?;
    let summary = summary_json(report).context("cannot make the summary")?;
    files::write_atomic(&directory.join("report.html"), page)?;
    files::write_atomic(&directory.join("summary.json"), summary)?;
    for (moment, name) in [(Moment::Before, "machine-before.svg"), (Moment::After, "machine-after.svg")] {
        files::write_atomic(&directory.join(name), machine_svg(report, moment, Surface::Standalone))?;
    }
    Ok(())
}

fn words(figure: &Figure) -> String {
    let pairs = if figure.n == 1 { "1 pair".to_owned() } else { format!("{} pairs", figure.n) };
    let shown = ShownRatio::new(figure.ratio, figure.interval);
    match figure.interval {
        Some(_) => format!("{shown}, {pairs}"),
        None => format!("{shown}, single shot"),
    }
}
