//! The results store: SQLite, append-only, raw values with unit and provenance.
//!
//! Migrations are numbered and named; the version is SQLite's `user_version`. The next one goes below the last:
//! never edit one that has shipped.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::error::MeasureError;
use crate::matrix::{GroundKey, MatrixResults};
use crate::net::NetMatrixResults;
use crate::results::{Environment, Outcome, Results};

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
        // `kind` leaves room for the network's. The document holds every run; the columns are what it is found by.
        "matrix",
        "CREATE TABLE matrix (
         id INTEGER PRIMARY KEY, created TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('disk', 'net')),
         environment TEXT NOT NULL CHECK (environment IN ('lab', 'silicon')), machine TEXT,
         device TEXT NOT NULL, kernel TEXT NOT NULL, qemu TEXT NOT NULL, guest TEXT NOT NULL,
         winner TEXT, document TEXT NOT NULL) STRICT;
     CREATE INDEX matrix_ground ON matrix (kind, device, kernel);",
    ),
];

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: String,
}

impl Store {
    /// Opens or creates the store at `path` and brings it to the newest schema.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        let shown = path.display().to_string();
        let connection =
            Connection::open(path).map_err(|source| MeasureError::Store { path: shown.clone(), source })?;
        Self::prepare(connection, shown)
    }

    fn prepare(connection: Connection, path: String) -> Result<Self, MeasureError> {
        let mut store = Self { connection, path };
        store.migrate()?;
        Ok(store)
    }

    fn error(&self, source: rusqlite::Error) -> MeasureError {
        MeasureError::Store { path: self.path.clone(), source }
    }

    fn migrate(&mut self) -> Result<(), MeasureError> {
        let path = self.path.clone();
        let wrap = |source| MeasureError::Store { path: path.clone(), source };
        self.connection.pragma_update(None, "foreign_keys", true).map_err(wrap)?;
        let version: i64 = self.connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(wrap)?;
        let known = MIGRATIONS.len() as i64;
        if !(0..=known).contains(&version) {
            return Err(MeasureError::Unfit(format!(
                "results store `{path}` has schema version {version}, this nearmetal knows {known}: use a newer nearmetal, or another --store"
            )));
        }
        for (number, (_, statements)) in MIGRATIONS.iter().enumerate().skip(version as usize) {
            let transaction = self.connection.transaction().map_err(wrap)?;
            transaction.execute_batch(statements).map_err(wrap)?;
            transaction.pragma_update(None, "user_version", number as i64 + 1).map_err(wrap)?;
            transaction.commit().map_err(wrap)?;
        }
        Ok(())
    }

    /// Adds one experiment with all its runs, or nothing. Returns its id.
    pub fn add(&mut self, results: &Results) -> Result<i64, MeasureError> {
        self.insert(results).map_err(|source| self.error(source))
    }

    fn insert(&mut self, results: &Results) -> Result<i64, rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        let (environment, machine) = columns(&results.environment);
        transaction.execute(
            "INSERT INTO experiment (created, version, environment, machine, quick, seed, guest, slice, caveats, provenance)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                results.created,
                results.version,
                environment,
                machine,
                results.quick,
                results.seed as i64,
                results.guest,
                json(&results.slice),
                json(&results.caveats),
                json(&results.provenance)
            ],
        )?;
        let experiment = transaction.last_insert_rowid();
        for arm in &results.arms {
            transaction.execute(
                "INSERT INTO arm VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    experiment,
                    arm.kind.id(),
                    arm.description,
                    arm.region,
                    arm.xml,
                    arm.command_line,
                    arm.placement.join("\n")
                ],
            )?;
        }
        for run in &results.runs {
            let failure = match &run.outcome {
                Outcome::Measured { .. } => None,
                Outcome::Failed { why } => Some(why),
            };
            transaction.execute(
                "INSERT INTO run (experiment, arm, round, position, purpose, workload_id, workload, seed, started, seconds, failure)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    experiment,
                    run.arm.id(),
                    run.round,
                    run.position,
                    json(&run.purpose),
                    run.workload.id(),
                    json(&run.workload),
                    run.seed as i64,
                    run.started,
                    run.seconds,
                    failure
                ],
            )?;
            let id = transaction.last_insert_rowid();
            if let Outcome::Measured { metrics, .. } = &run.outcome {
                for metric in metrics {
                    transaction.execute(
                        "INSERT INTO sample VALUES (?1, ?2, ?3, ?4)",
                        params![id, metric.name, metric.unit.symbol(), metric.value],
                    )?;
                }
            }
        }
        transaction.commit()?;
        Ok(experiment)
    }

    /// The store at `path` for reading alone; `None` if there is none, or one that no matrix was ever added to.
    pub fn read_only(path: &Path) -> Result<Option<Self>, MeasureError> {
        if !path.exists() {
            return Ok(None);
        }
        let shown = path.display().to_string();
        let wrap = |source| MeasureError::Store { path: shown.clone(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(wrap)?;
        Ok((version >= 2).then(|| Self { connection, path: shown.clone() }))
    }

    /// Adds a disk matrix. Returns its id.
    pub fn add_matrix(&mut self, results: &MatrixResults) -> Result<i64, MeasureError> {
        let winner = results.winner.and_then(|winner| results.arms.get(winner)).map(|arm| arm.id.as_str());
        let MatrixResults { created, guest, environment, ground, .. } = results;
        self.insert_matrix(DISK, created, guest, environment, ground, winner, json(results))
    }

    /// Adds a network matrix. Returns its id.
    pub fn add_net_matrix(&mut self, results: &NetMatrixResults) -> Result<i64, MeasureError> {
        let winner = results.winner.and_then(|winner| results.arms.get(winner)).map(|arm| arm.id.as_str());
        let NetMatrixResults { created, guest, environment, ground, .. } = results;
        self.insert_matrix(NET, created, guest, environment, ground, winner, json(results))
    }

    #[allow(clippy::too_many_arguments, reason = "the columns of one row, each once")]
    fn insert_matrix(
        &mut self,
        kind: &str,
        created: &str,
        guest: &str,
        environment: &Environment,
        ground: &GroundKey,
        winner: Option<&str>,
        document: String,
    ) -> Result<i64, MeasureError> {
        let (environment, machine) = columns(environment);
        let GroundKey { device, kernel, qemu } = ground;
        let added = self.connection.execute(
            "INSERT INTO matrix (created, kind, environment, machine, device, kernel, qemu, guest, winner, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![created, kind, environment, machine, device, kernel, qemu, guest, winner, document],
        );
        added.map_err(|source| self.error(source))?;
        Ok(self.connection.last_insert_rowid())
    }

    /// The newest network matrix of the same model of card, kernel and environment; one of the same guest goes before
    /// others.
    pub fn newest_net_matrix(
        &self,
        device: &str,
        kernel: &str,
        guest: &str,
        environment: &Environment,
    ) -> Result<Option<NetMatrixResults>, MeasureError> {
        let document = self.newest_document(NET, device, kernel, guest, environment)?;
        document.map(|document| NetMatrixResults::parse(&document)).transpose()
    }

    /// The newest disk matrix of the same drive model, kernel and environment; one of the same guest goes before others.
    pub fn newest_matrix(
        &self,
        device: &str,
        kernel: &str,
        guest: &str,
        environment: &Environment,
    ) -> Result<Option<MatrixResults>, MeasureError> {
        let document = self.newest_document(DISK, device, kernel, guest, environment)?;
        document.map(|document| MatrixResults::parse(&document)).transpose()
    }

    fn newest_document(
        &self,
        kind: &str,
        device: &str,
        kernel: &str,
        guest: &str,
        environment: &Environment,
    ) -> Result<Option<String>, MeasureError> {
        let (environment, machine) = columns(environment);
        let found = self.connection.query_row(
            "SELECT document FROM matrix
             WHERE kind = ?1 AND device = ?2 AND kernel = ?3 AND environment = ?4 AND machine IS ?5
             ORDER BY guest = ?6 DESC, id DESC LIMIT 1",
            params![kind, device, kernel, environment, machine, guest],
            |row| row.get(0),
        );
        found.optional().map_err(|source| self.error(source))
    }

    /// Raw values of one metric of one arm, in the order they were measured.
    pub fn values(
        &self,
        experiment: i64,
        arm: &str,
        workload_id: &str,
        metric: &str,
    ) -> Result<Vec<f64>, MeasureError> {
        let read = || -> Result<Vec<f64>, rusqlite::Error> {
            let mut statement = self.connection.prepare(
                "SELECT value FROM sample JOIN run ON run.id = sample.run
                 WHERE experiment = ?1 AND arm = ?2 AND workload_id = ?3 AND metric = ?4 ORDER BY run.id",
            )?;
            statement.query_map(params![experiment, arm, workload_id, metric], |row| row.get(0))?.collect()
        };
        read().map_err(|source| self.error(source))
    }
}

/// Kinds of matrices.
const DISK: &str = "disk";
const NET: &str = "net";

/// Columns `environment` and `machine`.
fn columns(environment: &Environment) -> (&'static str, Option<&str>) {
    match environment {
        Environment::Silicon => ("silicon", None),
        Environment::Lab { machine } => ("lab", Some(machine)),
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    // These types hold no maps with keys that JSON cannot have, the only way serialising them can fail.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{PathCache, sample_matrix};
    use crate::results::tests::sample_results;

    fn memory() -> Store {
        Store::prepare(Connection::open_in_memory().unwrap(), ":memory:".into()).unwrap()
    }

    #[test]
    fn raw_values_come_back_in_order() {
        let mut store = memory();
        let results = sample_results();
        let id = store.add(&results).unwrap();
        let values = store.values(id, "planned", "fio.randrw50.qd32.4096", "iops").unwrap();
        let expected: Vec<f64> = results
            .runs
            .iter()
            .filter(|run| run.arm.id() == "planned" && run.workload.id() == "fio.randrw50.qd32.4096")
            .filter_map(|run| run.value("iops"))
            .map(|metric| metric.value)
            .collect();
        assert_eq!(values, expected);
        assert!(!values.is_empty());
        assert_eq!(store.add(&results).unwrap(), id + 1);
    }

    #[test]
    fn a_matrix_is_found_by_drive_kernel_and_environment_and_by_nothing_else() {
        let mut store = memory();
        let results = sample_matrix(PathCache::None);
        store.add_matrix(&results).unwrap();
        let other = MatrixResults { guest: "db1".into(), seed: 7, ..results.clone() };
        store.add_matrix(&other).unwrap();
        let lab = Environment::Lab { machine: "quad".into() };
        let find = |device: &str, kernel: &str, guest: &str, environment: &Environment| {
            store.newest_matrix(device, kernel, guest, environment).unwrap().map(|found| (found.guest, found.seed))
        };
        assert_eq!(find("QEMU NVMe Ctrl", "6.12.41", "web1", &lab), Some(("web1".into(), 1)), "its own goes first");
        assert_eq!(find("QEMU NVMe Ctrl", "6.12.41", "new", &lab), Some(("db1".into(), 7)), "else the newest");
        assert_eq!(find("QEMU NVMe Ctrl", "6.13.0", "web1", &lab), None);
        assert_eq!(find("another", "6.12.41", "web1", &lab), None);
        assert_eq!(
            find("QEMU NVMe Ctrl", "6.12.41", "web1", &Environment::Silicon),
            None,
            "lab figures stay in the lab"
        );
        let elsewhere = Environment::Lab { machine: "other".into() };
        assert_eq!(find("QEMU NVMe Ctrl", "6.12.41", "web1", &elsewhere), None);
    }

    #[test]
    fn a_network_matrix_is_no_disk_matrix() {
        let mut store = memory();
        let results = crate::net::sample_net_matrix();
        store.add_net_matrix(&results).unwrap();
        let lab = Environment::Lab { machine: "quad".into() };
        let find = |device: &str, kernel: &str| store.newest_net_matrix(device, kernel, "web1", &lab).unwrap();
        assert_eq!(find("igb 8086:10c9", "6.12.41").map(|found| found.turns), Some(results.turns));
        assert_eq!(find("igb 8086:10c9", "6.13.0").map(|found| found.seed), None);
        assert!(store.newest_matrix("igb 8086:10c9", "6.12.41", "web1", &lab).unwrap().is_none());
    }

    #[test]
    fn a_store_of_a_newer_version_is_refused() {
        let connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let error = Store::prepare(connection, "x".into()).unwrap_err().to_string();
        assert!(error.contains("99") && error.contains("knows 2"), "{error}");
    }
}
