//! `nearmetal-probe`: one file and one function per command; everything they do is in the library.

mod cli;
mod commands;

use std::process::ExitCode;

use clap::Parser;
use nearmetal_probe::error::{ProbeError, chain};
use nearmetal_probe::output::remark;

use crate::cli::{Cli, Command, MemoryCommand};

fn main() -> ExitCode {
    // clap ends the process itself for wrong use, with 2, and for --help, with 0.
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remark(&chain(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<(), ProbeError> {
    match cli.command {
        Command::Bind(arguments) => commands::bind::run(arguments),
        Command::At(arguments) => commands::at::run(arguments),
        Command::SeeBinding => commands::see_binding::run(),
        Command::Memory { command: MemoryCommand::Latency(arguments) } => commands::memory_latency::run(arguments),
        Command::Memory { command: MemoryCommand::Bandwidth(arguments) } => commands::memory_bandwidth::run(arguments),
        Command::Memory { command: MemoryCommand::Work(arguments) } => commands::memory_work::run(arguments),
        Command::Kvm => commands::kvm::run(),
        Command::Load { command } => commands::load::run(&command),
        Command::Reach(arguments) => commands::reach::run(&arguments),
        Command::Serve { command } => commands::serve::run(&command),
        Command::See(arguments) => commands::see::run(arguments),
        Command::Capture(arguments) => commands::capture::run(arguments),
        Command::FileSystem(arguments) => commands::file_system::run(&arguments),
        Command::Programs(arguments) => commands::programs::run(&arguments),
        Command::Gate { command } => commands::gate::run(&command),
        Command::Count(arguments) => commands::count::run(&arguments),
        Command::FileSystems => commands::file_system::list(),
    }
}
