//! Tiles of guests that serve, one more of them until the machine is full, in several arms.

use serde::{Deserialize, Serialize};

use super::{Bounds, ByNodesView};

/// What each arm did with 1, 2, … tiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TilesView {
    /// Figures by number of tiles, which `over.nodes` holds: the score, the PUs that were busy.
    pub over: ByNodesView,
    /// By how much less, or more, than usual a tile was asked.
    pub scale: f64,
    /// Whether the machine is emulated: then its verdicts on quality of service are, too.
    pub emulated: bool,
    /// One for each number of tiles and arm that was measured, the fewest tiles first.
    pub rows: Vec<TilesRow>,
    /// What each arm held, in the order of the report's arms.
    pub held: Vec<TilesHeld>,
}

/// One arm with so many tiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TilesRow {
    /// How many.
    pub tiles: u32,
    /// Arm id.
    pub arm: String,
    /// Median of the scores; `None` without figures.
    pub score: Option<f64>,
    /// The lowest and the highest score; `None` without figures.
    pub range: Option<Bounds>,
    /// Samples with figures.
    pub samples: u32,
    /// Of them, those in which quality of service failed.
    pub missed: u32,
    /// Samples without figures.
    pub failed: u32,
    /// The limit that failed by most, in words.
    pub worst: Option<String>,
    /// The guest that answered the smallest part of what it was asked, in words.
    pub least: Option<String>,
    /// Median of the PUs that were busy; `None` if nobody counted.
    pub busy: Option<f64>,
    /// The same of the guests of each part of a tile; a part that nobody counted is missing.
    pub busy_by_part: Vec<PartBusy>,
}

/// The guests of one part of a tile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartBusy {
    /// What a person calls it.
    pub part: String,
    /// PUs that their QEMU kept busy.
    pub pus: f64,
}

impl TilesRow {
    /// Whether quality of service was kept in half of the samples at least; `None` without figures.
    pub fn is_kept(&self) -> Option<bool> {
        (self.samples > 0).then(|| self.missed * 2 <= self.samples)
    }

    /// The same in words.
    pub fn quality(&self) -> String {
        match self.is_kept() {
            None => "no figures".to_owned(),
            Some(true) if self.missed == 0 => "kept".to_owned(),
            Some(true) => format!("kept, but in {} of {} samples", self.missed, self.samples),
            Some(false) => format!("failed in {} of {} samples", self.missed, self.samples),
        }
    }
}

/// What one arm held in the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TilesHeld {
    /// Arm id.
    pub arm: String,
    /// The most tiles with quality of service kept and a rising score; 0 for none.
    pub tiles: u32,
    /// Its score with these; `None` for none.
    pub score: Option<f64>,
    /// Whether it may hold more: there were no more tiles, or no sample with one more gave figures.
    pub open_ended: bool,
    /// Whether it ended for want of figures.
    #[serde(default)]
    pub without_figures: bool,
    /// What ended it, in a sentence without a stop.
    pub why: String,
}

impl TilesHeld {
    /// How many it held, in words.
    pub fn many(&self) -> String {
        let tiles = crate::text::count(self.tiles as usize, "tile");
        match self.without_figures {
            true if self.tiles == 0 => "an unknown number of tiles".to_owned(),
            true => format!("{tiles} or more"),
            false => tiles,
        }
    }
}
