//! The results store: SQLite, append-only, raw values with unit and provenance.
//!
//! A measurement is a row that says what is measured, and a row for each of its runs, written as the run ends; its document
//! comes at its end. Migrations are numbered and named; the version is SQLite's `user_version`. The next one goes below the
//! last: never edit one that has shipped.

mod carried_over;
mod query;

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};
use rustix::fs::{Mode, OFlags};

use crate::error::ResultsError;
use crate::net::NetMatrixResults;
use crate::results::{Environment, Run};

pub use self::query::{Entry, State};

/// (name, statements), in order. ↓ the next migration goes at the end.
const MIGRATIONS: &[(&str, &str)] = &[
    (
        "first",
        "CREATE TABLE experiment (
         id INTEGER PRIMARY KEY, created TEXT NOT NULL, version TEXT NOT NULL,
         environment TEXT NOT NULL CHECK (environment IN ('lab', 'silicon')), machine TEXT,
         quick INTEGER NOT NULL, seed INTEGER NOT NULL, guest TEXT NOT NULL, slice TEXT NOT NULL,
         caveats TEXT NOT NULL, provenance TEXT NOT NULL) STRICT;
     CREATE TABLE arm (
         experiment INTEGER NOT NULL REFERENCES experiment(id), id TEXT NOT NULL, description TEXT NOT NULL,
         region TEXT NOT NULL, xml TEXT, command_line TEXT, placement TEXT NOT NULL,
         PRIMARY KEY (experiment, id)) STRICT;
     CREATE TABLE run (
         id INTEGER PRIMARY KEY, experiment INTEGER NOT NULL, arm TEXT NOT NULL, round INTEGER NOT NULL,
         position INTEGER NOT NULL, purpose TEXT NOT NULL, workload_id TEXT NOT NULL, workload TEXT NOT NULL,
         seed INTEGER NOT NULL, started TEXT NOT NULL, seconds REAL NOT NULL, failure TEXT,
         FOREIGN KEY (experiment, arm) REFERENCES arm(experiment, id)) STRICT;
     CREATE TABLE sample (
         run INTEGER NOT NULL REFERENCES run(id), metric TEXT NOT NULL, unit TEXT NOT NULL, value REAL NOT NULL,
         PRIMARY KEY (run, metric)) STRICT;",
    ),
    (
        "matrix",
        "CREATE TABLE matrix (
         id INTEGER PRIMARY KEY, created TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('disk', 'net')),
         environment TEXT NOT NULL CHECK (environment IN ('lab', 'silicon')), machine TEXT,
         device TEXT NOT NULL, kernel TEXT NOT NULL, qemu TEXT NOT NULL, guest TEXT NOT NULL,
         winner TEXT, document TEXT NOT NULL) STRICT;
     CREATE INDEX matrix_ground ON matrix (kind, device, kernel);",
    ),
    (
        // One table for all: what the two before hold is carried over into it, and they stay as they were.
        "measurement",
        "CREATE TABLE measurement (
         id INTEGER PRIMARY KEY, experiment TEXT NOT NULL, guests TEXT NOT NULL, created TEXT NOT NULL, version TEXT NOT NULL,
         environment TEXT NOT NULL CHECK (environment IN ('lab', 'silicon')), machine TEXT,
         kernel TEXT NOT NULL, qemu TEXT NOT NULL, device TEXT, plan TEXT,
         state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed')), problem TEXT,
         request TEXT, winner TEXT, document TEXT) STRICT;
     CREATE INDEX measurement_ground ON measurement (experiment, device, kernel);
     CREATE TABLE measured (
         measurement INTEGER NOT NULL REFERENCES measurement(id), number INTEGER NOT NULL, phase INTEGER NOT NULL,
         run TEXT NOT NULL, PRIMARY KEY (measurement, number)) STRICT;",
    ),
    (
        // What a race runs next hangs on its time: whoever goes on with one has the time that its first session had.
        "times",
        "ALTER TABLE measurement ADD COLUMN times TEXT;",
    ),
];

