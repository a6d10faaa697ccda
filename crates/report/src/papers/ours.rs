//! Which of our figures stands beside a paper's: data of data/papers, looked up in the reports of an experiment's steps.

use serde::Deserialize;

use crate::text::{LAB_WORDS, UNKNOWN, count, shown, value as number};
use crate::view::{
    ArmRole, Beside, ComparisonView, CountRow, JobReport, MemoryRow, MemorySide, NodesQuantity, RaceArm, RaceView,
    RatioView, TilesHeld, mode,
};

/// Where ours is found. `step` is the id of the experiment's step whose report has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Ours {
    /// Latency or bandwidth of memory, the planned guest over bare metal. Run once on each side: shown, not claimed.
    Memory { step: String, figure: MemoryFigure },
    /// The least and the largest ratio of the planned guest to bare metal, over all paired metrics whose id has this word.
    PairRange { step: String, metric: String },
    /// A mode over so many nodes to native; without a number over the most that were measured.
    Nodes { step: String, arm: String, nodes: Option<u32> },
    /// The planned guest's value of a paired metric, by the end of its id.
    Metric { step: String, metric: String },
    /// An arm of a race, by words of its id: to the race's reference, to bare metal, or to another arm. Of two arms that are
    /// not the reference the race keeps no interval.
    Race {
        step: String,
        arm: String,
        #[serde(default)]
        to: To,
        than: Option<String>,
    },
    /// An arm to another in pairs, in a metric whose id has this word.
    Arms { step: String, metric: String, arm: String, than: String },
    /// So many guests at once to their bare slices; without a number the most.
    Guests { step: String, guests: Option<u32> },
    /// So many guests at once to one alone.
    GuestsGain { step: String, guests: u32 },
    /// Tiles over virtual functions beside those over a bridge.
    Tiles { step: String, figure: TilesFigure },
}

/// A figure of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TilesFigure {
    /// The most with quality of service kept.
    Held,
    /// Busy PUs over a bridge to those over virtual functions, with the most tiles that both were measured with.
    Busy,
    /// Score of a tile, with the most that were held.
    Score,
}

/// A figure of memory.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MemoryFigure {
    /// Median time of a load, ns.
    Latency,
    /// Bytes read per second.
    Bandwidth,
}

/// What an arm of a race is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum To {
    /// The race's own reference.
    #[default]
    Reference,
    /// The same slice without a guest.
    Bare,
}

impl Ours {
    /// Ours; `None` if that step was not run, or has no such figure.
    pub(super) fn find(&self, steps: &[(&str, &JobReport)]) -> Option<Beside> {
        let (_, report) = steps.iter().find(|(id, _)| *id == self.step())?;
        let (value, mut note) = match self {
            Self::Memory { figure, .. } => memory(report, *figure)?,
            Self::PairRange { metric, .. } => range(report, metric)?,
            Self::Nodes { arm, nodes, .. } => over_nodes(report, arm, *nodes)?,
            Self::Metric { metric, .. } => measured(report, metric)?,
            Self::Race { arm, than: Some(than), .. } => of_two(report, arm, than)?,
            Self::Race { arm, to, .. } => raced(report, arm, *to)?,
            Self::Arms { metric, arm, than, .. } => of_arms(report, metric, arm, than)?,
            Self::Guests { guests, .. } => at_once(report, *guests)?,
            Self::GuestsGain { guests, .. } => gain(report, *guests)?,
            Self::Tiles { figure, .. } => of_tiles(report, *figure)?,
        };
        if report.is_lab() {
            note.push_str(", ");
            note.push_str(LAB_WORDS);
        }
        Some(Beside { value, note })
    }

    /// The step it is looked for in.
    pub(super) fn step(&self) -> &str {
        match self {
            Self::Memory { step, .. }
            | Self::PairRange { step, .. }
            | Self::Nodes { step, .. }
            | Self::Metric { step, .. }
            | Self::Race { step, .. }
            | Self::Arms { step, .. }
            | Self::Guests { step, .. }
            | Self::GuestsGain { step, .. }
            | Self::Tiles { step, .. } => step,
        }
    }
}

fn plain(ratio: f64) -> String {
    shown(Some(ratio), None).to_string()
}

