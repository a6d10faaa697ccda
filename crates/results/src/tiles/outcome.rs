//! How many tiles each arm held, and what ended it: worked out of the document.

use nearmetal_load::{Scale, TileRole as Role};
use nearmetal_units::CpuSet;
use serde::{Deserialize, Serialize};

use super::full::{Full, Look, median, tiles_held};
use super::judge::{Judged, Miss, RoleLimits, judged};
use crate::results::{Purpose, Results, Run, last_tries};

/// What only tiles leave in a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Filling {
    /// The parts of every tile, in the order of its tenants.
    pub roles: Vec<Role>,
    /// The limits that were in force.
    pub limits: Vec<RoleLimits>,
    /// How much a tile was asked.
    pub scale: Scale,
    /// Samples of each number of tiles in each arm.
    pub samples: u32,
    /// The PUs from which the guests were asked.
    pub drivers: CpuSet,
    /// /sys/kernel/mm/ksm/run when it began; `None` where the kernel has no KSM.
    pub ksm: Option<u64>,
}

/// An arm with so many tiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// How many.
    pub tiles: usize,
    /// The samples with figures.
    pub samples: Vec<Judged>,
    /// Samples without.
    pub failed: usize,
    /// Why the last of these had none.
    pub last_failure: Option<String>,
}

impl Level {
    /// Median of the scores; `None` without figures.
    pub fn score(&self) -> Option<f64> {
        median(self.samples.iter().map(Judged::score).collect())
    }

    /// The lowest and the highest score.
    pub fn range(&self) -> Option<(f64, f64)> {
        let scores = || self.samples.iter().map(Judged::score);
        Some((scores().min_by(f64::total_cmp)?, scores().max_by(f64::total_cmp)?))
    }

    /// Samples in which quality of service failed.
    pub fn missed(&self) -> usize {
        self.samples.iter().filter(|sample| !sample.misses.is_empty()).count()
    }

    /// Whether it was kept in half of the samples at least; `None` without figures.
    pub fn is_kept(&self) -> Option<bool> {
        (!self.samples.is_empty()).then(|| self.missed() * 2 <= self.samples.len())
    }

    /// The limit that failed by most in any sample.
    pub fn worst(&self) -> Option<&Miss> {
        let all = self.samples.iter().flat_map(|sample| &sample.misses);
        // The first of several that are as bad.
        all.min_by(|one, other| other.by().total_cmp(&one.by()))
    }

    /// Median of the PUs of the machine that were busy.
    pub fn busy(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.busy).collect())
    }

    /// Median of the PUs that a role's guests kept busy.
    pub fn busy_of(&self, role: Role) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.busy_of(role)).collect())
    }
}

/// One arm in the end.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmFilled {
    /// Its id.
    pub arm: String,
    /// What ran, the fewest tiles first.
    pub levels: Vec<Level>,
    /// The most tiles with which quality of service was kept and the score rose; 0 for none.
    pub held: usize,
    /// With how many tiles it ended; `None` where the runs end before it was full.
    pub ended: Option<(usize, Full)>,
}

impl ArmFilled {
    /// The level that counts: the most tiles that were held.
    pub fn best(&self) -> Option<&Level> {
        self.levels.iter().find(|level| level.tiles == self.held)
    }

    /// Whether it ended for want of figures, which says nothing of what the machine holds: what asks may have been too slow.
    pub fn is_without_figures(&self) -> bool {
        matches!(self.ended, Some((_, Full::NoFigures)))
    }

    /// What ended it, in a sentence without a stop.
    pub fn why(&self) -> String {
        let Some((tiles, full)) = &self.ended else { return "it is not over".to_owned() };
        let with = format!("with {tiles} {}", if *tiles == 1 { "tile" } else { "tiles" });
        let level = self.levels.iter().find(|level| level.tiles == *tiles);
        match full {
            Full::Quality { failed, of } => {
                let worst = level.and_then(Level::worst).map(|miss| format!(": {}", miss_text(miss)));
                format!("{with} quality of service failed in {failed} of {of} samples{}", worst.unwrap_or_default())
            }
            Full::Score { before, now } => {
                format!("{with} the score did not rise: {now:.1} after {before:.1} with one tile fewer")
            }
            Full::NoFigures => {
                let last = level.and_then(|level| level.last_failure.as_ref());
                let last = last.map(|why| format!("; the last failed: {why}")).unwrap_or_default();
                format!("{with} most samples gave no figures, so it may hold more{last}")
            }
            Full::NoMoreTiles => format!("{with} there are no more, and quality of service was kept"),
        }
    }
}

/// A limit that did not hold, in words.
pub fn miss_text(miss: &Miss) -> String {
    let Miss { tile, role, guest, limit, answered, p95 } = miss;
    let p95 = p95.map_or_else(String::new, |p95| format!("; 95 % were answered within {}", long(p95)));
    format!(
        "the {} `{guest}` of tile {tile} answered {:.1} % within {}, and {} % is the limit{p95}",
        role.title(),
        answered * 100.0,
        time(limit.within_ms),
        (limit.part * 1000.0).round() / 10.0
    )
}

/// A time in ns, by its size.
fn long(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns >= 1e9 => format!("{:.1} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} µs", ns / 1e3),
    }
}

/// A limit's time.
fn time(milliseconds: u32) -> String {
    match milliseconds % 1000 {
        0 => format!("{} s", milliseconds / 1000),
        _ => format!("{milliseconds} ms"),
    }
}

/// What each arm held; empty for a document that is none of tiles.
pub fn filled(results: &Results) -> Vec<ArmFilled> {
    let Some(tiles) = &results.tiles else { return Vec::new() };
    let each = tiles.roles.len().max(1);
    let most = results.tenants.len() / each;
    let judge = |run: &Run| judged(run, &results.tenants, &tiles.limits);
    let look = |run: &Run| judge(run).map(|one| Look { score: one.score(), is_kept: one.misses.is_empty() });
    let arm = |id: &str| {
        let of = |number: usize| {
            let of = move |run: &&Run| run.purpose == Purpose::Fill && run.arm == id && run.count == number * each;
            results.runs.iter().filter(of)
        };
        let level = |number: usize| {
            let failures: Vec<&str> = last_tries(of(number), Run::step).into_iter().filter_map(Run::failure).collect();
            Level {
                tiles: number,
                samples: of(number).filter_map(judge).collect(),
                failed: failures.len(),
                last_failure: failures.last().map(|why| (*why).to_owned()),
            }
        };
        let ended = tiles_held(&results.runs, id, each, most, &look);
        let levels: Vec<Level> = (1..=most).filter(|number| of(*number).next().is_some()).map(level).collect();
        let held = match ended {
            Some((number, Full::NoMoreTiles)) => number,
            Some((number, _)) => number - 1,
            None => levels.len(),
        };
        ArmFilled { arm: id.to_owned(), levels, held, ended }
    };
    results.arms.iter().map(|one| arm(&one.name.id)).collect()
}
