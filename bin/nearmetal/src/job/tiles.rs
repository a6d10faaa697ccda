//! Tiles: what each arm did with each number of them, and what it held.

use nearmetal_report::view::{
    Bounds, ByNodesView, ModePoint, ModeSeries, NodesQuantity, PartBusy, TilesHeld, TilesRow, TilesView,
};
use nearmetal_results::{ArmFilled, Environment, Filling, Full, Level, Results, filled, miss_text};

/// Name of the score in the report.
const SCORE: &str = "score of all tiles together";

/// The view; `None` for another experiment.
pub(super) fn view(results: &Results) -> Option<TilesView> {
    let tiles = results.tiles.as_ref()?;
    let arms = filled(results);
    let mut numbers: Vec<usize> = arms.iter().flat_map(|arm| arm.levels.iter().map(|level| level.tiles)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let emulated = is_emulated(results);
    let quantity = |label: &str, unit: &str, higher_is_better: bool, of: &dyn Fn(&Level) -> Vec<f64>| {
        let series = |arm: &ArmFilled| ModeSeries {
            arm: arm.arm.clone(),
            points: arm.levels.iter().filter_map(|level| point(level.tiles, &of(level))).collect(),
        };
        let series: Vec<ModeSeries> = arms.iter().map(series).filter(|series| !series.points.is_empty()).collect();
        let quantity =
            NodesQuantity { label: label.to_owned(), unit: unit.to_owned(), higher_is_better, emulated, series };
        (!quantity.series.is_empty()).then_some(quantity)
    };
    let scores = |level: &Level| level.samples.iter().map(nearmetal_results::Judged::score).collect();
    let busy = |level: &Level| level.samples.iter().filter_map(|sample| sample.busy).collect();
    let quantities =
        [quantity(SCORE, "points", true, &scores), quantity("PUs of the machine that were busy", "PUs", false, &busy)];
    let rows = numbers.iter().flat_map(|number| {
        let level =
            |arm: &ArmFilled| Some(row(&arm.arm, arm.levels.iter().find(|level| level.tiles == *number)?, tiles));
        arms.iter().filter_map(level).collect::<Vec<_>>()
    });
    Some(TilesView {
        over: ByNodesView {
            load: load(results, tiles),
            nodes: numbers.iter().map(|number| *number as u32).collect(),
            quantities: quantities.into_iter().flatten().collect(),
            papers: Vec::new(),
        },
        scale: tiles.scale.get(),
        emulated,
        rows: rows.collect(),
        held: arms.iter().map(held).collect(),
    })
}

fn is_emulated(results: &Results) -> bool {
    matches!(results.environment, Environment::Lab { .. })
}

/// What a tile is.
fn load(results: &Results, tiles: &Filling) -> String {
    let parts: Vec<&str> = tiles.roles.iter().map(|role| role.title()).collect();
    let most = results.tenants.len() / tiles.roles.len().max(1);
    let of = if most == 1 { "1 tile".to_owned() } else { format!("up to {most} tiles") };
    let times =
        if tiles.scale.get() == 1.0 { String::new() } else { format!(", {} times the usual rates", tiles.scale) };
    format!("{of} of {}{times}", parts.join(", "))
}

fn point(tiles: usize, values: &[f64]) -> Option<ModePoint> {
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let samples = u32::try_from(values.len()).unwrap_or(u32::MAX);
    Some(ModePoint { nodes: tiles as u32, mean, low, high, samples, to_bare: None, beyond_noise: false })
}

fn row(arm: &str, level: &Level, tiles: &Filling) -> TilesRow {
    let busy_by_part = tiles
        .roles
        .iter()
        .filter_map(|role| Some(PartBusy { part: role.title().to_owned(), pus: level.busy_of(*role)? }));
    TilesRow {
        tiles: level.tiles as u32,
        arm: arm.to_owned(),
        score: level.score(),
        range: level.range().map(|(low, high)| Bounds { low, high }),
        samples: level.samples.len() as u32,
        missed: level.missed() as u32,
        failed: level.failed as u32,
        worst: level.worst().map(miss_text),
        least: least(level),
        busy: level.busy(),
        busy_by_part: busy_by_part.collect(),
    }
}

/// The guest that answered the smallest part of what it was asked, where it did not answer all.
fn least(level: &Level) -> Option<String> {
    let all = level.samples.iter().filter_map(nearmetal_results::Judged::least);
    let (tile, one) = all.min_by(|(_, one), (_, other)| one.answered.total_cmp(&other.answered))?;
    (one.answered < 1.0).then(|| {
        format!(
            "the smallest part was answered by the {} `{}` of tile {tile}: {:.1} % of what it was asked",
            one.role.title(),
            one.guest,
            one.answered * 100.0
        )
    })
}

fn held(arm: &ArmFilled) -> TilesHeld {
    TilesHeld {
        arm: arm.arm.clone(),
        tiles: arm.held as u32,
        score: arm.best().and_then(Level::score),
        open_ended: matches!(arm.ended, Some((_, Full::NoMoreTiles))) || arm.is_without_figures(),
        without_figures: arm.is_without_figures(),
        why: arm.why(),
    }
}

/// What a terminal shows of it; nothing for another experiment.
pub(super) fn text(results: &Results) -> String {
    let Some(view) = view(results) else { return String::new() };
    let title = |arm: &str| results.title(arm).to_owned();
    let mut text = format!("{}\n", view.over.load);
    if view.emulated {
        text.push_str(&format!(
            "emulated, at {} times the usual rates: no verdict below is one of silicon\n",
            view.scale
        ));
    }
    for row in &view.rows {
        let figure = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.1}"));
        let range = row.range.map_or_else(String::new, |range| format!(" ({:.1}–{:.1})", range.low, range.high));
        let busy = row.busy.map_or_else(String::new, |busy| format!(", {busy:.2} PUs busy"));
        let parts: Vec<String> = row.busy_by_part.iter().map(|one| format!("{} {:.2}", one.part, one.pus)).collect();
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        let lost = if row.failed > 0 { format!(", {} without figures", row.failed) } else { String::new() };
        let many = if row.tiles == 1 { "tile " } else { "tiles" };
        text.push_str(&format!(
            "{:3} {many}  {:32} score {}{range}, quality of service {}{lost}{busy}{parts}\n",
            row.tiles,
            title(&row.arm),
            figure(row.score),
            row.quality()
        ));
        for words in row.worst.iter().chain(&row.least) {
            text.push_str(&format!("           {words}\n"));
        }
    }
    for held in &view.held {
        text.push_str(&format!("{} held {}: {}\n", title(&held.arm), held.many(), held.why));
    }
    text
}
