//! `nearmetal fleet import`.

use std::path::PathBuf;

use nearmetal_host::files;
use nearmetal_interchange::fleet_from_flavors;

use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// Bytes read of a file; the reader's own limit is told by the reader.
const MOST_READ: usize = (16 << 20) + 1;

/// Write a fleet file from what another engine has
///
/// Reads flavors as `openstack flavor show NAME -f json` or `openstack flavor list --long -f json` prints them, and writes
/// one VM for each. What a fleet file cannot say is printed, and stands in it as a comment. The file is yours to edit. The
/// command writes nothing else and never overwrites a file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine
    #[arg(long, value_enum)]
    from: From,
    /// The file of flavors
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the fleet file here [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum From {
    /// OpenStack Nova's flavors, as JSON
    Nova,
}

/// Runs the command.
pub(crate) fn import(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if let Some(path) = args.output.as_ref().filter(|path| path.exists()) {
        let name = path.display();
        return Err(WrongUse(format!("`{name}` exists, and nearmetal does not overwrite it: name another file")).into());
    }
    let text = files::read_to_string_up_to(&args.file, MOST_READ)
        .map_err(|error| WrongUse(format!("{:#}", anyhow::Error::from(error))))?;
    let origin = format!("cannot read `{}`", args.file.display());
    let (fleet, limits) = match args.from {
        From::Nova => fleet_from_flavors(&text, &origin).map_err(|error| WrongUse(error.to_string()))?,
    };
    match &args.output {
        None => printer.data(&fleet),
        Some(path) => {
            files::write_atomic(path, &fleet)?;
            printer.say(&format!("written; to check it: nearmetal fleet check {}", path.display()));
        }
    }
    if !limits.is_empty() {
        printer.say("a fleet file cannot say, or says in its own way:");
        limits.iter().for_each(|limit| printer.say(&format!("  {}", limit.line())));
    }
    Ok(ExitStatus::Done)
}