/// Pages that the program has are the same on both sides; the pages behind the guest are said.
fn memory(report: &JobReport, figure: MemoryFigure) -> Option<(String, String)> {
    let value = |row: &MemoryRow| match figure {
        MemoryFigure::Latency => row.median_ns,
        MemoryFigure::Bandwidth => row.bandwidth_mb_s,
    };
    let rows = &report.memory.as_ref()?.rows;
    let planned = &report.arm_of(ArmRole::Planned)?.name;
    let bare = rows.iter().find(|row| row.side == MemorySide::Bare && value(row).is_some())?;
    let walk = bare.pattern.as_str();
    let of_planned = |row: &&MemoryRow| {
        row.side == MemorySide::Guest && row.page == bare.page && value(row).is_some() && {
            // Where guests are several, the pattern names which.
            let rest = row.pattern.strip_prefix(walk).map(|rest| rest.trim_start_matches(", "));
            rest.is_some_and(|rest| rest.is_empty() || rest == planned || rest.starts_with(&format!("{planned},")))
        }
    };
    let guest = rows.iter().find(of_planned)?;
    let backed = guest.backing.map_or_else(|| UNKNOWN.to_owned(), |page| page.to_string());
    let note = format!("{walk}, {} pages on both sides, backed by {backed}, single shot", bare.page);
    Some((plain(value(guest)? / value(bare)?), note))
}

fn range(report: &JobReport, word: &str) -> Option<(String, String)> {
    let planned = report.arm_of(ArmRole::Planned)?;
    let bare = report.arm_of(ArmRole::Bare)?;
    let mut ratios: Vec<f64> = report
        .comparisons
        .iter()
        .filter(|row| row.subject == planned.id && row.reference == bare.id && !row.single_shot)
        .filter(|row| row.metric.contains(word))
        .filter_map(|row| row.ratio)
        .filter(|ratio| ratio.is_finite())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (*ratios.first()?, *ratios.last()?);
    let value = if ratios.len() == 1 { plain(least) } else { format!("{} to {}", plain(least), plain(most)) };
    Some((value, format!("{} in pairs, the planned guest to bare metal", count(ratios.len(), "figure"))))
}

/// The first metric with that word: what is offered at parts of a rate comes after the rate itself.
fn of_arms(report: &JobReport, word: &str, arm: &str, than: &str) -> Option<(String, String)> {
    let name = |id: &str| Some(report.arms.iter().find(|one| one.id == id)?.name.clone());
    let of = |row: &&ComparisonView| row.subject == arm && row.reference == than && !row.single_shot;
    let row = report.comparisons.iter().filter(of).find(|row| row.metric.contains(word))?;
    row.ratio?;
    Some((shown(row.ratio, row.interval).to_string(), format!("{} to {}, n = {}", name(arm)?, name(than)?, row.n)))
}

fn over_nodes(report: &JobReport, arm: &str, nodes: Option<u32>) -> Option<(String, String)> {
    let view = report.by_nodes.as_ref()?;
    let at = match nodes {
        Some(nodes) => nodes,
        None => view.most_nodes()?,
    };
    let role = report.arms.iter().find(|one| one.id == arm)?.role;
    let arm = mode(&report.arms, role, arm)?;
    let ratio = view.rate()?.point(&arm.id, at)?.to_bare?;
    let mut note = format!("{}, {}", arm.name, count(at as usize, "node"));
    let local = |quantity: &NodesQuantity| Some(quantity.point(&arm.id, at)?.mean);
    if let Some(share) = view.share().and_then(local) {
        note.push_str(&format!("; {share:.1} % of its accesses stay on their node"));
    }
    Some((text(ratio), note))
}

fn measured(report: &JobReport, end: &str) -> Option<(String, String)> {
    let metric = report.metrics.iter().find(|metric| metric.id.ends_with(end))?;
    let row = report.comparison(&metric.id, ArmRole::Planned, ArmRole::Bare)?;
    let ratio = shown(row.ratio, row.interval);
    Some((format!("{} {}", number(row.subject_value), metric.unit), format!("{ratio} of bare metal, {}", metric.label)))
}

/// The arm with all these words, and the fewest others.
fn arm_of<'a>(race: &'a RaceView, words: &str) -> Option<(usize, &'a RaceArm)> {
    let has = |arm: &&RaceArm| words.split('.').all(|word| arm.id.split('.').any(|own| own == word));
    let arms = race.arms.iter().enumerate().filter(|(_, arm)| has(arm));
    arms.min_by_key(|(_, arm)| arm.id.split('.').count())
}

