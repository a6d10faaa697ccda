//! The result in one sentence, and what belongs right under it.

use crate::headline_nodes::headline_by_nodes;
use crate::headline_tiles::headline_tiles;
use crate::text::{COUNTED_WORDS, LAB_WORDS, count, finite, interval, percent, ratio, shown, value};
use crate::view::{ArmRole, Bounds, ComparisonView, JobReport, Metric};

/// The sentence a report opens with.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// The sentence, in pieces.
    pub pieces: Vec<Piece>,
    /// What was measured and how often, and what the plan gained over the VM as found.
    pub below: Vec<String>,
}

/// A piece of the sentence.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Piece {
    /// The words.
    pub text: String,
    /// How loud they are.
    pub stress: Stress,
}

/// How loud a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stress {
    /// Intervals and labels.
    Quiet,
    /// Words.
    Plain,
    /// The result as planned, or what is wrong.
    Result,
    /// The figure it is set against.
    Before,
}

impl Headline {
    /// The sentence as plain text.
    pub fn sentence(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }
}

/// Works out the headline. A plan that did not take effect comes before any ratio.
pub fn headline(view: &JobReport) -> Headline {
    if let Some(by_nodes) = view.by_nodes.as_ref().filter(|_| view.race.is_none() && view.verification.is_empty()) {
        return headline_by_nodes(view, by_nodes);
    }
    if let Some(tiles) = &view.tiles {
        return headline_tiles(view, tiles);
    }
    let mut pieces = Vec::new();
    let mut say = |text: String, stress| pieces.push(Piece { text, stress });
    let several = view.together.is_some();
    let name = &named(view);
    let (does, slice) =
        if several { ("do", "their bare slices at once") } else { ("does", "bare metal on the same slice") };
    let checks = view.checks();
    let told = told(view);
    let result = view
        .headline_metric
        .as_deref()
        .and_then(|id| view.comparison(id, told, ArmRole::Bare).filter(|row| finite(row.ratio).is_some()));
    let mut below = Vec::new();
    // Where the headline tells of counts, time stands last.
    let mut time = None;
    if let Some(race) = &view.race {
        for (text, result) in race.verdict(name) {
            say(text, if result { Stress::Result } else { Stress::Plain });
        }
        let fresh = race.advice.as_ref().filter(|_| race.was_raced());
        if let Some(ends) = fresh.and_then(|advice| advice.to_reference).and_then(|ratio| ratio.shown().interval) {
            say(format!(" (95 % interval {ends})"), Stress::Quiet);
        }
        if let Some(bare) = fresh.and_then(|advice| advice.to_bare) {
            below.push(format!("It does {bare} of bare metal on the same slice, in the same fresh rounds"));
        }
    } else if checks.mismatch > 0 {
        say(format!("{name} is not as planned: "), Stress::Plain);
        say(format!("{} of {}", checks.mismatch, checks.all()), Stress::Result);
        say(" read-backs differ".to_owned(), Stress::Plain);
        if let Some(result) = result {
            below.push(format!(
                "It does {} of bare metal on the same slice{}, not in the state that was planned",
                shown(result.ratio, result.interval).ratio,
                bracket(result)
            ));
        }
    } else if let Some(result) = result {
        let counted = is_counted(view, result);
        let (does, of) = match (counted, several) {
            (false, _) => (does, "of"),
            (true, false) => ("takes", "the instructions of"),
            (true, true) => ("take", "the instructions of"),
        };
        // The plan's own arm needs no words.
        let which = match (told, view.arm_of(told)) {
            (ArmRole::AsFound, _) => " as found".to_owned(),
            (ArmRole::Other, Some(arm)) => format!(" ({})", arm.name),
            _ => String::new(),
        };
        say(format!("{name}{which} {does} "), Stress::Plain);
        say(shown(result.ratio, result.interval).ratio, Stress::Result);
        say(format!(" {of} {slice}"), Stress::Plain);
        say(bracket(result), Stress::Quiet);
        let found = view.comparison(&result.metric, ArmRole::AsFound, ArmRole::Bare);
        if let Some(found) = found.filter(|row| finite(row.ratio).is_some() && told == ArmRole::Planned) {
            say(format!(", {} ", direction(view, result, found)), Stress::Plain);
            say(ratio(found.ratio), Stress::Before);
            say(" as found".to_owned(), Stress::Plain);
        }
        if counted {
            below.extend(stays_near(view, result));
            time = emulated_time(view, result, slice);
        }
    } else if view.plan.is_none() {
        say(format!("{name}: measured, and nothing can be said of it: fewer than two pairs count"), Stress::Plain);
    } else if view.verified() == Some(true) {
        say(format!("{name} is where the plan put it; its speed was not compared"), Stress::Plain);
    } else if checks.ok > 0 {
        let untold = checks.cannot_tell;
        say(format!("{name}: {} of {} read-backs are as planned", checks.ok, checks.all()), Stress::Plain);
        say(format!(", {untold} cannot be told; its speed was not compared"), Stress::Plain);
    } else {
        say(format!("{name} was planned; nothing was proven and nothing compared"), Stress::Plain);
    }
    if view.is_lab() {
        // Ways race by their rate, which a clock measures, whatever else was counted.
        let counted = view.race.is_none() && result.is_some_and(|result| is_counted(view, result));
        let words = if counted { COUNTED_WORDS } else { LAB_WORDS };
        say(format!(" — {words}"), Stress::Quiet);
    }
    if let Some(result) = result.filter(|_| view.race.is_none()) {
        below.extend(measured(view, result));
        below.extend(scattered(view, result));
    }
    below.extend(time);
    Headline { pieces, below }
}

