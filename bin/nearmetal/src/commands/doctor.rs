//! `nearmetal doctor`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_rules::{Examination, Input, RULES, Rule, Settings, Severity, WorkloadClass, examine};

use crate::doctor::{
    FixArgs, Gathered, Images, LookArgs, Looked, Report, Times, explain, export, fix, gather, gather_again, json,
    junit, known, list, sarif, settings, stopped_by_signals, text, watch,
};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::style;

/// What on this host, and in its domains, keeps guests from bare-metal speed
///
/// Checks the host and every domain, as it runs and as it is defined, and changes nothing. Needs neither root nor
/// libvirt: what could not be read is said once. Exit code 1 if anything at or above `--fail-on` is found.
///
/// With `--fix` it cures what it found: shows what is to be done, asks, journals each change before it is made, and looks
/// again. `nearmetal rollback` takes it back, `nearmetal verify` looks whether it still holds. No guest is stopped:
/// definitions come into force at the next start. Exit code 1 then means that a finding at or above `--fail-on` is
/// neither cured nor waiting for a start.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check these definitions instead of libvirt's domains; several may follow
    #[arg(long, value_name = "FILE", num_args = 1.., global = true)]
    xml: Vec<PathBuf>,
    /// Check a captured machine instead of this one: a file of `nearmetal capture`, hwloc's tar or XML, or a directory
    #[arg(long, value_name = "PATH", global = true)]
    capture: Option<PathBuf>,
    /// What all domains are for; decides over what their definitions say
    #[arg(long, value_name = "CLASS", global = true)]
    class: Option<WorkloadClass>,
    /// Check these rules alone; may be given several times
    #[arg(long, value_name = "RULE", value_parser = known, global = true)]
    only: Vec<&'static Rule>,
    /// How it is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The least severity that makes the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Loss)]
    fail_on: FailOn,
    /// Another threshold, as NAME=VALUE; `--list` shows their names and defaults
    #[arg(long, value_name = "NAME=VALUE", global = true)]
    set: Vec<String>,
    /// Tell all about one rule: what it reads, why, what it is worth, how it is cured and undone, its sources
    #[arg(long, value_name = "RULE", value_parser = known, conflicts_with_all = ["list", "xml", "capture"])]
    explain: Option<&'static Rule>,
    /// List all rules and thresholds
    #[arg(long)]
    list: bool,
    /// Look again every so many seconds (10), until Ctrl-C, and print only what came and what went; insides of guests
    /// are read once. With `--format json` each change is one line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10",
          value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with_all = ["list", "explain"])]
    watch: Option<u64>,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    fix: FixArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Write what was found in forms that outlive a reboot, and change nothing
    ///
    /// A tuned profile, and the same settings as files for sysctl.d, tmpfiles.d, modprobe.d, modules-load.d and udev;
    /// kernel arguments for grubby and update-grub; new definitions of domains. README.txt in there says what each file
    /// is, how it is put in place and taken away, and which findings none of them covers. Needs no root to write.
    Export {
        /// Directory to write to: a new one, an empty one, or one that this command wrote before
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line for each finding, worst first
    Text,
    /// One document, described by docs/reference/doctor.schema.json
    Json,
    /// SARIF 2.1.0, for code-scanning views
    Sarif,
    /// JUnit XML, one case for each rule
    Junit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// Something cannot work as asked
    Fault,
    /// Something is slower than its class needs
    Loss,
    /// Something a person should decide
    Decide,
    /// Anything at all
    Note,
    /// Nothing
    Never,
}

impl FailOn {
    fn severity(self) -> Option<Severity> {
        match self {
            Self::Fault => Some(Severity::Fault),
            Self::Loss => Some(Severity::Loss),
            Self::Decide => Some(Severity::Decide),
            Self::Note => Some(Severity::Note),
            Self::Never => None,
        }
    }
}

