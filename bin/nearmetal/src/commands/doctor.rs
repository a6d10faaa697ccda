//! `nearmetal doctor`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_rules::{Examination, Input, RULES, Rule, Settings, Severity, WorkloadClass, examine, examine_those};

use crate::doctor::{
    FixArgs, Gathered, Images, LookArgs, Looked, Report, Times, explain, export, fix, gather, gather_again, json,
    junit, known, list, sarif, settings, text, watch,
};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::signals::heard;
use crate::style;

/// Find what slows guests on this host
///
/// Checks the host and every domain, both running and as defined, and changes nothing. It needs neither root nor
/// libvirt, and says once what it could not read. The exit code is 1 if it finds anything at or above `--fail-on`.
///
/// With `--fix` it shows the fixes, asks, journals each change before making it, and checks again. `nearmetal rollback`
/// undoes the changes; `nearmetal verify` checks later that they still hold. `--fix` stops no guest: a changed definition
/// takes effect at the guest's next start. The exit code is then 1 if a finding at or above `--fail-on` is neither
/// fixed nor waiting for a start.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check these definitions instead of libvirt's domains; takes several files
    #[arg(long, value_name = "FILE", num_args = 1.., global = true)]
    xml: Vec<PathBuf>,
    /// Check a captured machine instead of this one: a file of `nearmetal capture`, hwloc's tar or XML, or a directory
    #[arg(long, value_name = "PATH", global = true)]
    capture: Option<PathBuf>,
    /// Judge all domains by this class, whatever their definitions say
    #[arg(long, value_name = "CLASS", global = true)]
    class: Option<WorkloadClass>,
    /// Show only what concerns this domain, and the host; may be repeated
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["fix", "list", "explain"])]
    domain: Vec<String>,
    /// Check only this rule; may be repeated
    #[arg(long, value_name = "RULE", value_parser = known, global = true)]
    only: Vec<&'static Rule>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The lowest severity that makes the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Loss)]
    fail_on: FailOn,
    /// Change a threshold; `--list` shows names and defaults
    #[arg(long, value_name = "NAME=VALUE", global = true)]
    set: Vec<String>,
    /// Explain one rule: what it reads, why it matters and how much, the fix, the undo, the sources
    #[arg(long, value_name = "RULE", value_parser = known, conflicts_with_all = ["list", "xml", "capture"])]
    explain: Option<&'static Rule>,
    /// List all rules and thresholds
    #[arg(long)]
    list: bool,
    /// Check again every SECONDS (10 if not given) until Ctrl-C, and print only what appeared and what went away. The
    /// insides of guests are read once. `--format json` prints one line for each change
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
    /// Write the fixes as configuration files that survive a reboot, and change nothing
    ///
    /// Writes a tuned profile, and the same settings as files for sysctl.d, tmpfiles.d, modprobe.d, modules-load.d and
    /// udev; kernel arguments for grubby and update-grub; and new domain definitions. Its README.txt says what each file
    /// is, how to install and remove it, and which findings no file covers. Runs without root.
    Export {
        /// The directory to write to: new, empty, or written by an earlier export
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line per finding, worst first
    Text,
    /// One document (docs/reference/doctor.schema.json)
    Json,
    /// SARIF 2.1.0, for code-scanning views
    Sarif,
    /// JUnit XML, one case per rule
    Junit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// Something cannot work as configured
    Fault,
    /// Something is slower than the guest's class needs
    Loss,
    /// A person should decide
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
        return Ok(wrong_use(printer, "`export` only writes files: drop --watch and --fix"));
    }
    if args.fix.is_wanted() {
        let form = match args.format {
            Format::Text => style::Format::Text,
            Format::Json => style::Format::Json,
            _ => return Ok(wrong_use(printer, "--fix prints text or json only")),
        };
        return Ok(fix(&args.fix, args.class, &settings, args.fail_on.severity(), form, printer));
    }
    let mut gathered = match gather(&args.xml, args.capture.as_deref(), args.class) {
        Ok(gathered) => gathered,
        Err(message) => return Ok(wrong_use(printer, &message)),
    };
    if let Some(problem) = unknown_among(&args.domain, &gathered) {
        return Ok(wrong_use(printer, &problem));
    }
    let looked = match args.look.read(&gathered) {
        Ok(looked) => looked,
        Err(error) => return Ok(wrong_use(printer, &format!("{error:#}"))),
    };
    looked.problems.iter().for_each(|problem| printer.important(&format!("error: {problem}")));
    if let Some(seconds) = args.watch {
        return keep_watch(&args, seconds, &settings, &looked, &gathered, printer);
    }
    looked.give(&mut gathered.domains);
    if args.xml.is_empty() && args.capture.is_none() {
        gathered.ask_plans(&args.fix.journal());
    }
    let examination = checked(&args, &gathered, &settings);
    if !args.domain.is_empty() {
        gathered.domains.retain(|domain| args.domain.contains(&domain.name));
    }
    if let Some(Action::Export { directory }) = &args.action {
        match export(directory, &gathered, &examination, args.capture.is_none()) {
            Ok(list) => printer.data(&list),
            Err(message) => return Ok(wrong_use(printer, &message)),
        }
        say_unchecked(&gathered, printer);
        say(&gathered, printer);
        printer.say(&format!(
            "nothing has changed yet: `{}` says how to install the \
                files",
            directory.join("README.txt").display()
        ));
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
    // Where there are findings, the text ends with what to do about them.
    let of_this_machine = args.xml.is_empty() && args.capture.is_none();
    if let (true, Format::Text, Some(domain)) = (of_this_machine, args.format, gathered.domains.first()) {
        let plan = format!("nearmetal plan {}", domain.name);
        printer.say(&match examination.findings.is_empty() {
            true => format!("to decide where a guest belongs, with reasons: {plan}"),
            false => format!("to place a guest, which also sets what these rules ask of it: {plan} -o plan.json"),
        });
    }
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
    let rules: Vec<&Rule> = if args.only.is_empty() { RULES.iter().collect() } else { args.only.clone() };
    match args.domain.as_slice() {
        [] => examine(&input, rules),
        those => examine_those(&input, rules, those),
    }
}

