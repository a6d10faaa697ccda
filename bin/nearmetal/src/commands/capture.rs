//! `nearmetal capture`.

use std::io::IsTerminal;
use std::path::PathBuf;

use nearmetal_host::{HostFs, files};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Write what this machine shows of itself into one file, to look at elsewhere
///
/// The file is a gzipped tar of plain text: what nearmetal's readers read of /sys and /proc, and nothing else. Any `tar`
/// unpacks it, so that you can see what you give away. Serial numbers, hardware addresses (MAC) and secrets on QEMU's
/// command lines are masked, equal ones by equal masks; command lines of other programs are never in it. The host's
/// name, its kernel's command line and its table of mounts are.
///
/// Changes nothing and needs no root; as root it also holds where running guests' pages are.
///
/// `nearmetal inspect --capture FILE` shows it on any machine, `nearmetal plan --capture FILE` plans for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write; `-` is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keep serial numbers, hardware addresses and secrets as they are
    #[arg(long)]
    unmasked: bool,
}

/// Runs the command.
pub(crate) fn capture(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && std::io::stdout().is_terminal() {
        printer.important("error: a capture is not text for a terminal: name a file, or pipe it");
        return Ok(ExitStatus::WrongUse);
    }
    let (tree, host) = nearmetal_capture::collect(HostFs::live(), args.unmasked)?;
    let mut bytes = Vec::new();
    nearmetal_capture::write(&tree, args.unmasked, &mut bytes)?;
    if to_stdout {
        printer.bytes(&bytes);
    } else {
        let replaced = if args.file.exists() { ", in place of a former file" } else { "" };
        files::write_atomic(&args.file, &bytes)?;
        let masked = match args.unmasked {
            true => "NOT masked",
            false => {
                "serial numbers and hardware addresses masked; host name, kernel command line and mounts are in it"
            }
        };
        let (size, name) = (bytes.len().div_ceil(1024), args.file.display());
        printer.say(&format!("{size} KiB{replaced}, {masked}"));
        printer.say(&format!(
            "to see it: nearmetal inspect --capture {name}; to check it: nearmetal doctor --capture {name}"
        ));
    }
    if let Some(sentence) = nearmetal_host::text::what_root_would_add(&host) {
        printer.say(&sentence);
    }
    Ok(ExitStatus::Done)
}
