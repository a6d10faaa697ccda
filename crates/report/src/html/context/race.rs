//! A race and what several guests did at once, as texts.

use serde::Serialize;

use crate::text::{UNKNOWN, capital, count, duration, value};
use crate::view::{
    AdviceKind, CeilingRow, EffectRow, GuestShare, JobReport, LeftOutRow, RaceReadBack, RaceView, Rate, RatioView,
    TenantView,
};

#[derive(Serialize)]
pub(super) struct RacePage {
    ways: String,
    load: Option<String>,
    raced: bool,
    reference: String,
    statement: String,
    to_bare: bool,
    rows: Vec<RaceRow>,
    advice: Option<Advice>,
    left_out: Vec<LeftOutRow>,
    ceiling: Vec<[String; 3]>,
    effects: Vec<[String; 4]>,
}

#[derive(Serialize)]
struct RaceRow {
    title: String,
    tone: &'static str,
    sign: &'static str,
    evidence: Vec<String>,
    median: String,
    ratio: String,
    interval: String,
    bare: String,
    rounds: usize,
    note: String,
}

#[derive(Serialize)]
struct Advice {
    tone: &'static str,
    words: String,
    because: Option<String>,
    definition: Option<String>,
    further: Vec<String>,
}

pub(super) fn race(view: &JobReport) -> Option<RacePage> {
    let race = view.race.as_ref()?;
    let advice = race.advice.as_ref().map(|advice| Advice {
        tone: match advice.kind {
            AdviceKind::Use | AdviceKind::Reference => "good",
            AdviceKind::NoneFaster | AdviceKind::Default => "",
            AdviceKind::Unknown => "unsure",
        },
        words: capital(&race.recommendation(advice)),
        because: race.because(advice).map(|because| format!("Because {because}.")),
        definition: advice.definition.clone(),
        further: advice.further.iter().map(|line| capital(line)).collect(),
    });
    Some(RacePage {
        ways: capital(&race.ways),
        load: race.load.clone(),
        raced: race.was_raced(),
        reference: race.reference_name.clone(),
        statement: capital(&race.statement()),
        to_bare: race.arms.iter().any(|arm| arm.to_bare.is_some()),
        rows: race.ordered().into_iter().map(|number| row(race, number)).collect(),
        advice,
        left_out: race.left_out.clone(),
        ceiling: race.ceiling.iter().map(ceiling).collect(),
        effects: race.effects.iter().map(effect).collect(),
    })
}

fn row(race: &RaceView, number: usize) -> RaceRow {
    let arm = &race.arms[number];
    let (sign, evidence) = match &arm.read_back {
        RaceReadBack::Shown { evidence } => ("✓", evidence.clone()),
        RaceReadBack::NotShown { .. } => ("✗", Vec::new()),
    };
    let shown = arm.to_reference.map(|ratio| ratio.shown());
    let is_reference = number == race.reference && race.was_raced();
    RaceRow {
        title: arm.title.clone(),
        tone: match (race.winner == Some(number), is_reference) {
            (true, _) => "planned",
            (_, true) => "found",
            _ => "other",
        },
        sign,
        evidence,
        median: rate(arm.median.as_ref()),
        ratio: match &shown {
            _ if is_reference => "1".to_owned(),
            Some(shown) => shown.ratio.clone(),
            None => "not measured".to_owned(),
        },
        interval: shown.and_then(|shown| shown.interval).filter(|_| !is_reference).unwrap_or_default(),
        bare: arm.to_bare.map_or_else(|| "–".to_owned(), |ratio| ratio.to_string()),
        rounds: arm.rounds,
        note: race.note(number),
    }
}

fn rate(rate: Option<&Rate>) -> String {
    rate.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{} {}", value(Some(rate.value)), rate.unit))
}

fn effect(row: &EffectRow) -> [String; 4] {
    let shown = row.ratio.shown();
    [row.what.clone(), shown.ratio, shown.interval.unwrap_or_default(), row.confounded.clone()]
}

fn ceiling(row: &CeilingRow) -> [String; 3] {
    let values = |values: &[f64]| {
        let each: Vec<String> = values.iter().map(|number| value(Some(*number))).collect();
        if each.is_empty() { "not measured".to_owned() } else { format!("{} {}", each.join(", "), row.unit) }
    };
    [row.test.clone(), values(&row.unconfined), values(&row.confined)]
}

#[derive(Serialize)]
pub(super) struct TogetherPage {
    load: String,
    unit: String,
    rows: Vec<CountCells>,
    notes: Vec<String>,
}

/// All guests of one count, or one of them.
#[derive(Serialize)]
struct CountCells {
    name: String,
    all: bool,
    guests: String,
    bare: String,
    ratio: String,
    interval: String,
    pairs: String,
    gain: String,
}

