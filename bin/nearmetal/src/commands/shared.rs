//! What the commands that change the machine share.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nearmetal_change::{AnyPlan, ChangeError, Journal, STATE_DIRECTORY};
use nearmetal_hypervisor::protocol::{Reply, Request};
use nearmetal_hypervisor::{HypervisorError, Transport};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Where the journal lies.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StateArgs {
    /// Where the journal lies [default: $NEARMETAL_STATE, or /var/lib/nearmetal]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl StateArgs {
    /// The journal there.
    pub(crate) fn journal(&self) -> Journal {
        let from_environment =
            || std::env::var_os("NEARMETAL_STATE").filter(|path| !path.is_empty()).map(PathBuf::from);
        let state = self.state.clone().or_else(from_environment).unwrap_or_else(|| STATE_DIRECTORY.into());
        // The boot unit gets this path as it is, and runs in another directory.
        Journal::at(std::path::absolute(&state).unwrap_or(state))
    }
}

/// A plan file, of one host or of a fleet; `-` is stdin.
pub(crate) fn load_plan(path: &Path) -> Result<AnyPlan, ChangeError> {
    if path.as_os_str() != "-" {
        return AnyPlan::load(path);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| ChangeError::PlanUnreadable { origin: "stdin".to_owned(), problem: error.to_string() })?;
    AnyPlan::parse(&text, "stdin")
}

/// What stands for libvirt where it cannot be asked: changes that need it fail, the others do not.
pub(crate) struct NoLibvirt {
    /// Why.
    pub reason: String,
}

impl Transport for NoLibvirt {
    fn call(&mut self, _request: Request) -> Result<Reply, HypervisorError> {
        Err(HypervisorError::Protocol { reason: self.reason.clone() })
    }
}

/// Asks before something is done. Without a terminal there is nobody to ask.
pub(crate) fn agreed(yes: bool, printer: &mut Printer) -> bool {
    if yes {
        return true;
    }
    if !std::io::stdin().is_terminal() {
        printer.important("error: stdin is no terminal, so nobody can be asked: add --yes");
        return false;
    }
    let _ = write!(std::io::stderr(), "go on? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Says that a transaction did not end; silent where the journal may not be read.
pub(crate) fn warn_of_unfinished(journal: &Journal, printer: &mut Printer) {
    if let Ok(Some(unfinished)) = journal.unfinished() {
        printer.important(&format!(
            "transaction {} of {} did not end: `nearmetal rollback --restart` restores the former state",
            unfinished.number(),
            unfinished.header.started
        ));
    }
}

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One document for programs, with its schema's name and version
    Json,
}

/// Says why a change was refused, and with which exit code.
pub(crate) fn refuse(printer: &mut Printer, error: &ChangeError) -> ExitStatus {
    printer.important(&format!("error: {}", chain(error)));
    if is_wrong_use(error) { ExitStatus::WrongUse } else { ExitStatus::Refused }
}

/// Whether an error is about what the user named, and not about this machine.
pub(crate) fn is_wrong_use(error: &ChangeError) -> bool {
    match error {
        ChangeError::PlanUnreadable { .. }
        | ChangeError::NothingToRollBack(_)
        | ChangeError::Hypervisor(HypervisorError::NoSuchDomain { .. }) => true,
        ChangeError::File(error) => error.action == "read",
        _ => false,
    }
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

/// A program that is installed together with this one.
pub(crate) fn beside_this_program(name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("cannot find this program")?;
    let path = here.parent().unwrap_or(Path::new("/")).join(name);
    if !path.exists() {
        bail!("`{}` is missing: install it beside `{}`", path.display(), here.display());
    }
    Ok(path)
}
