//! `nearmetal run --list`, and what a dry run shows.

use nearmetal_run::reservation::{Desk, Reservation, Said, Seen};
use nearmetal_run::{RunError, accounts};
use nearmetal_units::Bytes;
use serde_json::json;

use super::Args;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::style::Format;

/// Shows the runs in progress, and what dead ones left.
pub(super) fn list(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let desk = Desk::at(&args.places.reservations);
    let refused = |error| match error {
        RunError::File(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => {
            anyhow::Error::from(error)
                .context("only root, and who may use KVM, sees reservations: run this as root, or join the group `kvm`")
        }
        other => other.into(),
    };
    let all = desk.look().map_err(refused)?;
    let of = |held: bool| -> Vec<Reservation> {
        let those = all.iter().filter(|seen| seen.held == held);
        those.filter_map(|seen| if let Said::Whole(run) = &seen.said { Some((**run).clone()) } else { None }).collect()
    };
    let (living, dead) = (of(true), of(false));
    // Somebody has to know whose they are when nobody can choose beside them.
    let unknown: Vec<&Seen> = all.iter().filter(|seen| seen.said == Said::Unknown).collect();
    match args.format {
        Format::Json => {
            let file = |seen: &&Seen| json!({"path": seen.path.to_string_lossy(), "uid": seen.uid, "held": seen.held});
            let unknown: Vec<_> = unknown.iter().map(file).collect();
            let document = json!({"schema": "nearmetal.runs/1", "runs": living, "dead": dead, "unknown": unknown});
            printer.data(&serde_json::to_string_pretty(&document)?);
        }
        Format::Text if living.is_empty() && unknown.is_empty() => printer.data("no runs"),
        Format::Text => {
            let files = unknown.iter().map(|seen| (accounts::user(seen.uid), seen.path.display().to_string()));
            printer.data(&rows(&living, &files.collect::<Vec<_>>()));
        }
    }
    if !dead.is_empty() {
        let left: Vec<String> = dead.iter().map(left).collect();
        printer.important(&format!(
            "killed, and not given back yet: {}; the next run of the same user does that",
            left.join(", ")
        ));
    }
    Ok(ExitStatus::Done)
}

/// What a dead run left: its PUs are free for the next one, its pages are in their pools, and of its function nobody has seen that it
/// went back.
fn left(run: &Reservation) -> String {
    let pages = run.pools.iter().map(|pool| {
        let (pages, size, node) = (pool.after.saturating_sub(pool.before), pool.size, pool.node);
        format!("{pages} pages of {size} in the pool of node {node}")
    });
    let functions = run.functions.iter().map(|lent| format!("function {}", lent.function));
    let all: Vec<String> = pages.chain(functions).collect();
    if all.is_empty() { run.name.clone() } else { format!("{} ({})", run.name, all.join(", ")) }
}

/// One line for each, under a head.
pub(super) fn table(runs: &[Reservation]) -> String {
    rows(runs, &[])
}

/// As [`table`], with files that cannot be read as reservations: user and path of each.
fn rows(runs: &[Reservation], unknown: &[(String, String)]) -> String {
    let unread = |(user, path): &(String, String)| {
        let path: String = path.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        ["unknown", "?", user, "?", "?", "?", "?", "?", &path].map(str::to_owned)
    };
    let row = |run: &Reservation| {
        let nodes: Vec<String> = run.memory.iter().map(|share| share.node.to_string()).collect();
        let memory = run.memory.iter().fold(Bytes::ZERO, |sum, share| sum.plus(share.bytes));
        let image = run.image.map_or_else(|| "-".to_owned(), |image| image.short());
        let functions: Vec<String> = run.functions.iter().map(|lent| lent.function.to_string()).collect();
        let functions = if functions.is_empty() { "-".to_owned() } else { functions.join(",") };
        let (pid, user) = (run.pid.to_string(), accounts::user(run.user()));
        [
            run.name.clone(),
            pid,
            user,
            run.cpus.to_string(),
            nodes.join(","),
            memory.to_string(),
            image,
            functions,
            run.since.clone(),
        ]
    };
    let head = ["run", "pid", "user", "PUs", "nodes", "memory", "image", "function", "since"].map(str::to_owned);
    let rows: Vec<[String; 9]> =
        std::iter::once(head).chain(runs.iter().map(row)).chain(unknown.iter().map(unread)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..9).map(width).collect();
    let line = |row: &[String; 9]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_line_with_what_it_has() {
        let text = r#"{"schema":"nearmetal.reservation/2","name":"run-tiny-1a2b3c4d","uuid":"u","flavour":"tiny","pid":4711,
            "since":"2026-11-25T09:00:00Z","cpus":"1-2","memory":[{"node":1,"bytes":536870912}],"limits":[],"page_size":null,
            "image":null,"pools":[]}"#;
        let run: Reservation = serde_json::from_str(text).unwrap();
        let shown = table(&[run]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "run                pid   user  PUs  nodes  memory   image  function  since");
        let file = ("alice".to_owned(), "/run/x/run-\u{1b}.run".to_owned());
        let shown = rows(&[], &[file]);
        assert_eq!(
            shown.lines().nth(1),
            Some("unknown  ?    alice  ?    ?      ?       ?      ?         /run/x/run-?.run")
        );
        assert_eq!(
            lines[1],
            "run-tiny-1a2b3c4d  4711  root  1-2  1      512 MiB  -      -         2026-11-25T09:00:00Z"
        );
    }

    #[test]
    fn pages_that_a_dead_run_left_are_told() {
        let text = r#"{"schema":"nearmetal.reservation/2","name":"run-a","uuid":"u","flavour":"a","pid":7,"since":"","cpus":"1",
            "memory":[],"limits":[],"page_size":null,"image":null,"pools":[{"node":1,"size":2097152,"before":16,"after":48,
            "state":"grown","back_to":null}]}"#;
        let mut run: Reservation = serde_json::from_str(text).unwrap();
        assert_eq!(left(&run), "run-a (32 pages of 2 MiB in the pool of node 1)");
        let lent = r#"{"function":"0000:39:10.0","id":"0x8086:0x10ca","driver":"igbvf","only":null}"#;
        run.functions = vec![serde_json::from_str(lent).unwrap()];
        assert_eq!(left(&run), "run-a (32 pages of 2 MiB in the pool of node 1, function 0000:39:10.0)");
        assert!(table(std::slice::from_ref(&run)).contains("  0000:39:10.0"));
        run.functions.clear();
        run.pools.clear();
        assert_eq!(left(&run), "run-a");
    }
}