pub(super) fn together(view: &JobReport) -> Option<TogetherPage> {
    let together = view.together.as_ref()?;
    let mut rows = Vec::new();
    for row in &together.counts {
        let times = |gain: Option<f64>| gain.map_or_else(|| UNKNOWN.to_owned(), |gain| format!("{gain:.2}"));
        let gain = match (row.count, row.guests_gain, row.bare_gain) {
            (1, ..) | (_, None, None) => String::new(),
            (_, guests, bare) => format!("{} and {}", times(guests), times(bare)),
        };
        let bound = if row.peer_bound == Some(true) { ", peer-bound" } else { "" };
        let name = if row.count == 1 { "1 guest alone".to_owned() } else { format!("{} guests at once", row.count) };
        rows.push(cells(format!("{name}{bound}"), true, row.guests_rate, row.bare_rate, row.ratio, gain));
        let share = |share: &GuestShare| {
            cells(share.guest.clone(), false, share.guest_rate, share.bare_rate, share.ratio, String::new())
        };
        rows.extend(row.shares.iter().filter(|_| row.count > 1).map(share));
    }
    let mut notes = Vec::new();
    if let Some(ceiling) = together.ceiling {
        notes.push(format!(
            "The ceiling: {} {} with all at once on all PUs, without a guest.",
            value(Some(ceiling)),
            together.unit
        ));
    }
    if let (Some(least), Some(limit)) = (together.least_overlap, together.overlap_limit) {
        let clocks =
            together.clocks_within.map_or_else(String::new, |clocks| format!("; clocks known to {clocks:.1} ms"));
        notes.push(format!(
            "Side by side: {:.0} % or more of every sample that counts; {:.0} % is the limit{clocks}.",
            least * 100.0,
            limit * 100.0
        ));
    }
    Some(TogetherPage { load: together.load.clone(), unit: together.unit.clone(), rows, notes })
}

fn cells(
    name: String,
    all: bool,
    guests: Option<f64>,
    bare: Option<f64>,
    ratio: Option<RatioView>,
    gain: String,
) -> CountCells {
    let shown = ratio.map(|ratio| ratio.shown());
    CountCells {
        name,
        all,
        guests: value(guests),
        bare: value(bare),
        ratio: shown.as_ref().map_or_else(|| UNKNOWN.to_owned(), |shown| shown.ratio.clone()),
        interval: shown.and_then(|shown| shown.interval).unwrap_or_else(|| "fewer than two pairs".to_owned()),
        pairs: ratio.map_or_else(String::new, |ratio| ratio.n.to_string()),
        gain,
    }
}

/// One guest's slice.
#[derive(Serialize)]
pub(super) struct TenantCells {
    guest: String,
    cpus: String,
    memory: String,
    on_top: String,
    device: String,
    placement: Vec<String>,
}

pub(super) fn tenants(view: &JobReport) -> Vec<TenantCells> {
    let cells = |tenant: &TenantView| TenantCells {
        guest: tenant.guest.clone(),
        cpus: tenant.cpus.to_string(),
        memory: match (tenant.nodes.is_empty(), tenant.page_size) {
            (true, _) => UNKNOWN.to_owned(),
            (_, Some(size)) => format!("node {}, {size} pages", tenant.nodes),
            (_, None) => format!("node {}, whatever pages the kernel gives", tenant.nodes),
        },
        on_top: if tenant.cpus_on_top.is_empty() { "none".to_owned() } else { tenant.cpus_on_top.to_string() },
        device: match tenant.region {
            Some(region) => format!("{}, {region} for each arm", tenant.device),
            None => tenant.device.clone(),
        },
        placement: tenant.placement.clone(),
    };
    view.tenants.iter().map(cells).collect()
}

/// What a measurement alone says of itself in the strip: name, value, tone.
pub(super) fn strip(view: &JobReport) -> Vec<(&'static str, String, &'static str)> {
    let mut strip = Vec::new();
    if let Some(race) = &view.race {
        let (shown, all) = (race.took_effect(), race.arms.len());
        let (sign, tone) = if shown == all { ("✓", "good") } else { ("✗", "bad") };
        strip.push(("Read back", format!("{sign} {shown} of {} took effect", count(all, "way")), tone));
        strip.push((if race.was_raced() { "Whole race" } else { "Took" }, duration(race.took), ""));
    } else {
        let lost: u32 = view.incomplete.iter().map(|arm| arm.failed).sum();
        let (value, tone) = match lost {
            0 => ("✓ none lost".to_owned(), "good"),
            lost => (format!("✗ {lost} lost"), "bad"),
        };
        strip.push(("Samples", value, tone));
    }
    if let Some(least) = view.together.as_ref().and_then(|together| together.least_overlap) {
        strip.push(("Side by side", format!("{:.0} % or more", least * 100.0), ""));
    }
    strip
}