/// The migration from which on measurements are in one table.
const ONE_TABLE: i64 = 3;

/// What is known when a measurement begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun<'a> {
    /// Which experiment.
    pub experiment: &'a str,
    /// Its guests, in the order in which they join.
    pub guests: Vec<String>,
    /// RFC 3339, UTC; going on with one changes nothing of it.
    pub created: String,
    /// On what the figures are taken.
    pub environment: &'a Environment,
    /// Release of the host's kernel.
    pub kernel: String,
    /// QEMU's version.
    pub qemu: String,
    /// Model of the drive or card, where a winner holds for that alone.
    pub device: Option<String>,
    /// The plan, by when it was made.
    pub plan: Option<String>,
    /// The request, as JSON: what `bench resume` runs again.
    pub request: String,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: String,
}

impl Store {
    /// Opens or creates the store at `path` and brings it to the newest schema.
    ///
    /// # Errors
    /// SQLite's own, or a store of a newer nearmetal.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        let shown = path.display().to_string();
        // It has definitions in it, and others may enter its directory. SQLite gives what it puts beside it the same mode; if this fails,
        // SQLite says why.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        drop(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR));
        let connection =
            Connection::open(path).map_err(|source| ResultsError::Store { path: shown.clone(), source })?;
        Self::prepare(connection, shown)
    }

    fn prepare(connection: Connection, path: String) -> Result<Self, ResultsError> {
        let mut store = Self { connection, path };
        store.migrate()?;
        Ok(store)
    }

    fn error(&self, source: rusqlite::Error) -> ResultsError {
        ResultsError::Store { path: self.path.clone(), source }
    }

    fn migrate(&mut self) -> Result<(), ResultsError> {
        let path = self.path.clone();
        let wrap = |source| ResultsError::Store { path: path.clone(), source };
        self.connection.pragma_update(None, "foreign_keys", true).map_err(wrap)?;
        let version: i64 = self.connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(wrap)?;
        let known = MIGRATIONS.len() as i64;
        if !(0..=known).contains(&version) {
            return Err(ResultsError::Newer(format!(
                "results store `{path}` has schema version {version}, this nearmetal knows {known}: use a newer nearmetal, or another --store"
            )));
        }
        for (number, (_, statements)) in MIGRATIONS.iter().enumerate().skip(version as usize) {
            let transaction = self.connection.transaction().map_err(wrap)?;
            transaction.execute_batch(statements).map_err(wrap)?;
            if number as i64 + 1 == ONE_TABLE {
                carried_over::all(&transaction).map_err(wrap)?;
            }
            transaction.pragma_update(None, "user_version", number as i64 + 1).map_err(wrap)?;
            transaction.commit().map_err(wrap)?;
        }
        Ok(())
    }

    /// The store at `path` for reading alone; `None` if there is none, or one that a nearmetal before 0.2 wrote and no newer
    /// one has opened since.
    ///
    /// # Errors
    /// SQLite's own.
    pub fn read_only(path: &Path) -> Result<Option<Self>, ResultsError> {
        if !path.exists() {
            return Ok(None);
        }
        let shown = path.display().to_string();
        let wrap = |source| ResultsError::Store { path: shown.clone(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(wrap)?;
        Ok((version >= ONE_TABLE).then(|| Self { connection, path: shown.clone() }))
    }

    /// Begins a measurement. Returns its id.
    pub fn begin(&mut self, begun: &Begun<'_>) -> Result<i64, ResultsError> {
        let (environment, machine) = columns(begun.environment);
        let added = self.connection.execute(
            "INSERT INTO measurement (experiment, guests, created, version, environment, machine, kernel, qemu, device, plan, state, request)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'running', ?11)",
            params![
                begun.experiment,
                as_json(&begun.guests),
                begun.created,
                env!("CARGO_PKG_VERSION"),
                environment,
                machine,
                begun.kernel,
                begun.qemu,
                begun.device,
                begun.plan,
                begun.request
            ],
        );
        added.map_err(|source| self.error(source))?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Keeps a race over a network that ended, such as one of another store, by when its document was created. Returns its id.
    ///
    /// # Errors
    /// SQLite's own.
    pub fn keep_net_matrix(&mut self, results: &NetMatrixResults) -> Result<i64, ResultsError> {
        let begun = Begun {
            experiment: "net",
            guests: vec![results.guest.clone()],
            created: results.created.clone(),
            environment: &results.environment,
            kernel: results.ground.kernel.clone(),
            qemu: results.ground.qemu.clone(),
            device: Some(results.ground.device.clone()),
            plan: None,
            request: String::new(),
        };
        let id = self.begin(&begun)?;
        let winner = results.winner.and_then(|winner| results.arms.get(winner)).map(|arm| arm.id.as_str());
        self.finish(id, &as_json(results), winner)?;
        Ok(id)
    }

    /// Goes on with a measurement, on the kernel and QEMU there are now.
    pub fn reopen(&mut self, id: i64, begun: &Begun<'_>) -> Result<(), ResultsError> {
        self.set_state(id, "running", None)?;
        let set = "UPDATE measurement SET kernel = ?2, qemu = ?3 WHERE id = ?1";
        self.connection
            .execute(set, params![id, begun.kernel, begun.qemu])
            .map(drop)
            .map_err(|source| self.error(source))
    }

    /// A measurement ended with an error.
    pub fn give_up(&mut self, id: i64, why: &str) -> Result<(), ResultsError> {
        self.set_state(id, "failed", Some(why))
    }

    fn set_state(&mut self, id: i64, state: &str, problem: Option<&str>) -> Result<(), ResultsError> {
        let set = "UPDATE measurement SET state = ?2, problem = ?3 WHERE id = ?1";
        self.connection.execute(set, params![id, state, problem]).map(drop).map_err(|source| self.error(source))
    }

    /// Keeps what a measurement worked out for its time, as JSON ([`Store::times`]).
    pub fn keep_times(&mut self, id: i64, times: &str) -> Result<(), ResultsError> {
        let set = "UPDATE measurement SET times = ?2 WHERE id = ?1";
        self.connection.execute(set, params![id, times]).map(drop).map_err(|source| self.error(source))
    }

    /// Adds a run. It takes the place of what was written down from its number on: the round that was of is run again, and
    /// what an earlier session left of it would pass for a sample of this one.
    pub fn add_run(&mut self, id: i64, number: u32, phase: u32, run: &Run) -> Result<(), ResultsError> {
        let added = self.connection.transaction().and_then(|transaction| {
            transaction.execute("DELETE FROM measured WHERE measurement = ?1 AND number >= ?2", params![id, number])?;
            let add = "INSERT INTO measured (measurement, number, phase, run) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(add, params![id, number, phase, as_json(run)])?;
            transaction.commit()
        });
        added.map_err(|source| self.error(source))
    }

    /// A measurement is over.
    pub fn finish(&mut self, id: i64, document: &str, winner: Option<&str>) -> Result<(), ResultsError> {
        let set = "UPDATE measurement SET state = 'done', problem = NULL, document = ?2, winner = ?3 WHERE id = ?1";
        self.connection.execute(set, params![id, document, winner]).map(drop).map_err(|source| self.error(source))
    }
}

/// Columns `environment` and `machine`.
fn columns(environment: &Environment) -> (&'static str, Option<&str>) {
    match environment {
        Environment::Silicon => ("silicon", None),
        Environment::Lab { machine } => ("lab", Some(machine)),
    }
}

/// Plain data as JSON.
pub fn as_json<T: serde::Serialize>(value: &T) -> String {
    // These types hold no maps with keys that JSON cannot have, the only way serialising them can fail.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
