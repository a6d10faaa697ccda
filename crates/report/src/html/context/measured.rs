//! Comparisons, samples and memory, as texts.

use serde::Serialize;

use crate::text::{UNKNOWN, interval, percent, shown, value};
use crate::view::{ArmRole, ArmView, ComparisonView, JobReport, LiftLine, MemorySide, SliceRole};

#[derive(Serialize)]
pub(super) struct Measured {
    /// Whether there is anything to show; a job says that there is not.
    shown: bool,
    heading: &'static str,
    how: &'static str,
    arms: Vec<Arm>,
    groups: Vec<Group>,
    /// The smallest and the largest confidence agree in almost every report; then it is said once.
    method: String,
    samples: Vec<Series>,
    costs: Vec<CostRow>,
    lifts: Vec<LiftLine>,
    memory: Option<Memory>,
}

/// What one arm spent on each request, in one group.
#[derive(Serialize)]
struct CostRow {
    workload: String,
    arm: String,
    tone: &'static str,
    group: String,
    figures: String,
}

#[derive(Serialize)]
struct Arm {
    name: String,
    description: String,
    tone: &'static str,
    configuration: Vec<String>,
    extra: String,
}

/// Comparisons of one metric.
#[derive(Serialize)]
struct Group {
    label: String,
    unit: String,
    less_is_better: bool,
    noise: String,
    single: bool,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    subject: String,
    reference: String,
    tone: &'static str,
    subject_value: String,
    reference_value: String,
    ratio: String,
    interval: String,
    bootstrap: String,
    n: u32,
    verdict: String,
    single_shot: bool,
}

#[derive(Serialize)]
struct Series {
    arm: String,
    metric: String,
    values: String,
}

#[derive(Serialize)]
struct Memory {
    label: Option<String>,
    rows: Vec<[String; 8]>,
}

pub(super) fn measured(view: &JobReport) -> Measured {
    let (heading, how) = words(view);
    Measured {
        shown: view.plan.is_some() || !(view.comparisons.is_empty() && view.costs.is_empty() && view.arms.is_empty()),
        heading,
        how,
        arms: view.arms.iter().map(arm).collect(),
        groups: groups(view),
        method: method(view),
        samples: samples(view),
        costs: view.costs.iter().map(|line| cost(view, line)).collect(),
        lifts: view.lifts.clone(),
        memory: memory(view),
    }
}

/// The section's heading, and how was measured.
fn words(view: &JobReport) -> (&'static str, &'static str) {
    if view.by_nodes.is_some() {
        let heading = if view.comparisons.is_empty() { "The modes" } else { "Against native" };
        return (
            heading,
            "The same load in every mode at each number of nodes, in turns. What a mode pins and binds is said below.",
        );
    }
    if view.tiles.is_some() {
        return (
            "The ways",
            "The same tiles in every way, asked at the same moments. What their guests' threads are pinned to is said below.",
        );
    }
    match (&view.race, &view.together) {
        (Some(_), _) => (
            "Measured again",
            "The winner, what it was compared with, and bare metal on the same slice, in fresh rounds and in turns.",
        ),
        (None, Some(_)) => (
            "Against bare metal",
            "All guests at once and their bare slices at once: same PUs, same memory nodes, same program, in turns.",
        ),
        (None, None) => (
            "Against bare metal",
            "Guest and bare metal on the same slice: same PUs, same memory node, same drive, same program, in turns.",
        ),
    }
}

/// How many figures of a group are shown; what is smaller is in results.json.
const COSTS_SHOWN: usize = 6;

fn cost(view: &JobReport, line: &crate::view::CostLine) -> CostRow {
    let figure = |figure: &crate::view::CostFigure| {
        let space = if figure.unit.is_empty() { "" } else { " " };
        format!("{} {:.2}{space}{}", figure.name, figure.value, figure.unit)
    };
    let more = line.figures.len().saturating_sub(COSTS_SHOWN);
    let mut figures: Vec<String> = line.figures.iter().take(COSTS_SHOWN).map(figure).collect();
    figures.extend((more > 0).then(|| format!("{more} more")));
    CostRow {
        workload: line.workload.clone(),
        arm: view.arm(&line.arm).map_or(line.arm.clone(), |arm| arm.name.clone()),
        tone: tone(view.arm(&line.arm).map(|arm| arm.role)),
        group: line.group.clone(),
        figures: figures.join(", "),
    }
}

pub(super) fn tone(role: Option<ArmRole>) -> &'static str {
    match role {
        Some(ArmRole::Planned) => "planned",
        Some(ArmRole::AsFound) => "found",
        Some(ArmRole::Bare) => "bare",
        Some(ArmRole::Other) | None => "other",
    }
}

