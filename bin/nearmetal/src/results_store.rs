//! Which store of results a command reads or writes.

use std::path::PathBuf;

use nearmetal_change::Journal;
use nearmetal_results::Store;

use crate::exit_status::WrongUse;
use crate::measured::STORE;
use crate::state::StateArgs;

/// The store.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Keep every run in this SQLite store as it ends [default: results.sqlite in the state directory]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

impl StoreArgs {
    /// The store at a path, or the default one.
    pub(crate) fn of(store: Option<PathBuf>) -> Self {
        Self { store }
    }

    /// Its path.
    pub(crate) fn path(&self, journal: &Journal) -> PathBuf {
        self.store.clone().unwrap_or_else(|| journal.state_directory().join(STORE))
    }
}

/// Which store is read.
#[derive(Debug, clap::Args)]
pub(crate) struct FromArgs {
    /// Read this SQLite store [default: results.sqlite in the state directory]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
}

impl FromArgs {
    /// Its path.
    pub(crate) fn path(&self) -> PathBuf {
        StoreArgs::of(self.store.clone()).path(&self.state.journal())
    }

    /// The store, brought to this version's schema if an earlier one wrote it.
    ///
    /// # Errors
    /// [`WrongUse`] if there is none; what the store says.
    pub(crate) fn open(&self) -> anyhow::Result<Store> {
        open(&self.path())
    }
}

/// [`FromArgs::open`] of a store at a path.
pub(crate) fn open(path: &std::path::Path) -> anyhow::Result<Store> {
    if !path.exists() {
        let why = format!("nothing has been measured here: there is no results store `{}`", path.display());
        return Err(WrongUse(why).into());
    }
    // Read-only first, so that whoever may only read it can look.
    match Store::read_only(path)? {
        Some(store) => Ok(store),
        None => Ok(Store::open(path)?),
    }
}
