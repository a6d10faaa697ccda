//! `nearmetal device list`.

use nearmetal_host::assignable::{Assignable, examine, render};
use nearmetal_host::text::what_root_would_add;
use nearmetal_host::{Host, ledger};
use serde_json::{Value, json};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::source::SourceArgs;
use crate::style::Format;

/// The schema of the document.
const SCHEMA: &str = "nearmetal.devices/1";

/// List the functions that guests can have, by node, and why they cannot have the others
///
/// Changes nothing and runs without root. The columns are: the function's IOMMU group and how many others share it (a
/// guest gets a whole group); how the IOMMU translates the host's own DMA (identity: not at all, DMA-FQ: lazily, DMA:
/// strictly); virtual functions present and possible; ways to reset the function between guests; the PCI Express link as
/// it runs and at its best.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show only functions on this node
    #[arg(long, value_name = "NUMBER")]
    node: Option<u32>,
    /// Show only functions that a guest can have now
    #[arg(long)]
    free: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    source: SourceArgs,
    /// The command that reaches the other machine, with its options; split at spaces
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host")]
    ssh: String,
}

/// Runs the verb.
pub(super) fn list(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let source = match args.source.open(&args.ssh) {
        Ok(source) => source,
        Err(error) => {
            printer.important(&format!("error: {error:#}"));
            let remote = args.source.host.is_some();
            return Ok(if remote { ExitStatus::Refused } else { ExitStatus::WrongUse });
        }
    };
    let host = Host::read(&source.fs);
    let ledger = ledger::read(&source.fs, &host);
    let mut found = examine(&host, &ledger);
    let all = found.len();
    found.retain(|one| args.node.is_none_or(|node| one.node == Some(node)) && (!args.free || one.is_free()));
    match args.format {
        Format::Json => printer.data(&serde_json::to_string_pretty(&document(&host, &found)?)?),
        Format::Text if found.is_empty() && all > 0 => {
            printer.data(&format!("none of {all} functions matches: run this without --free to see why not"));
        }
        Format::Text => printer.data(&render(&found)),
    }
    if let Some(unknown) = &source.unknown {
        printer.say(unknown);
    }
    if !ledger.unknown.is_empty() {
        printer.say(&format!(
            "this user cannot see some facts, so guests may hold more than is shown: {}",
            ledger.unknown.join(", ")
        ));
    }
    if let Some(sentence) = what_root_would_add(&host) {
        printer.say(&sentence);
    }
    Ok(ExitStatus::Done)
}

/// Each obstacle with its sentence, for programs that only pass it on.
fn document(host: &Host, found: &[Assignable]) -> serde_json::Result<Value> {
    let mut devices = Vec::new();
    for one in found {
        let mut device = serde_json::to_value(one)?;
        let sentences: Vec<String> = one.obstacles.iter().map(ToString::to_string).collect();
        device["free"] = one.is_free().into();
        device["reasons"] = sentences.into();
        devices.push(device);
    }
    Ok(json!({"schema": SCHEMA, "source": host.source, "devices": devices}))
}