fn arm(arm: &ArmView) -> Arm {
    let extra = |extra: &crate::view::ExtraPus| {
        let name = match extra.role {
            SliceRole::Vcpu => "vCPUs",
            SliceRole::Emulator => "emulator thread",
            SliceRole::Iothread => "iothread",
            SliceRole::Vhost => "vhost worker",
        };
        format!("{name} on PU {}", extra.cpus)
    };
    Arm {
        name: arm.name.clone(),
        description: arm.description.clone(),
        tone: tone(Some(arm.role)),
        configuration: arm.configuration.clone(),
        extra: arm.extra_pus.iter().map(extra).collect::<Vec<_>>().join(", "),
    }
}

/// By metric, the headline's first, pairs before single shots.
fn groups(view: &JobReport) -> Vec<Group> {
    let mut metrics: Vec<&str> = Vec::new();
    for row in &view.comparisons {
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
    }
    let rows = |metric: &str| view.comparisons.iter().filter(|row| row.metric == metric).collect::<Vec<_>>();
    let single = |metric: &str| rows(metric).iter().all(|row| row.single_shot);
    metrics.sort_by_key(|metric| (view.headline_metric.as_deref() != Some(*metric), single(metric)));
    metrics
        .into_iter()
        .map(|id| {
            let metric = view.metric(id);
            Group {
                label: metric.map_or(id.to_owned(), |metric| metric.label.clone()),
                unit: metric.map_or(UNKNOWN.to_owned(), |metric| metric.unit.clone()),
                less_is_better: metric.is_some_and(|metric| !metric.higher_is_better),
                noise: noise(view, id),
                single: single(id),
                rows: rows(id).into_iter().map(|comparison| row(view, comparison)).collect(),
            }
        })
        .collect()
}

fn noise(view: &JobReport, metric: &str) -> String {
    match view.noise_floor(metric) {
        None => "noise floor: not measured".to_owned(),
        Some(floor) => {
            let ends = floor.bounds.map_or(UNKNOWN.to_owned(), interval);
            format!("noise floor (two equal arms, {} A/A pairs): {ends}", floor.n)
        }
    }
}

fn row(view: &JobReport, row: &ComparisonView) -> Row {
    let name = |id: &str| view.arm(id).map_or(id.to_owned(), |arm| arm.name.clone());
    let shown = shown(row.ratio, row.interval);
    let (none, no_bootstrap) = if row.single_shot { ("single shot", "") } else { (UNKNOWN, UNKNOWN) };
    Row {
        subject: name(&row.subject),
        reference: name(&row.reference),
        tone: tone(view.arm(&row.subject).map(|arm| arm.role)),
        subject_value: value(row.subject_value),
        reference_value: value(row.reference_value),
        ratio: shown.ratio,
        interval: shown.interval.unwrap_or_else(|| none.to_owned()),
        bootstrap: row.bootstrap.map_or_else(|| no_bootstrap.to_owned(), interval),
        n: row.n,
        verdict: row.verdict.clone(),
        single_shot: row.single_shot,
    }
}

/// How the intervals were made: one line for each way, at its confidence.
fn method(view: &JobReport) -> String {
    let mut ways: Vec<String> = Vec::new();
    for row in view.comparisons.iter().filter(|row| row.interval.is_some()) {
        let way = format!("{} at {}", row.method, percent(row.confidence));
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways.join("; ")
}

fn samples(view: &JobReport) -> Vec<Series> {
    let series = |series: &crate::view::SampleSeries| {
        let metric = view.metric(&series.metric).map_or(series.metric.as_str(), |metric| metric.label.as_str());
        let values: Vec<_> = series.values.iter().map(|number| value(Some(*number))).collect();
        Series {
            arm: view.arm(&series.arm).map_or(series.arm.clone(), |arm| arm.name.clone()),
            metric: format!("{metric}, {}", series.unit),
            values: values.join("  "),
        }
    };
    view.samples.iter().map(series).collect()
}

fn memory(view: &JobReport) -> Option<Memory> {
    let memory = view.memory.as_ref()?;
    let row = |row: &crate::view::MemoryRow| {
        let side = match row.side {
            MemorySide::Bare => "bare metal",
            MemorySide::Guest => "guest",
        };
        [
            side.to_owned(),
            row.pattern.clone(),
            row.page.to_string(),
            row.backing.map_or("–".to_owned(), |size| size.to_string()),
            value(row.median_ns),
            value(row.p99_ns),
            value(row.minimum_ns),
            value(row.bandwidth_mb_s),
        ]
    };
    Some(Memory { label: memory.label.clone(), rows: memory.rows.iter().map(row).collect() })
}
