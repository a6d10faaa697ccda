//! `nearmetal inspect`.

use nearmetal_host::{Document, Host, text};
use nearmetal_hypervisor::{DomainSummary, Hypervisor, Libvirt};

use super::source::SourceArgs;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// What a machine is: nodes, cores, hugepages, devices, and the guests that run on it
///
/// Reads /sys and /proc of this machine, of a capture (--capture), or of another machine (--host). Changes nothing and
/// needs no root; what root would add is said at the end. What makes no sense in the source is listed, never guessed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    source: SourceArgs,
    /// How to reach another machine: the program and its options, split at spaces
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host")]
    ssh: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// One document for programs, with its schema's name and version
    Json,
}

/// Reads the host and shows it. Damage in the source is shown, not failed on.
pub fn inspect(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let source = match args.source.open(&args.ssh) {
        Ok(source) => source,
        Err(error) => {
            printer.important(&format!("error: {error:#}"));
            let remote = args.source.host.is_some();
            return Ok(if remote { ExitStatus::Refused } else { ExitStatus::WrongUse });
        }
    };
    let fs = &source.fs;
    let host = Host::read(fs);
    // A capture is another machine: the domains of this one have no place beside it.
    let domains = if fs.is_live() { domains() } else { Err("not asked: this is another machine".to_owned()) };
    match args.format {
        Format::Text => printer.data(&(text::render(&host) + &table(&domains))),
        Format::Json => printer.data(&json(&host, &domains)?),
    }
    if let Some(unknown) = &source.unknown {
        printer.say(unknown);
    }
    if let Some(sentence) = text::what_root_would_add(&host) {
        printer.say(&sentence);
    }
    Ok(ExitStatus::Done)
}

/// libvirt's domains, or in one line why they are unknown: inspecting needs no libvirt.
fn domains() -> Result<Vec<DomainSummary>, String> {
    let text =
        |error: nearmetal_hypervisor::HypervisorError| error.to_string().lines().next().unwrap_or_default().to_owned();
    Libvirt::open(None).map_err(text)?.domains().map_err(text)
}

fn table(domains: &Result<Vec<DomainSummary>, String>) -> String {
    let domains = match domains {
        Ok(domains) => domains,
        Err(why) => return format!("\ndomains: unknown ({why})\n"),
    };
    let width = domains.iter().map(|domain| domain.name.chars().count()).max().unwrap_or(0).max("domain".len());
    let mut table = format!("\n{:width$}  {:12}  {:9}  uuid\n", "domain", "state", "autostart");
    for domain in domains {
        let autostart = if domain.autostart { "yes" } else { "no" };
        table.push_str(&format!("{:width$}  {:12}  {autostart:9}  {}\n", domain.name, domain.state, domain.uuid));
    }
    table
}

/// The host's document with `domains` in it: a list, or null and `domains_unknown` with the reason.
fn json(host: &Host, domains: &Result<Vec<DomainSummary>, String>) -> anyhow::Result<String> {
    let mut document = serde_json::to_value(Document::new(host))?;
    document["domains"] = serde_json::to_value(domains.as_ref().ok())?;
    if let Err(why) = domains {
        document["domains_unknown"] = why.as_str().into();
    }
    Ok(serde_json::to_string_pretty(&document)?)
}
