//! `nearmetal-probe load`

use std::time::Duration;

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::load::respond::Responder;
use nearmetal_probe::load::run::{Settings, measure};
use nearmetal_probe::output::{Output, remark};

use crate::cli::load::{LoadCommand, RespondCommand, remark_of};

/// Runs one of them.
pub(crate) fn run(command: &LoadCommand) -> Result<(), ProbeError> {
    match command {
        LoadCommand::Http(arguments) => load("load http", &arguments.settings()),
        LoadCommand::Imap(arguments) => load("load imap", &arguments.settings()),
        LoadCommand::Sql(arguments) => load("load sql", &arguments.settings()),
        LoadCommand::Respond { what } => respond(what),
    }
}

/// Drives, prints, and says for people what came of it.
fn load(command: &str, settings: &Settings) -> Result<(), ProbeError> {
    let load = measure(settings)?;
    remark(&remark_of(&load));
    Output::new(command, &load).print()
}

fn respond(command: &RespondCommand) -> Result<(), ProbeError> {
    let (listen, served) = command.what();
    let responder = Responder::start(listen.listen, served)?;
    remark(&format!("answering at {} for {} s", responder.address(), listen.seconds));
    std::thread::sleep(Duration::from_secs(listen.seconds));
    Ok(())
}
