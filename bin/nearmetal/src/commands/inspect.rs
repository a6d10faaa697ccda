//! `nearmetal inspect`.

use std::path::PathBuf;

use nearmetal_capture::{SecurityModel, security_models};
use nearmetal_host::diff::{self, Difference};
use nearmetal_host::ledger::{self, Ledger};
use nearmetal_host::{Document, Host, text};
use nearmetal_hypervisor::{DomainSummary, Hypervisor, HypervisorError, Libvirt};
use nearmetal_report::view::HostMap;
use nearmetal_report::{Style, Surface, host_picture, host_svg};

use crate::exit_status::ExitStatus;
use crate::kvm::{self, Kvm};
use crate::live::vf_table;
use crate::printer::Printer;
use crate::source::SourceArgs;

/// Show a machine: nodes, cores, hugepages, devices and running guests
///
/// Reads /sys and /proc of this machine, of a capture (--capture) or of another machine (--host). It changes nothing and
/// runs without root; its last line says what root would add. A value that makes no sense is listed, never guessed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Draw with ASCII only; the default on a terminal whose locale is not UTF-8
    #[arg(long)]
    ascii: bool,
    /// Compare two captures, such as before and after a firmware update, and show what matters for placement
    ///
    /// The exit code is 1 if they differ. Free memory and running guests change all the time and are left out.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "NOW"], conflicts_with_all = ["capture", "host"])]
    diff: Vec<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    /// The command that reaches the other machine, with its options; split at spaces
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host")]
    ssh: String,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal inspect                                     this machine, as tables
  nearmetal inspect --format picture                    this machine, drawn in the terminal
  nearmetal inspect --format svg > machine.svg          the same, as a poster
  nearmetal capture web7.tar.gz                         on web7: save what nearmetal reads, in one file
  nearmetal inspect --capture web7.tar.gz               anywhere else: show web7
  nearmetal inspect --host root@web7                    web7 over ssh, with nothing installed there
  nearmetal inspect --host qemu+ssh://web7/system       web7 through libvirt only, for hosts without a shell
  lstopo --of xml | gzip > m.xml.gz; nearmetal inspect --capture m.xml.gz
  nearmetal inspect --diff old.tar.gz new.tar.gz        what an update changed for guests
  nearmetal inspect --format json | jq .summary         for programs (docs/reference/host.schema.json)

A question mark means that the source does not say; nearmetal never shows 0 instead. Values
that make no sense are listed under `unreadable`, with their path and text.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// One document for programs, with its schema's name and version
    Json,
    /// A picture as wide as the terminal: nodes, L3 domains, cores, PUs, memory and devices by owner
    Picture,
    /// The same picture as SVG, for light and dark pages; redirect it into a file
    Svg,
}

/// Reads the host and shows it. Damage in the source is shown, not failed on.
pub fn inspect(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if let [before, now] = args.diff.as_slice() {
        return compare(before, now, args.format, printer);
    }
    let mut source = match args.source.open(&args.ssh) {
        Ok(source) => source,
        Err(error) => {
            printer.important(&format!("error: {error:#}"));
            let remote = args.source.host.is_some();
            return Ok(if remote { ExitStatus::Refused } else { ExitStatus::WrongUse });
        }
    };
    let mut host = Host::read(&source.fs);
    if source.fs.is_live() {
        vf_table::fill_in(&mut host);
    }
    let guests = match (&mut source.libvirt, args.format) {
        (_, Format::Picture | Format::Svg) => Ok(Guests::default()),
        (Some(libvirt), _) => Guests::ask(libvirt).map_err(first_line),
        (None, _) if source.fs.is_live() => {
            Libvirt::open(None).and_then(|mut here| Guests::ask(&mut here)).map_err(first_line)
        }
        // The domains of this machine have no place beside another one.
        (None, _) => Err("not asked: libvirt here does not know that machine".to_owned()),
    };
    match args.format {
        Format::Text => {
            // A description of the hardware alone knows no processes: nobody can say who owns what.
            let owners = match source.fs.is_partial() {
                true => "guests: ? (this source describes the hardware, not the processes)\n".to_owned(),
                false => ledger::render(&ledger::read(&source.fs, &host)),
            };
            let kvm = if source.fs.is_live() { kvm_line(&host) } else { String::new() };
            printer.data(&(text::render(&host) + &kvm + &table(&guests) + "\n" + &owners));
        }
        Format::Json => {
            let kvm = if source.fs.is_live() { kvm::verdict(&host) } else { None };
            printer.data(&json(&host, &guests, &ledger::read(&source.fs, &host), kvm.as_ref())?);
        }
        Format::Picture => {
            let style = crate::style::style(printer);
            let style = Style { ascii: style.ascii || args.ascii, ..style };
            printer.data(&host_picture(&HostMap::new(&host), &style));
        }
        Format::Svg => printer.data(&host_svg(&HostMap::new(&host), Surface::Standalone)),
    }
    if let Some(unknown) = &source.unknown {
        printer.say(unknown);
    }
    if let Some(sentence) = text::what_root_would_add(&host) {
        printer.say(&sentence);
    }
    match (&args.source.capture, &args.source.host) {
        (Some(path), _) => {
            printer
                .say(&format!("to find what would slow guests there: nearmetal doctor --capture {}", path.display()));
        }
        (None, None) => printer.say("to find what slows guests here: nearmetal doctor"),
        (None, Some(_)) => {}
    }
    Ok(ExitStatus::Done)
}