/// What is wrong with the domains that were named.
fn unknown_among(named: &[String], gathered: &Gathered) -> Option<String> {
    // One whose definition cannot be read is there; that error is told with the others.
    let is_known = |name: &String| gathered.is_bad(name) || gathered.domains.iter().any(|domain| domain.name == *name);
    let unknown = named.iter().find(|name| !is_known(name))?;
    Some(match (&gathered.domains_unknown, gathered.domains.is_empty()) {
        (Some(why), _) => format!("`{unknown}` cannot be checked: {why}"),
        (None, true) => format!("unknown domain `{unknown}`: there are no domains here"),
        (None, false) => {
            let names: Vec<&str> = gathered.domains.iter().take(NAMED).map(|domain| domain.name.as_str()).collect();
            let more = if gathered.domains.len() > NAMED { ", …" } else { "" };
            format!("unknown domain `{unknown}`; there are: {}{more}", names.join(", "))
        }
    })
}

/// Domains named in an error.
const NAMED: usize = 10;

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
        return Ok(wrong_use(printer, "--watch prints text or json only"));
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
        // The same of one domain: what was found in it is not gone.
        if gathered.bad_domains.iter().any(|bad| !first.is_bad(&bad.name)) {
            return None;
        }
        looked.give(&mut gathered.domains);
        Some(checked(args, &gathered, settings).findings)
    };
    let times = Times { every: Duration::from_secs(seconds), stop: heard()?, begun: false };
    let last = watch(times, look, |change| match args.format {
        Format::Json => printer.data(&serde_json::to_string(change).unwrap_or_default()),
        _ => printer.data(&change.line()),
    });
    let fail_on = args.fail_on.severity();
    let fails = last.iter().any(|finding| fail_on.is_some_and(|least| finding.severity <= least));
    Ok(ended(first, if fails { ExitStatus::Findings } else { ExitStatus::Done }))
}

/// What could not be read, once.
fn say(gathered: &Gathered, printer: &mut Printer) {
    for problem in gathered.problems() {
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
