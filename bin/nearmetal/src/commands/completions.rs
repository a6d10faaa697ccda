//! `nearmetal completions`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::Cli;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Print the completions of a shell
///
/// The packages install them. After an installation from the tarball, write the output to the shell's own directory:
/// /usr/share/bash-completion/completions/nearmetal, /usr/share/zsh/vendor-completions/_nearmetal or
/// /usr/share/fish/vendor_completions.d/nearmetal.fish.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Known,
}

/// The shells that the packages have completions for, each tried in its own shell when they are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Known {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Runs the command.
pub(crate) fn completions(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "nearmetal", &mut script);
    printer.bytes(&script);
    Ok(ExitStatus::Done)
}
