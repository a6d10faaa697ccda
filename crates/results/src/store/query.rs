//! Looking things up in the store.

use rusqlite::{OptionalExtension, Row, params};

use super::{Store, columns};
use crate::disk::MatrixResults;
use crate::document;
use crate::error::ResultsError;
use crate::measurement::Measurement;
use crate::net::NetMatrixResults;
use crate::results::{Environment, Results, Run};

/// How far a measurement came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It runs, or was killed.
    Running,
    /// It has its document.
    Done,
    /// It ended with this error.
    Failed(String),
}

/// One measurement in the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its number.
    pub id: i64,
    /// Which experiment.
    pub experiment: String,
    /// Its guests.
    pub guests: Vec<String>,
    /// RFC 3339, UTC.
    pub created: String,
    /// nearmetal's version.
    pub version: String,
    /// On what the figures were taken.
    pub environment: Environment,
    /// Release of the host's kernel.
    pub kernel: String,
    /// QEMU's version.
    pub qemu: String,
    /// Model of the drive or card, where a winner holds for that alone.
    pub device: Option<String>,
    /// The plan, by when it was made.
    pub plan: Option<String>,
    /// How far it came.
    pub state: State,
    /// The request as JSON; `None` of versions that kept none.
    pub request: Option<String>,
    /// Id of the arm that won, where there was a race.
    pub winner: Option<String>,
    /// Runs written down.
    pub runs: u32,
}

const COLUMNS: &str = "id, experiment, guests, created, version, environment, machine, kernel, qemu, device, plan, state, problem, request, winner,
    (SELECT COUNT(*) FROM measured WHERE measured.measurement = measurement.id)";

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let guests: String = row.get(2)?;
    let (environment, machine): (String, Option<String>) = (row.get(5)?, row.get(6)?);
    let (state, problem): (String, Option<String>) = (row.get(11)?, row.get(12)?);
    Ok(Entry {
        id: row.get(0)?,
        experiment: row.get(1)?,
        guests: serde_json::from_str(&guests).unwrap_or_default(),
        created: row.get(3)?,
        version: row.get(4)?,
        environment: match environment.as_str() {
            "lab" => Environment::Lab { machine: machine.unwrap_or_default() },
            _ => Environment::Silicon,
        },
        kernel: row.get(7)?,
        qemu: row.get(8)?,
        device: row.get(9)?,
        plan: row.get(10)?,
        state: match state.as_str() {
            "done" => State::Done,
            "failed" => State::Failed(problem.unwrap_or_default()),
            _ => State::Running,
        },
        request: row.get(13)?,
        winner: row.get(14)?,
        runs: row.get(15)?,
    })
}

impl Store {
    /// One measurement.
    ///
    /// # Errors
    /// There is none of that number; which there are is said.
    pub fn entry(&self, id: i64) -> Result<Entry, ResultsError> {
        let query = format!("SELECT {COLUMNS} FROM measurement WHERE id = ?1");
        let found = self.connection.query_row(&query, params![id], entry).optional();
        match found.map_err(|source| self.error(source))? {
            Some(entry) => Ok(entry),
            None => {
                let last: Option<i64> = self
                    .connection
                    .query_row("SELECT MAX(id) FROM measurement", [], |row| row.get(0))
                    .map_err(|source| self.error(source))?;
                let known = last.map_or_else(|| "it has none yet".to_owned(), |last| format!("the newest is {last}"));
                Err(ResultsError::Asked(format!("results store `{}` has no measurement {id}: {known}", self.path)))
            }
        }
    }

