//! `nearmetal capture`.

use std::io::IsTerminal;
use std::path::PathBuf;

use nearmetal_host::{HostFs, files};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Save what nearmetal reads of this machine in one file, to study elsewhere
///
/// The file is a gzipped tar of plain text. It holds the files of /sys and /proc that nearmetal reads, and nothing else.
/// Unpack it with `tar` to see what you give away. Serial numbers, MAC addresses and secrets on QEMU's command lines are
/// masked, and equal values get equal masks. The host name, the kernel command line and the mount table are in the file;
/// command lines of other programs are not.
///
/// The command changes nothing and runs without root. As root it also records where the pages of running guests lie and
/// which files guests have open.
///
/// `nearmetal inspect --capture FILE` shows the file on any machine; `nearmetal plan --capture FILE --domain-xml web1.xml`
/// plans for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write; `-` for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not mask serial numbers, MAC addresses and secrets
    #[arg(long)]
    unmasked: bool,
}

/// Runs the command.
pub(crate) fn capture(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && std::io::stdout().is_terminal() {
        printer.important("error: a capture is binary and would garble the terminal: name a file, or pipe it");
        return Ok(ExitStatus::WrongUse);
    }
    let (tree, host) = nearmetal_capture::collect(HostFs::live(), args.unmasked)?;
    let mut bytes = Vec::new();
    nearmetal_capture::write(&tree, args.unmasked, &mut bytes)?;
    if to_stdout {
        printer.bytes(&bytes);
    } else {
        let replaced = if args.file.exists() { ", replacing an older file" } else { "" };
        files::write_atomic(&args.file, &bytes)?;
        let masked = match args.unmasked {
            true => "NOT masked",
            false => {
                "serial numbers and MAC addresses masked; host name, kernel command line and mounts are in the file"
            }
        };
        let (size, name) = (bytes.len().div_ceil(1024), args.file.display());
        printer.say(&format!("{size} KiB{replaced}, {masked}"));
        printer.say(&format!(
            "to view it: nearmetal inspect --capture {name}; to check it: nearmetal doctor --capture {name}"
        ));
    }
    if let Some(sentence) = nearmetal_host::text::what_root_would_add(&host) {
        printer.say(&sentence);
    }
    Ok(ExitStatus::Done)
}
