//! Where plans and journals are.

use std::io::Read;
use std::path::{Path, PathBuf};

use nearmetal_change::{AnyPlan, ChangeError, Journal, STATE_DIRECTORY};
use nearmetal_host::HostFs;

use crate::printer::Printer;
use crate::standing::with_writer;

/// Where the journal lies.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StateArgs {
    /// The journal's directory [default: $NEARMETAL_STATE, or /var/lib/nearmetal]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl StateArgs {
    /// The state directory at a path, or the default one.
    pub(crate) fn of(state: Option<PathBuf>) -> Self {
        Self { state }
    }

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
        if matches!(path.try_exists(), Ok(false)) {
            let problem = "there is no such file".to_owned();
            return Err(ChangeError::PlanUnreadable { origin: format!("`{}`", path.display()), problem });
        }
        return AnyPlan::load(path);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| ChangeError::PlanUnreadable { origin: "stdin".to_owned(), problem: error.to_string() })?;
    AnyPlan::parse(&text, "stdin")
}

/// Says that a transaction did not end; silent where the journal may not be read.
pub(crate) fn warn_of_unfinished(journal: &Journal, printer: &mut Printer) {
    let Ok((all, writer)) = with_writer(journal, &HostFs::live()) else { return };
    let Some(unfinished) = all.iter().rev().find(|transaction| transaction.is_unfinished()) else { return };
    let (number, started) = (unfinished.number(), &unfinished.header.started);
    printer.important(&match writer {
        Some(writer) => format!("transaction {number} of {started} is under way: {writer}"),
        None => format!(
            "transaction {number} of {started} is unfinished: `nearmetal rollback --restart` restores the former state"
        ),
    });
}
