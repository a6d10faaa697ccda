//! The table of disk paths for people: one row a path, with the evidence.

use nearmetal_report::view::{RaceArm, RaceReadBack, RaceView};
use nearmetal_results::{Environment, PathRow, PathTable, Proof};

use super::race::left_out_rows;

/// What shows that a path took effect.
fn evidence(proof: &Proof) -> Vec<&str> {
    let found =
        [&proof.open, &proof.engine, &proof.thread, &proof.guest, &proof.given_back, &proof.scheduler, &proof.flush];
    found.into_iter().flatten().map(String::as_str).collect()
}

/// The table as a report shows it: ways that were read back and not raced.
pub(crate) fn view(table: &PathTable) -> RaceView {
    let ground = &table.ground;
    let arm = |row: &PathRow| RaceArm {
        id: row.id.clone(),
        title: row.path.title(),
        read_back: match &row.proof.amiss {
            Some(why) => RaceReadBack::NotShown { why: why.clone() },
            None => RaceReadBack::Shown { evidence: evidence(&row.proof).into_iter().map(str::to_owned).collect() },
        },
        cannot_win: None,
        fate: None,
        peer_bound: None,
        rounds: 0,
        median: None,
        to_reference: None,
        to_bare: None,
    };
    RaceView {
        ways: format!("ways to a disk on `{}`, kernel {}, QEMU {}", ground.device, ground.kernel, ground.qemu),
        thing: "disk".to_owned(),
        load: None,
        quantity: "IOPS".to_owned(),
        reference_name: "QEMU's default".to_owned(),
        reference: 0,
        winner: None,
        arms: table.rows.iter().map(arm).collect(),
        looks: Vec::new(),
        error: 0.0,
        slack: None,
        took: table.took,
        advice: None,
        left_out: left_out_rows(&table.left_out),
        effects: Vec::new(),
        ceiling: Vec::new(),
    }
}

/// One row a path, those that did not take effect first; then what this machine cannot hold.
pub(crate) fn paths_text(table: &PathTable) -> String {
    let ground = &table.ground;
    let amiss = table.rows.iter().filter(|row| row.proof.amiss.is_some()).count();
    let mut text = format!(
        "{}: every way to a disk on `{}`, kernel {}, QEMU {}\n",
        table.guest, ground.device, ground.kernel, ground.qemu
    );
    if let Environment::Lab { machine } = &table.environment {
        text.push_str(&format!("lab: a machine in software ({machine})\n"));
    }
    text.push_str(&format!(
        "{} paths made, {} read back as asked for, {amiss} not; {:.0} s\n\n",
        table.rows.len(),
        table.rows.len() - amiss,
        table.took
    ));
    let width = table.rows.iter().map(|row| row.path.title().len()).max().unwrap_or(0);
    let (failed, good): (Vec<&PathRow>, Vec<&PathRow>) = table.rows.iter().partition(|row| row.proof.amiss.is_some());
    for row in failed {
        let why = row.proof.amiss.as_deref().unwrap_or_default();
        text.push_str(&format!("✗ {:width$}  {why}\n", row.path.title()));
    }
    for row in good {
        let proof = &row.proof;
        let found = evidence(proof);
        text.push_str(&format!("✓ {:width$}  {}\n", row.path.title(), found.join(" | ")));
    }
    if !table.left_out.is_empty() {
        text.push_str("\nnot made:\n");
    }
    for left in &table.left_out {
        text.push_str(&format!("  {:width$}  {}\n", left.what, left.why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_results::{Container, DiskPath, GroundKey, LeftOut, Proof};

    #[test]
    fn what_did_not_take_effect_comes_first_and_the_rest_has_its_evidence() {
        let row = |container, proof| {
            let path = DiskPath::qemu_default(container);
            PathRow { path, id: path.id(), source: "/dev/x".to_owned(), proof }
        };
        let words = |text: &str| Some(text.to_owned());
        let good = Proof { open: words("fdinfo 30: O_DIRECT"), thread: words("iothread 1"), ..Proof::default() };
        let bad = Proof { amiss: words("the engine is threads"), open: words("fdinfo 31"), ..Proof::default() };
        let table = PathTable {
            schema: nearmetal_results::PATHS_SCHEMA.to_owned(),
            created: String::new(),
            environment: Environment::Lab { machine: "quad".to_owned() },
            ground: GroundKey { device: "drive".into(), kernel: "6.12".into(), qemu: "10.0".into() },
            guest: "web1".to_owned(),
            took: 3.0,
            rows: vec![row(Container::Partition, good), row(Container::Qcow2Full, bad)],
            left_out: vec![LeftOut { what: "lvm none/native".to_owned(), why: "lvm2 is not installed".to_owned() }],
        };
        let text = paths_text(&table);
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("`{words}` is not in:\n{text}"));
        assert!(at("✗ qcow2-full") < at("✓ partition"));
        assert!(at("the engine is threads") < at("fdinfo 30: O_DIRECT | iothread 1"));
        assert!(at("1 read back as asked for, 1 not") < at("lvm2 is not installed"));
        assert!(!text.contains("fdinfo 31"));
    }
}