    /// All measurements of a guest, or of all of them, the newest first.
    ///
    /// # Errors
    /// SQLite's own.
    pub fn entries(&self, guest: Option<&str>) -> Result<Vec<Entry>, ResultsError> {
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let query = format!("SELECT {COLUMNS} FROM measurement ORDER BY id DESC");
            self.connection.prepare(&query)?.query_map([], entry)?.collect()
        };
        let all = read().map_err(|source| self.error(source))?;
        let of = |entry: &Entry| guest.is_none_or(|guest| entry.guests.iter().any(|own| own == guest));
        Ok(all.into_iter().filter(of).collect())
    }

    /// The document of a measurement that is over.
    ///
    /// # Errors
    /// There is no such measurement.
    pub fn document(&self, id: i64) -> Result<Option<String>, ResultsError> {
        self.entry(id)?;
        let query = "SELECT document FROM measurement WHERE id = ?1";
        self.connection.query_row(query, params![id], |row| row.get(0)).map_err(|source| self.error(source))
    }

    /// What the first session of a measurement worked out for its time, as JSON; `None`: none did yet, or a version that kept
    /// no times.
    ///
    /// # Errors
    /// There is no such measurement.
    pub fn times(&self, id: i64) -> Result<Option<String>, ResultsError> {
        self.entry(id)?;
        let query = "SELECT times FROM measurement WHERE id = ?1";
        self.connection.query_row(query, params![id], |row| row.get(0)).map_err(|source| self.error(source))
    }

    /// What a measurement that is over left.
    ///
    /// # Errors
    /// There is no such measurement, it is not over, or its document cannot be read.
    pub fn measurement(&self, id: i64) -> Result<Measurement, ResultsError> {
        let document = self.document(id)?.ok_or_else(|| {
            ResultsError::Asked(format!(
                "measurement {id} is not complete: `nearmetal bench resume {id}` goes on with it"
            ))
        })?;
        Ok(match self.entry(id)?.experiment.as_str() {
            "disk" => MatrixResults::parse(&document)?.into(),
            "net" => NetMatrixResults::parse(&document)?.into(),
            _ => Results::parse(&document)?.into(),
        })
    }

    /// The results of a measurement that is over and no race.
    ///
    /// # Errors
    /// As [`Store::measurement`], or it is a race.
    pub fn results(&self, id: i64) -> Result<Results, ResultsError> {
        match self.measurement(id)? {
            Measurement::Results(results) => Ok(*results),
            Measurement::Disk(_) | Measurement::Net(_) => {
                Err(ResultsError::Asked(format!("measurement {id} is a race: it has no pairs of its own to compare")))
            }
        }
    }

    /// The runs of a measurement that were written down, with the phase of each, in the order in which they ran.
    pub fn runs(&self, id: i64) -> Result<Vec<(u32, Run)>, ResultsError> {
        let read = || -> rusqlite::Result<Vec<(u32, String)>> {
            let query = "SELECT phase, run FROM measured WHERE measurement = ?1 ORDER BY number";
            self.connection.prepare(query)?.query_map(params![id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let rows = read().map_err(|source| self.error(source))?;
        let run = |(phase, text): (u32, String)| {
            let run = serde_json::from_str(&text)
                .map_err(|error| document::unreadable("a run in the store", error.to_string(), &text))?;
            Ok((phase, run))
        };
        rows.into_iter().map(run).collect()
    }

    /// The newest network matrix of the same model of card, kernel and environment; one of the same guest goes before
    /// others.
    ///
    /// # Errors
    /// SQLite's own, or a document that is none.
    pub fn newest_net_matrix(
        &self,
        device: &str,
        kernel: &str,
        guest: &str,
        environment: &Environment,
    ) -> Result<Option<NetMatrixResults>, ResultsError> {
        let document = self.newest_document("net", device, kernel, guest, environment)?;
        document.map(|document| NetMatrixResults::parse(&document)).transpose()
    }

    /// The newest disk matrix of the same drive model, kernel and environment; one of the same guest goes before others.
    ///
    /// # Errors
    /// SQLite's own, or a document that is none.
    pub fn newest_matrix(
        &self,
        device: &str,
        kernel: &str,
        guest: &str,
        environment: &Environment,
    ) -> Result<Option<MatrixResults>, ResultsError> {
        let document = self.newest_document("disk", device, kernel, guest, environment)?;
        document.map(|document| MatrixResults::parse(&document)).transpose()
    }

    /// The newest tune of a guest under this kernel, on a machine as this one, with its number.
    ///
    /// # Errors
    /// SQLite's own, or a document that is none.
    pub fn newest_tune(
        &self,
        guest: &str,
        kernel: &str,
        environment: &Environment,
    ) -> Result<Option<(i64, Results)>, ResultsError> {
        let is_it = |entry: &Entry| {
            entry.experiment == "tune"
                && entry.state == State::Done
                && (entry.kernel.as_str(), &entry.environment) == (kernel, environment)
        };
        let found = self.entries(Some(guest))?.into_iter().find(is_it);
        found.map(|entry| Ok((entry.id, self.results(entry.id)?))).transpose()
    }

    fn newest_document(
        &self,
        experiment: &str,
        device: &str,
        kernel: &str,
        guest: &str,
        environment: &Environment,
    ) -> Result<Option<String>, ResultsError> {
        let (environment, machine) = columns(environment);
        let found = self.connection.query_row(
            "SELECT document FROM measurement
             WHERE experiment = ?1 AND device = ?2 AND kernel = ?3 AND environment = ?4 AND machine IS ?5 AND state = 'done'
             ORDER BY guests = ?6 DESC, id DESC LIMIT 1",
            params![experiment, device, kernel, environment, machine, super::as_json(&[guest])],
            |row| row.get(0),
        );
        found.optional().map_err(|source| self.error(source))
    }
}