/// Of the two arms' ratios to the reference, in the rounds that each has with it.
fn of_two(report: &JobReport, arm: &str, than: &str) -> Option<(String, String)> {
    let race = report.race.as_ref()?;
    let ((place, arm), (other, than)) = (arm_of(race, arm)?, arm_of(race, than)?);
    let to_reference = |place: usize, arm: &RaceArm| match place == race.reference {
        true => Some(1.0),
        false => arm.to_reference.map(|ratio| ratio.ratio),
    };
    let ratio = to_reference(place, arm)? / to_reference(other, than)?;
    let barred = arm.cannot_win.as_ref().map(|why| format!("; it cannot win: {why}")).unwrap_or_default();
    let words = format!("{} of {}, to {}, without an interval{barred}", race.quantity_words(), arm.title, than.title);
    Some((plain(ratio), words))
}

fn raced(report: &JobReport, words: &str, to: To) -> Option<(String, String)> {
    let race = report.race.as_ref()?;
    let (_, arm) = arm_of(race, words)?;
    let (ratio, than) = match to {
        To::Reference => (arm.to_reference?, race.reference_name.as_str()),
        To::Bare => (arm.to_bare?, "bare metal"),
    };
    let barred = arm.cannot_win.as_ref().map(|why| format!("; it cannot win: {why}")).unwrap_or_default();
    Some((text(ratio), format!("{} of {}, to {than}{barred}", race.quantity_words(), arm.title)))
}

fn at_once(report: &JobReport, guests: Option<u32>) -> Option<(String, String)> {
    let rows = &report.together.as_ref()?.counts;
    let row: &CountRow = match guests {
        Some(guests) => rows.iter().find(|row| row.count == guests)?,
        None => rows.last()?,
    };
    let limit = if row.peer_bound == Some(true) { ", the other end may be the limit" } else { "" };
    let who = if row.count == 1 { "its bare slice" } else { "their bare slices at once" };
    Some((text(row.ratio?), format!("{} to {who}{limit}", count(row.count as usize, "guest"))))
}

fn gain(report: &JobReport, guests: u32) -> Option<(String, String)> {
    let row = report.together.as_ref()?.counts.iter().find(|row| row.count == guests)?;
    let bare = row.bare_gain.map_or_else(|| UNKNOWN.to_owned(), plain);
    Some((plain(row.guests_gain?), format!("{guests} guests to one; bare slices {bare}")))
}

/// Both ways of the same tiles. In a lab it is said that the verdict on quality of service is emulated, and at which rates.
fn of_tiles(report: &JobReport, figure: TilesFigure) -> Option<(String, String)> {
    let tiles = report.tiles.as_ref()?;
    let held = |arm: &str| tiles.held.iter().find(|held| held.arm == arm);
    let (bridge, vf) = (held("bridge")?, held("vf")?);
    let emulated = match tiles.emulated {
        true => format!("; emulated, at {} times the usual rates", tiles.scale),
        false => String::new(),
    };
    let (value, note) = match figure {
        TilesFigure::Held => {
            let many = |held: &TilesHeld| format!("{}{}", held.tiles, if held.open_ended { " or more" } else { "" });
            (format!("{} to {}", many(vf), many(bridge)), "virtual functions to a bridge".to_owned())
        }
        TilesFigure::Busy => {
            let busy = |arm: &str, number: u32| {
                tiles.rows.iter().find(|row| row.arm == arm && row.tiles == number).and_then(|row| row.busy)
            };
            let both = tiles.over.nodes.iter().rev();
            let (number, bridge, vf) =
                both.filter_map(|number| Some((*number, busy("bridge", *number)?, busy("vf", *number)?))).next()?;
            (plain(bridge / vf), format!("{bridge:.2} and {vf:.2} PUs busy with {}", count(number as usize, "tile")))
        }
        TilesFigure::Score => {
            let each = |held: &TilesHeld| Some(held.score? / f64::from(held.tiles.max(1)));
            (
                format!("{:.1} and {:.1}", each(vf)?, each(bridge)?),
                "nearmetal's own score, of virtual functions and a bridge".to_owned(),
            )
        }
    };
    Some((value, format!("{note}{emulated}")))
}

fn text(ratio: RatioView) -> String {
    format!("{ratio}, n = {}", ratio.n)
}
