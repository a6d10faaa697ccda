//! The page's data, every figure already a text: the template chooses places, not formats.

mod by_nodes;
mod measured;
mod race;
mod tiles;

use serde::Serialize;

use crate::headline::{Piece, headline, warnings};
use crate::papers::method;
use crate::papers::of_unit;
use crate::slice_text::{SliceRow, slice_rows};
use crate::svg::is_wide;
use crate::text::{LAB_WORDS, UNKNOWN, count, duration, grouped};
use crate::view::{CheckOutcome, CheckRow, DiffKind, Environment, JobReport, LongText, PaperFigure, ReasonRow};

#[derive(Serialize)]
pub(super) struct Page {
    title: String,
    created: String,
    version: String,
    lab: Option<Lab>,
    sample_data: bool,
    warnings: Vec<String>,
    headline: Vec<Piece>,
    below: Vec<String>,
    status: Vec<Status>,
    quick: Vec<String>,
    /// Whether a plan is behind it; else it is a measurement alone.
    job: bool,
    guest: String,
    disks: Vec<Disk>,
    wide: bool,
    slice: Vec<SliceRow>,
    reasons: Vec<ReasonRow>,
    pools: Vec<String>,
    diff: Vec<Line>,
    checks: Checks,
    guest_checks: Checks,
    race: Option<race::RacePage>,
    together: Option<race::TogetherPage>,
    by_nodes: Option<by_nodes::ByNodesPage>,
    tiles: Option<tiles::TilesPage>,
    tenants: Vec<race::TenantCells>,
    measured: measured::Measured,
    papers: Vec<Paper>,
    caveats: Vec<String>,
    rollback: Option<Checks>,
    facts: Vec<[String; 2]>,
    texts: Vec<LongText>,
    stages: Vec<Stage>,
    total: Option<String>,
    reproduce: Vec<String>,
}

#[derive(Serialize)]
struct Lab {
    words: &'static str,
    machine: String,
    note: String,
}

/// One fact of the strip under the headline.
#[derive(Serialize)]
struct Status {
    name: &'static str,
    value: String,
    /// `good`, `bad`, `unsure` or nothing.
    tone: &'static str,
}

#[derive(Serialize)]
struct Disk {
    target: String,
    source: String,
    as_found: String,
    planned: String,
}

#[derive(Serialize)]
struct Line {
    kind: &'static str,
    sign: char,
    text: String,
}

#[derive(Serialize, Default)]
struct Checks {
    summary: String,
    tone: &'static str,
    rows: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    subject: String,
    planned: String,
    found: String,
    detail: Option<String>,
    tone: &'static str,
    sign: &'static str,
    word: &'static str,
}

#[derive(Serialize)]
pub(super) struct Paper {
    name: String,
    method: Option<String>,
    figures: Vec<Published>,
}

#[derive(Serialize)]
struct Published {
    what: String,
    configuration: String,
    request: Option<String>,
    value: String,
    section: String,
    ours: Option<[String; 2]>,
    compares: Option<String>,
}

#[derive(Serialize)]
struct Stage {
    name: String,
    seconds: String,
    /// Share of the longest stage, percent.
    share: f64,
}

/// Prepares the page.
pub(super) fn page(view: &JobReport) -> Page {
    let lab = match &view.environment {
        Environment::Lab { machine, note } => {
            Some(Lab { words: LAB_WORDS, machine: machine.clone(), note: note.clone() })
        }
        Environment::Silicon => None,
    };
    let headline = headline(view);
    let guest = &view.guest;
    Page {
        title: view.title.clone(),
        created: view.created.clone(),
        version: view.nearmetal_version.clone(),
        lab,
        sample_data: view.sample_data,
        warnings: warnings(view),
        headline: headline.pieces,
        below: headline.below,
        status: status(view),
        quick: view.quick.as_ref().map(|quick| quick.shortened.clone()).unwrap_or_default(),
        job: view.plan.is_some(),
        guest: match (guest.vcpus, guest.memory) {
            (Some(vcpus), Some(memory)) => {
                format!("{} ({}, {memory} of memory)", guest.name, count(vcpus as usize, "vCPU"))
            }
            _ => guest.name.clone(),
        },
        disks: guest.disks.iter().map(disk).collect(),
        wide: is_wide(view),
        slice: slice_rows(view),
        reasons: view.plan.as_ref().map(|plan| plan.reasons.clone()).unwrap_or_default(),
        pools: view.plan.iter().flat_map(|plan| &plan.pools).map(pool).collect(),
        diff: view.diff.iter().map(diff_line).collect(),
        checks: checks(&view.verification),
        guest_checks: checks(&view.guest_view),
        race: race::race(view),
        together: race::together(view),
        by_nodes: by_nodes::by_nodes(view),
        tiles: tiles::tiles(view),
        tenants: race::tenants(view),
        measured: measured::measured(view),
        papers: papers(&view.papers),
        caveats: view.caveats.clone(),
        rollback: view.rolled_back.as_ref().map(rollback),
        facts: view
            .provenance
            .iter()
            .map(|fact| [fact.key.clone(), fact.value.clone().unwrap_or_else(|| UNKNOWN.to_owned())])
            .collect(),
        texts: view.texts.clone(),
        stages: stages(view),
        total: total(view),
        reproduce: view.reproduce.clone(),
    }
}