/// Why libvirt's domains are unknown, in one line: inspecting needs no libvirt.
fn first_line(error: HypervisorError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What libvirt says of guests.
#[derive(Default)]
struct Guests {
    domains: Vec<DomainSummary>,
    /// What confines them; `None` where libvirt does not say.
    confined: Option<Vec<SecurityModel>>,
}

impl Guests {
    fn ask(libvirt: &mut Libvirt) -> Result<Self, HypervisorError> {
        let domains = libvirt.domains()?;
        let capabilities = libvirt.capabilities().ok();
        let confined = capabilities.and_then(|text| security_models("libvirt's capabilities", &text).ok());
        Ok(Self { domains, confined })
    }
}

/// Who QEMU runs as and what confines it, in a line. `dac` is libvirt's name for users and groups.
fn confined_line(models: Option<&[SecurityModel]>) -> String {
    let Some(models) = models else { return "\nlibvirt confines guests: ?\n".to_owned() };
    let words: Vec<String> = models
        .iter()
        .map(|model| match (model.model.as_str(), &model.label) {
            ("dac", Some(label)) => format!("user and group {}", label.replace('+', "")),
            (name, Some(label)) => format!("{name} ({label})"),
            (name, None) => name.to_owned(),
        })
        .collect();
    match words.is_empty() {
        true => "\nlibvirt confines guests: no\n".to_owned(),
        false => format!("\nlibvirt confines guests: {}\n", words.join(", ")),
    }
}

fn table(guests: &Result<Guests, String>) -> String {
    let guests = match guests {
        Ok(guests) => guests,
        Err(why) => return format!("\ndomains: unknown ({why})\n"),
    };
    let domains = &guests.domains;
    let width = domains.iter().map(|domain| domain.name.chars().count()).max().unwrap_or(0).max("domain".len());
    let confined = confined_line(guests.confined.as_deref());
    let mut table = format!("{confined}\n{:width$}  {:12}  {:9}  uuid\n", "domain", "state", "autostart");
    for domain in domains {
        let autostart = if domain.autostart { "yes" } else { "no" };
        table.push_str(&format!("{:width$}  {:12}  {autostart:9}  {}\n", domain.name, domain.state, domain.uuid));
    }
    table
}

/// Compares two captures.
fn compare(
    before: &std::path::Path,
    now: &std::path::Path,
    format: Format,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let mut hosts = Vec::new();
    for path in [before, now] {
        match nearmetal_capture::open(path) {
            Ok(fs) => hosts.push(Host::read(&fs)),
            Err(error) => {
                printer.important(&format!("error: {error:#}"));
                return Ok(ExitStatus::WrongUse);
            }
        }
    }
    let differences: Vec<Difference> = diff::diff(&hosts[0], &hosts[1]);
    match format {
        Format::Json => printer.data(&serde_json::to_string_pretty(&differences)?),
        Format::Text => printer.data(&diff::render(&differences)),
        Format::Picture | Format::Svg => {
            printer.important("error: --diff prints text or json: it cannot draw two machines in one picture");
            return Ok(ExitStatus::WrongUse);
        }
    }
    Ok(if differences.is_empty() { ExitStatus::Done } else { ExitStatus::Findings })
}

/// What KVM is worth here, in a line.
fn kvm_line(host: &Host) -> String {
    match kvm::verdict(host) {
        Some(kvm) => format!("\nKVM: {} ({})\n", kvm.verdict, kvm.reason),
        None => "\nKVM: ? (nearmetal-probe is missing from this program's directory, or failed)\n".to_owned(),
    }
}

/// The host's document with `domains` in it (a list, or null and `domains_unknown` with the reason), what confines them, and
/// the ledger.
fn json(host: &Host, guests: &Result<Guests, String>, ledger: &Ledger, kvm: Option<&Kvm>) -> anyhow::Result<String> {
    let mut document = serde_json::to_value(Document::new(host))?;
    document["kvm"] = serde_json::to_value(kvm)?;
    document["ledger"] = serde_json::to_value(ledger)?;
    document["domains"] = serde_json::to_value(guests.as_ref().ok().map(|guests| &guests.domains))?;
    let confined = guests.as_ref().ok().and_then(|guests| guests.confined.as_ref());
    document["security_models"] = confined.map_or(serde_json::Value::Null, |models| {
        models.iter().map(|model| serde_json::json!({"model": model.model, "label": model.label})).collect()
    });
    if let Err(why) = guests {
        document["domains_unknown"] = why.as_str().into();
    }
    Ok(serde_json::to_string_pretty(&document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_confines_guests_is_named_and_unknown_is_not_no() {
        let model = |model: &str, label: Option<&str>| SecurityModel {
            model: model.to_owned(),
            label: label.map(str::to_owned),
        };
        let debian = [model("apparmor", None), model("dac", Some("+64055:+64055"))];
        assert_eq!(confined_line(Some(&debian)), "\nlibvirt confines guests: apparmor, user and group 64055:64055\n");
        assert_eq!(confined_line(Some(&[])), "\nlibvirt confines guests: no\n");
        assert_eq!(confined_line(None), "\nlibvirt confines guests: ?\n");
    }
}