/// Whose ratio to bare metal the headline tells: the plan's, unless its arm was left out.
fn told(view: &JobReport) -> ArmRole {
    let there = |role: &ArmRole| view.arm_of(*role).is_some();
    [ArmRole::Planned, ArmRole::AsFound, ArmRole::Other].into_iter().find(there).unwrap_or(ArmRole::Planned)
}

/// Whether the headline is counted work, of which less is better.
fn is_counted(view: &JobReport, result: &ComparisonView) -> bool {
    view.metric(&result.metric).is_some_and(|metric| !metric.higher_is_better)
}

/// Another quantity of the same requests.
fn beside<'a>(view: &'a JobReport, result: &ComparisonView, unit: &str) -> Option<&'a Metric> {
    let size = view.metric(&result.metric)?.request_size;
    view.metrics.iter().find(|metric| metric.unit == unit && metric.request_size == size)
}

/// How near the memory is that the guest touches: the part of its accesses that stay on the node of whoever makes them, which
/// has no ratio where none do, and how far they go.
fn stays_near(view: &JobReport, result: &ComparisonView) -> Option<String> {
    let compared = |unit: &str| {
        let metric = beside(view, result, unit)?;
        let row = view.comparison(&metric.id, ArmRole::Planned, ArmRole::AsFound)?;
        Some((finite(row.subject_value)?, finite(row.reference_value)?, shown(row.ratio, row.interval)))
    };
    let (planned, found, ratio) = compared("distance")?;
    let mut text = format!(
        "The mean distance of its accesses to memory is {planned:.1}, {found:.1} as found (a node's own is 10): {ratio}"
    );
    if let Some((planned, found, _)) = compared("%") {
        text.push_str(&format!("; {planned:.1} % of them stay on their node, {found:.1} % as found"));
    }
    Some(text)
}

/// What the lab's clock says, which is no measure of silicon.
fn emulated_time(view: &JobReport, result: &ComparisonView, slice: &str) -> Option<String> {
    let rate = beside(view, result, "IOPS")?;
    let told = told(view);
    let row = view.comparison(&rate.id, told, ArmRole::Bare)?;
    let found = view.comparison(&rate.id, ArmRole::AsFound, ArmRole::Bare).filter(|_| told == ArmRole::Planned);
    let found = found.and_then(|found| finite(found.ratio));
    let found = found.map_or_else(String::new, |found| format!(", {} as found", ratio(Some(found))));
    Some(format!("In the lab's emulated time: {} of {slice}{found}", shown(row.ratio, row.interval)))
}

/// The guest, or all of several.
fn named(view: &JobReport) -> String {
    let names: Vec<&str> = view.tenants.iter().map(|tenant| tenant.guest.as_str()).collect();
    match (view.together.is_some(), names.as_slice()) {
        (true, [others @ .., last]) if !others.is_empty() => format!("{} and {last} at once", others.join(", ")),
        _ => view.guest.name.clone(),
    }
}