fn status(view: &JobReport) -> Vec<Status> {
    let mut strip = Vec::new();
    let place = match &view.environment {
        Environment::Lab { machine, .. } => format!("{LAB_WORDS} ({machine})"),
        Environment::Silicon => "silicon".to_owned(),
    };
    strip.push(Status { name: "Measured on", value: place, tone: if view.is_lab() { "unsure" } else { "" } });
    if view.plan.is_none() {
        strip.extend(race::strip(view).into_iter().map(|(name, value, tone)| Status { name, value, tone }));
        return strip;
    }
    let counts = view.checks();
    let all = counts.all();
    let (value, tone) = match view.verified() {
        None => ("nothing read back".to_owned(), "unsure"),
        Some(true) => (format!("✓ {all} of {all} as planned"), "good"),
        Some(false) if counts.mismatch > 0 => (format!("✗ {} of {all} differ", counts.mismatch), "bad"),
        Some(false) => (format!("? {} of {all} cannot be told", counts.cannot_tell), "unsure"),
    };
    strip.push(Status { name: "Read back", value, tone });
    let (value, tone) = match &view.rolled_back {
        None => ("not asked for".to_owned(), ""),
        Some(rollback) if rollback.ok => ("✓ former state restored".to_owned(), "good"),
        Some(rollback) if rollback.is_partly() => ("? rolled back, and not all is as before".to_owned(), "unsure"),
        Some(_) => ("✗ former state not restored".to_owned(), "bad"),
    };
    strip.push(Status { name: "Rolled back", value, tone });
    if let Some(total) = total(view) {
        strip.push(Status { name: "Whole job", value: total, tone: "" });
    }
    strip
}

fn disk(disk: &crate::view::DiskCard) -> Disk {
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let mut source = disk.source.clone().unwrap_or_else(|| "no host path".to_owned());
    if let Some(size) = disk.size {
        source.push_str(&format!(", {size}"));
    }
    Disk {
        target: disk.target.clone(),
        source,
        as_found: or_unknown(&disk.as_found),
        planned: disk.planned.clone().unwrap_or_else(|| "left as it is".to_owned()),
    }
}

fn pool(pool: &crate::view::PoolRow) -> String {
    let pages = |number: u64| grouped(number as f64);
    format!("node {}: {} to {} pages of {}", pool.node, pages(pool.before), pages(pool.after), pool.size)
}

fn diff_line(line: &crate::view::DiffLine) -> Line {
    let (kind, sign) = match line.kind {
        DiffKind::Context => ("same", ' '),
        DiffKind::Removed => ("removed", '−'),
        DiffKind::Added => ("added", '+'),
        DiffKind::Gap => ("gap", '⋯'),
    };
    Line { kind, sign, text: line.text.clone() }
}

fn checks(rows: &[CheckRow]) -> Checks {
    let held = rows.iter().filter(|row| row.outcome == CheckOutcome::Ok).count();
    let tone = match rows.iter().any(|row| row.outcome == CheckOutcome::Mismatch) {
        true => "bad",
        false if held == rows.len() => "good",
        false => "unsure",
    };
    Checks { summary: format!("{held} of {} as planned", rows.len()), tone, rows: rows.iter().map(check).collect() }
}

fn check(row: &CheckRow) -> Check {
    let (tone, sign, word) = match row.outcome {
        CheckOutcome::Ok => ("good", "✓", "as planned"),
        CheckOutcome::Mismatch => ("bad", "✗", "differs"),
        CheckOutcome::CannotTell => ("unsure", "?", "cannot tell"),
    };
    Check {
        subject: row.subject.clone(),
        planned: row.planned.clone(),
        found: row.found.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        detail: row.detail.clone(),
        tone,
        sign,
        word,
    }
}

fn rollback(rollback: &crate::view::RollbackView) -> Checks {
    let mut checks = checks(&rollback.rows);
    let (words, tone) = if rollback.ok {
        ("The former state was found again", "good")
    } else {
        ("The former state was not found again", "bad")
    };
    let held = rollback.rows.iter().filter(|row| row.outcome == CheckOutcome::Ok).count();
    checks.summary = format!("{words}: {held} of {} as before", rollback.rows.len());
    checks.tone = tone;
    for row in &mut checks.rows {
        if row.tone == "good" {
            row.word = "as before";
        }
    }
    checks
}

/// Figures in groups of one paper, in the order given.
pub(super) fn papers(figures: &[PaperFigure]) -> Vec<Paper> {
    let mut papers: Vec<Paper> = Vec::new();
    for figure in figures {
        let published = Published {
            what: figure.what.clone(),
            configuration: figure.configuration.clone(),
            request: figure.request_size.map(|size| size.to_string()),
            value: of_unit(&figure.value, &figure.unit),
            section: figure.section.clone(),
            ours: figure.ours.as_ref().map(|ours| [ours.value.clone(), ours.note.clone()]),
            compares: figure.compares.clone(),
        };
        match papers.iter_mut().find(|paper| paper.name == figure.paper) {
            Some(paper) => paper.figures.push(published),
            None => papers.push(Paper {
                name: figure.paper.clone(),
                method: method(&figure.paper),
                figures: vec![published],
            }),
        }
    }
    papers
}

fn stages(view: &JobReport) -> Vec<Stage> {
    let known = |seconds: f64| if seconds.is_finite() && seconds > 0.0 { seconds } else { 0.0 };
    let longest = view.stages.iter().map(|stage| known(stage.seconds)).fold(0.0, f64::max);
    let stage = |stage: &crate::view::StageSeconds| Stage {
        name: stage.name.clone(),
        seconds: duration(stage.seconds),
        share: if longest > 0.0 { (known(stage.seconds) / longest * 1000.0).round() / 10.0 } else { 0.0 },
    };
    view.stages.iter().map(stage).collect()
}

/// The sum of the stages; `None` if there are none or one was not timed.
fn total(view: &JobReport) -> Option<String> {
    let sum: f64 = view.stages.iter().map(|stage| stage.seconds).sum();
    (!view.stages.is_empty() && sum.is_finite()).then(|| duration(sum))
}
