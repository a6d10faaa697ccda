//! Tiles, as texts.

use serde::Serialize;

use super::measured::tone;
use crate::text::count;
use crate::view::{JobReport, TilesRow};

#[derive(Serialize)]
pub(super) struct TilesPage {
    load: String,
    /// What is emulated, in words; empty on silicon.
    emulated: String,
    rows: Vec<Row>,
    ended: Vec<Ended>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    tiles: String,
    arm: String,
    tone: &'static str,
    score: String,
    range: String,
    quality: String,
    busy: String,
    busy_by_part: String,
}

#[derive(Serialize)]
struct Ended {
    arm: String,
    tone: &'static str,
    held: String,
    why: String,
}

pub(super) fn tiles(view: &JobReport) -> Option<TilesPage> {
    let tiles = view.tiles.as_ref()?;
    let name = |id: &str| view.arm(id).map_or_else(|| id.to_owned(), |arm| arm.name.clone());
    let tone_of = |id: &str| tone(view.arm(id).map(|arm| arm.role));
    let row = |row: &TilesRow| Row {
        tiles: count(row.tiles as usize, "tile"),
        arm: name(&row.arm),
        tone: tone_of(&row.arm),
        score: row.score.map_or_else(|| "unknown".to_owned(), |score| format!("{score:.1}")),
        range: row.range.map_or_else(String::new, |range| format!("{:.1}–{:.1}", range.low, range.high)),
        quality: row.quality(),
        busy: row.busy.map_or_else(|| "not counted".to_owned(), |busy| format!("{busy:.2}")),
        busy_by_part: row
            .busy_by_part
            .iter()
            .map(|one| format!("{} {:.2}", one.part, one.pus))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let note = |row: &TilesRow| {
        let who = format!("{}, {}", name(&row.arm), count(row.tiles as usize, "tile"));
        row.worst.iter().chain(&row.least).map(|words| format!("{who}: {words}")).collect::<Vec<_>>()
    };
    let ended = tiles.held.iter().map(|held| Ended {
        arm: name(&held.arm),
        tone: tone_of(&held.arm),
        held: held.many(),
        why: held.why.clone(),
    });
    let emulated = match tiles.emulated {
        true => format!(
            "Emulated, at {} times the usual rates. No verdict here on quality of service is one of silicon.",
            tiles.scale
        ),
        false => String::new(),
    };
    Some(TilesPage {
        load: tiles.over.load.clone(),
        emulated,
        rows: tiles.rows.iter().map(row).collect(),
        ended: ended.collect(),
        notes: tiles.rows.iter().flat_map(note).collect(),
    })
}
