//! What stores of earlier versions hold, carried over into the one table of all measurements.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

/// Carries everything over, oldest first.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<()> {
    experiments(connection)?;
    matrices(connection)
}

fn text(value: &str) -> Value {
    serde_json::from_str(value).unwrap_or_default()
}

/// Each experiment was rows of arms, runs and samples: they become the document of its version.
fn experiments(connection: &Connection) -> rusqlite::Result<()> {
    let mut all = connection.prepare(
        "SELECT id, created, version, environment, machine, quick, seed, guest, slice, caveats, provenance FROM experiment ORDER BY id",
    )?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let (created, version): (String, String) = (row.get(1)?, row.get(2)?);
        let (environment, machine): (String, Option<String>) = (row.get(3)?, row.get(4)?);
        let (guest, provenance): (String, String) = (row.get(7)?, row.get(10)?);
        let provenance = text(&provenance);
        let kind = match &machine {
            Some(machine) => json!({ "kind": environment, "machine": machine }),
            None => json!({ "kind": environment }),
        };
        let document = json!({
            "schema": "nearmetal.results/1", "created": created, "version": version, "environment": kind,
            "quick": row.get::<_, bool>(5)?, "seed": row.get::<_, i64>(6)? as u64, "guest": guest,
            "slice": text(&row.get::<_, String>(8)?), "arms": arms(connection, id)?, "runs": runs(connection, id)?,
            "caveats": text(&row.get::<_, String>(9)?), "provenance": provenance,
        });
        let known = |key: &str| provenance.get(key).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        connection.execute(
            "INSERT INTO measurement (experiment, guests, created, version, environment, machine, kernel, qemu, state, document)
             VALUES ('slice', ?1, ?2, ?3, ?4, ?5, ?6, ?7, 'done', ?8)",
            params![
                json!([guest]).to_string(),
                created,
                version,
                environment,
                machine,
                known("host kernel"),
                known("hypervisor"),
                document.to_string()
            ],
        )?;
    }
    Ok(())
}

fn arms(connection: &Connection, experiment: i64) -> rusqlite::Result<Vec<Value>> {
    let query =
        "SELECT id, description, region, xml, command_line, placement FROM arm WHERE experiment = ?1 ORDER BY rowid";
    let arm = |row: &rusqlite::Row<'_>| {
        let placement: String = row.get(5)?;
        Ok(json!({
            "kind": row.get::<_, String>(0)?, "description": row.get::<_, String>(1)?, "region": row.get::<_, String>(2)?,
            "xml": row.get::<_, Option<String>>(3)?, "command_line": row.get::<_, Option<String>>(4)?,
            "placement": placement.lines().collect::<Vec<_>>(),
        }))
    };
    connection.prepare(query)?.query_map(params![experiment], arm)?.collect()
}

fn runs(connection: &Connection, experiment: i64) -> rusqlite::Result<Vec<Value>> {
    let query = "SELECT id, arm, round, position, purpose, workload, seed, started, seconds, failure FROM run
        WHERE experiment = ?1 ORDER BY id";
    let run = |row: &rusqlite::Row<'_>| {
        let outcome = match row.get::<_, Option<String>>(9)? {
            Some(why) => json!({ "outcome": "failed", "why": why }),
            None => json!({ "outcome": "measured", "metrics": samples(connection, row.get(0)?)? }),
        };
        Ok(json!({
            "arm": row.get::<_, String>(1)?, "round": row.get::<_, i64>(2)?, "position": row.get::<_, i64>(3)?,
            "purpose": text(&row.get::<_, String>(4)?), "workload": text(&row.get::<_, String>(5)?),
            "seed": row.get::<_, i64>(6)? as u64, "started": row.get::<_, String>(7)?, "seconds": row.get::<_, f64>(8)?,
            "outcome": outcome,
        }))
    };
    connection.prepare(query)?.query_map(params![experiment], run)?.collect()
}

fn samples(connection: &Connection, run: i64) -> rusqlite::Result<Vec<Value>> {
    let query = "SELECT metric, unit, value FROM sample WHERE run = ?1 ORDER BY rowid";
    let metric = |row: &rusqlite::Row<'_>| {
        let (name, unit, value): (String, String, f64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(json!({ "name": name, "unit": unit, "value": value }))
    };
    connection.prepare(query)?.query_map(params![run], metric)?.collect()
}

/// A matrix was its document already.
fn matrices(connection: &Connection) -> rusqlite::Result<()> {
    let mut all = connection
        .prepare("SELECT kind, guest, created, environment, machine, kernel, qemu, device, winner, document FROM matrix ORDER BY id")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let (guest, document): (String, String) = (row.get(1)?, row.get(9)?);
        let version = text(&document).get("version").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        connection.execute(
            "INSERT INTO measurement (experiment, guests, created, version, environment, machine, kernel, qemu, device, state, winner, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'done', ?10, ?11)",
            params![
                row.get::<_, String>(0)?,
                json!([guest]).to_string(),
                row.get::<_, String>(2)?,
                version,
                row.get::<_, String>(3)?,
                row.get::<_, Option<String>>(4)?,
                row.get::<_, String>(5)?,
                row.get::<_, String>(6)?,
                row.get::<_, String>(7)?,
                row.get::<_, Option<String>>(8)?,
                document
            ],
        )?;
    }
    Ok(())
}
