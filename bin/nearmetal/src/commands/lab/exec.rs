//! `nearmetal lab exec`.

use std::time::Duration;

use nearmetal_lab::{Command, Input, LabError, Places};

use super::open;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Exit code of a command that ran into its limit, as timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// Run a command in a lab, and pass on its output and exit code
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: the command's own; 124 if --timeout killed it; 3 if the lab is not up or was lost."
)]
pub struct Args {
    /// Name of the lab
    name: String,
    /// Kill the command, and all it started, after SECONDS
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Pass standard input on
    #[arg(long, short)]
    interactive: bool,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`{text}` is not a number of seconds"))
}

/// Runs a command.
pub fn exec(args: Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let lab = open(places, &args.name)?;
    let mut command = Command::new(args.command);
    if args.interactive {
        command = command.input(Input::Inherit);
    }
    if let Some(limit) = args.timeout {
        command = command.timeout(limit);
    }
    match lab.exec_streaming(&command, &mut std::io::stdout(), &mut std::io::stderr()) {
        Ok(code) => Ok(ExitStatus::Program(code as u8)),
        Err(error @ LabError::TimedOut { .. }) => {
            printer.important(&format!("error: {error}"));
            Ok(ExitStatus::Program(TIMED_OUT))
        }
        Err(error) => Err(error.into()),
    }
}