/// Checks, and shows what was found.
pub(crate) fn doctor(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if args.list {
        printer.data(&list());
        return Ok(ExitStatus::Done);
    }
    if let Some(rule) = args.explain {
        printer.data(&explain(rule));
        return Ok(ExitStatus::Done);
    }
    let settings: Settings = match settings(&args.set) {
        Ok(settings) => settings,
        Err(message) => return Ok(wrong_use(printer, &message)),
    };
    if args.action.is_some() && (args.watch.is_some() || args.fix.is_wanted()) {
        return Ok(wrong_use(printer, "`export` writes once and cures nothing: leave --watch and --fix out"));
    }
    if args.fix.is_wanted() {
        let form = match args.format {
            Format::Text => style::Format::Text,
            Format::Json => style::Format::Json,
            _ => return Ok(wrong_use(printer, "--fix shows its result as text or json")),
        };
        return Ok(fix(&args.fix, args.class, &settings, args.fail_on.severity(), form, printer));
    }
    let mut gathered = match gather(&args.xml, args.capture.as_deref(), args.class) {
        Ok(gathered) => gathered,
        Err(message) => return Ok(wrong_use(printer, &message)),
    };
    let looked = match args.look.read(&gathered) {
        Ok(looked) => looked,
        Err(error) => return Ok(wrong_use(printer, &format!("{error:#}"))),
    };
    looked.problems.iter().for_each(|problem| printer.important(&format!("error: {problem}")));
    if let Some(seconds) = args.watch {
        return keep_watch(&args, seconds, &settings, &looked, &gathered, printer);
    }
    looked.give(&mut gathered.domains);
    let examination = checked(&args, &gathered, &settings);
    if let Some(Action::Export { directory }) = &args.action {
        match export(directory, &gathered, &examination, args.capture.is_none()) {
            Ok(list) => printer.data(&list),
            Err(message) => return Ok(wrong_use(printer, &message)),
        }
        say_unchecked(&gathered, printer);
        say(&gathered, printer);
        printer
            .say(&format!("nothing is in force yet: `{}` says how to go on", directory.join("README.txt").display()));
        return Ok(ended(&gathered, ExitStatus::Done));
    }
    let fail_on = args.fail_on.severity();
    let report = Report { gathered: &gathered, examination: &examination, fail_on };
    printer.data(&match args.format {
        Format::Text => text(&report),
        Format::Json => json(&report)?,
        Format::Sarif => sarif(&report)?,
        Format::Junit => junit(&report),
    });
    say(&gathered, printer);
    Ok(ended(&gathered, if report.fails() { ExitStatus::Findings } else { ExitStatus::Done }))
}

/// This status, unless something could not be read.
fn ended(gathered: &Gathered, status: ExitStatus) -> ExitStatus {
    match (gathered.bad_files.is_empty(), gathered.bad_domains.is_empty()) {
        (false, _) => ExitStatus::WrongUse,
        (_, false) => ExitStatus::Refused,
        _ => status,
    }
}

fn checked(args: &Args, gathered: &Gathered, settings: &Settings) -> Examination {
    let input = Input { host: Some(&gathered.host), domains: &gathered.domains, settings };
    match args.only.as_slice() {
        [] => examine(&input, RULES),
        only => examine(&input, only.iter().copied()),
    }
}

/// Looks until Ctrl-C.
fn keep_watch(
    args: &Args,
    seconds: u64,
    settings: &Settings,
    looked: &Looked,
    first: &Gathered,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    if !matches!(args.format, Format::Text | Format::Json) {
        return Ok(wrong_use(printer, "--watch shows changes as text or json"));
    }
    say_unchecked(first, printer);
    say(first, printer);
    let mut images = Images::default();
    let look = || {
        let mut gathered = gather_again(&args.xml, args.capture.as_deref(), args.class, &mut images).ok()?;
        // libvirt went, as it does when it is restarted, or when Ctrl-C reaches its helper: nobody knows what changed.
        if gathered.domains_unknown.is_some() && first.domains_unknown.is_none() {
            return None;
        }
        looked.give(&mut gathered.domains);
        Some(checked(args, &gathered, settings).findings)
    };
    let times = Times { every: Duration::from_secs(seconds), stop: stopped_by_signals()?, begun: false };
    let last = watch(times, look, |change| match args.format {
        Format::Json => printer.data(&serde_json::to_string(change).unwrap_or_default()),
        _ => printer.data(&change.line()),
    });
    let fail_on = args.fail_on.severity();
    let fails = last.iter().any(|finding| fail_on.is_some_and(|least| finding.severity <= least));
    Ok(if fails { ExitStatus::Findings } else { ExitStatus::Done })
}

/// What could not be read, once.
fn say(gathered: &Gathered, printer: &mut Printer) {
    for problem in gathered.bad_files.iter().chain(&gathered.bad_domains) {
        printer.important(&format!("error: {problem}"));
    }
    if let Some(sentence) = nearmetal_host::text::what_root_would_add(&gathered.host) {
        printer.say(&sentence);
    }
}

/// The same, where no count is shown that says it.
fn say_unchecked(gathered: &Gathered, printer: &mut Printer) {
    if let Some(why) = &gathered.domains_unknown {
        printer.say(&format!("domains were not checked: {why}"));
    }
}

fn wrong_use(printer: &mut Printer, message: &str) -> ExitStatus {
    printer.important(&format!("error: {message}"));
    ExitStatus::WrongUse
}