/// What a reader must know before the headline: one sentence for each arm that lost samples.
pub(crate) fn warnings(view: &JobReport) -> Vec<String> {
    let sentence = |arm: &crate::view::IncompleteArm| {
        let name = view.arm(&arm.arm).map_or(arm.arm.as_str(), |known| known.name.as_str());
        let (failed, samples) = (arm.failed, count(arm.samples as usize, "sample"));
        let lost = match (arm.failed == arm.samples, arm.samples) {
            (true, 1) => "its only sample failed, so it has no figures".to_owned(),
            (true, _) => format!("all of its {samples} failed, so it has no figures"),
            (false, _) => format!("{failed} of its {samples} failed and are in no figure"),
        };
        format!("The arm `{name}` is incomplete: {lost}. The first failed with: {}", arm.why)
    };
    view.incomplete.iter().map(sentence).chain(view.race.as_ref().and_then(crate::view::RaceView::lost)).collect()
}

/// ` (95 % interval 0.58–0.66)`, or why there is none.
fn bracket(row: &ComparisonView) -> String {
    match shown(row.ratio, row.interval).interval {
        Some(ends) => format!(" ({} interval {})", percent(row.confidence), ends),
        None if row.single_shot => " (single shot, no interval)".to_owned(),
        None => " (no interval)".to_owned(),
    }
}

/// Whether the way from the VM as found may be called up or down: the paired comparison decides, where there is one.
fn direction(view: &JobReport, planned: &ComparisonView, found: &ComparisonView) -> &'static str {
    let paired = view.comparison(&planned.metric, ArmRole::Planned, ArmRole::AsFound);
    let unclear = match paired.and_then(|row| row.interval) {
        Some(Bounds { low, high }) => low <= 1.0 && high >= 1.0,
        None => true,
    };
    if unclear {
        "beside"
    } else if planned.ratio > found.ratio {
        "up from"
    } else {
        "down from"
    }
}

fn measured(view: &JobReport, result: &ComparisonView) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(metric) = view.metric(&result.metric) {
        lines.push(format!("{}, {}{}", metric.label, count(result.n as usize, "pair"), absolute(view, metric, result)));
    }
    if let Some(gain) = view.comparison(&result.metric, ArmRole::Planned, ArmRole::AsFound) {
        let floor = view.noise_floor(&result.metric).and_then(|floor| floor.bounds);
        let noise = match floor {
            Some(bounds) => format!("; two equal arms differ by {}", interval(bounds)),
            None => String::new(),
        };
        if finite(gain.ratio).is_some() {
            let worse = view.metric(&result.metric).map_or("", Metric::less_is_better);
            lines.push(format!("Planned against as found: {}{worse}{noise}", shown(gain.ratio, gain.interval)));
        }
    }
    lines
}

/// Bare metal whose samples are further apart than this factor is no firm ground to hold a guest against.
const SCATTER: f64 = 2.0;

/// What to trust instead, where bare metal's own samples scatter. Those of several guests at once differ by their number.
fn scattered(view: &JobReport, result: &ComparisonView) -> Option<String> {
    if view.together.is_some() {
        return None;
    }
    let metric = view.metric(&result.metric)?;
    let bare = view.arms.iter().find(|arm| arm.role == ArmRole::Bare)?;
    let series = view.samples.iter().find(|series| series.metric == metric.id && series.arm == bare.id)?;
    let least = series.values.iter().copied().min_by(f64::total_cmp)?;
    let most = series.values.iter().copied().max_by(f64::total_cmp)?;
    let instead = match view.comparison(&metric.id, ArmRole::Planned, ArmRole::AsFound) {
        Some(_) => "the one between planned and as found does not rest on it",
        None => "measure again on a quiet machine, or with more pairs",
    };
    (most > SCATTER * least).then(|| {
        let (least, most) = (value(Some(least)), value(Some(most)));
        format!(
            "Bare metal's own samples run from {least} to {most} {}, so a ratio to it is rough; {instead}",
            metric.unit
        )
    })
}

fn absolute(view: &JobReport, metric: &Metric, row: &ComparisonView) -> String {
    if finite(row.subject_value).is_none() || finite(row.reference_value).is_none() {
        return String::new();
    }
    let (inside, outside) = match view.together {
        Some(_) => ("in all guests together", "in all bare slices together"),
        None => ("in the guest", "on bare metal"),
    };
    let worse = metric.less_is_better();
    format!(
        ": {} {unit} {inside}, {} {unit} {outside}{worse}",
        value(row.subject_value),
        value(row.reference_value),
        unit = metric.unit
    )
}
