//! One document of `bench`, reported alone: no plan, no host, and nothing invented in their place.

use std::collections::BTreeMap;
use std::path::Path;

use nearmetal_report::view::{
    ArmRole, ArmView, Fact, GuestCard, IncompleteArm, JobReport, LongText, QuickMode, REPORT_SCHEMA, RaceView,
};
use nearmetal_results::{
    Environment, Measurement, NetMatrixResults, PathTable, Results, Role, Turn, compare, last_tries,
};

use super::document::Document;
use super::error::{JobError, cut};
use super::{
    arms, assemble, by_nodes, compared, comparisons, costs, fresh, matrix, memory, metrics, net_matrix, paths,
    provenance, tiles, together, tuned,
};

impl Document {
    /// Its report. `origin` names the document in errors.
    ///
    /// # Errors
    /// A domain XML that cannot be read, or runs that give no statement.
    pub(crate) fn report(&self, origin: &Path) -> Result<JobReport, JobError> {
        let named = |error| match error {
            JobError::Xml { field, source, .. } => JobError::Xml { file: origin.display().to_string(), field, source },
            JobError::Comparison(error) => JobError::NotReadable {
                path: origin.to_owned(),
                problem: format!("has runs that cannot be compared: {}", cut(&error.to_string(), 300)),
            },
            other => other,
        };
        match self {
            Self::Measured(Measurement::Results(results)) => of_results(results),
            Self::Measured(Measurement::Disk(results)) => of_disk(results),
            Self::Measured(Measurement::Net(results)) => of_net(results),
            Self::Paths(table) => Ok(of_paths(table)),
        }
        .map_err(named)
    }

    /// What a terminal shows of it.
    ///
    /// # Errors
    /// Runs that give no statement.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        match self {
            Self::Measured(measurement) => text(measurement),
            Self::Paths(table) => Ok(paths::paths_text(table)),
        }
    }
}

/// A measurement for people.
///
/// # Errors
/// Runs that give no statement.
pub(crate) fn text(measurement: &Measurement) -> anyhow::Result<String> {
    Ok(match measurement {
        Measurement::Results(results) => tuned::text(results) + &tiles::text(results) + &compared::text(results)?,
        Measurement::Disk(results) => matrix::text(results),
        Measurement::Net(results) if net_matrix::was_raced(results) => net_matrix::text(results),
        Measurement::Net(results) => net_matrix::paths_text(results),
    })
}

/// A report of which only what every document says is known.
fn bare_report(title: String, guest: &str, created: &str, version: &str, environment: &Environment) -> JobReport {
    JobReport {
        schema: REPORT_SCHEMA.to_owned(),
        title,
        created: created.to_owned(),
        nearmetal_version: version.to_owned(),
        environment: assemble::described(environment),
        sample_data: false,
        quick: None,
        host: None,
        host_after: None,
        guest: GuestCard { name: guest.to_owned(), ..GuestCard::default() },
        slice_before: Default::default(),
        slice_after: Default::default(),
        plan: None,
        diff: Vec::new(),
        verification: Vec::new(),
        guest_view: Vec::new(),
        metrics: Vec::new(),
        headline_metric: None,
        arms: Vec::new(),
        incomplete: Vec::new(),
        comparisons: Vec::new(),
        race: None,
        together: None,
        by_nodes: None,
        tiles: None,
        tenants: Vec::new(),
        samples: Vec::new(),
        noise_floors: Vec::new(),
        costs: Vec::new(),
        lifts: Vec::new(),
        memory: None,
        papers: Vec::new(),
        provenance: Vec::new(),
        texts: Vec::new(),
        stages: Vec::new(),
        rolled_back: None,
        reproduce: Vec::new(),
        caveats: Vec::new(),
    }
}

fn of_results(results: &Results) -> Result<JobReport, JobError> {
    let tenants = || results.tenants.iter().map(|tenant| tenant.guest.as_str());
    // The tenants of a guest over several nodes are its parts.
    let spread = by_nodes::guest(results);
    let guests: Vec<&str> = spread.map_or_else(|| tenants().collect(), |guest| vec![guest]);
    let title = format!("{}, bench {}", guests.join(", "), results.experiment);
    let guest = spread.unwrap_or_else(|| results.guest());
    let report = bare_report(title, guest, &results.created, &results.version, &results.environment);
    let shown = metrics::shown_alone(results);
    let lab = report.is_lab();
    // Several guests at once are always measured in short samples, and decisions in clones that come and go; only a slice has
    // a longer way.
    let shortened = ["guests stay up between samples", "only one block size is measured in pairs"];
    let quick = results.quick && results.experiment == "slice";
    let mut caveats = results.caveats.clone();
    caveats.extend(assemble::failures(results));
    let (arms, compared) = (arms::views(results, None)?, compare(results)?);
    Ok(JobReport {
        quick: quick.then(|| QuickMode { shortened: shortened.map(str::to_owned).to_vec() }),
        metrics: shown.iter().map(|metric| metric.view.clone()).collect(),
        headline_metric: metrics::headline(results, &shown),
        by_nodes: by_nodes::view(results, &compared, &arms),
        arms,
        incomplete: arms::incomplete(results),
        comparisons: comparisons::views(results, &shown)?,
        tiles: tiles::view(results),
        together: together::view(results, &compared),
        tenants: together::tenants(results),
        samples: comparisons::samples(results, &shown),
        noise_floors: comparisons::floors(results, &shown),
        costs: costs::lines(results),
        lifts: costs::lifts(results),
        memory: memory::table(results, &assemble::unknown_host(), lab)?,
        race: tuned::view(results),
        provenance: provenance::facts_of(results),
        texts: provenance::texts_of(results),
        caveats,
        ..report
    })
}

/// The winner, what it was compared with, and bare metal in fresh rounds, shown as any comparison is.
fn measured_again(again: &Results, report: JobReport) -> Result<JobReport, JobError> {
    let shown = metrics::shown(again);
    let arm = |arm: &nearmetal_results::Arm| ArmView {
        id: arm.name.id.clone(),
        name: arm.name.title.clone(),
        description: arm.description.clone(),
        role: match arm.name.role {
            Role::Bare => ArmRole::Bare,
            Role::AsFound => ArmRole::AsFound,
            Role::Planned => ArmRole::Planned,
            Role::Other => ArmRole::Other,
        },
        configuration: if arm.region.is_empty() { Vec::new() } else { vec![format!("measures {}", arm.region)] },
        extra_pus: Vec::new(),
    };
    Ok(JobReport {
        metrics: shown.iter().map(|metric| metric.view.clone()).collect(),
        headline_metric: metrics::headline(again, &shown),
        arms: again.arms.iter().map(arm).collect(),
        comparisons: comparisons::views(again, &shown)?,
        samples: comparisons::samples(again, &shown),
        noise_floors: comparisons::floors(again, &shown),
        ..report
    })
}

fn of_disk(results: &nearmetal_results::MatrixResults) -> Result<JobReport, JobError> {
    let race = matrix::view(results);
    let title = matrix::title(results);
    let report = bare_report(title, &results.guest, &results.created, &results.version, &results.environment);
    let report = JobReport {
        incomplete: lost(&race, &results.turns),
        tenants: vec![together::slice_view(&results.guest, &results.slice, &[])],
        provenance: race_facts(results.seed, results.budget, results.turns.len(), &results.provenance, &report),
        texts: race_texts(&race, &results.turns, &results.provenance),
        caveats: results.caveats.clone(),
        race: Some(race),
        ..report
    };
    match fresh::of_disk(results) {
        Some(again) => {
            let report = measured_again(&again, report)?;
            Ok(JobReport { costs: costs::lines(&again), lifts: costs::lifts(&again), ..report })
        }
        None => Ok(report),
    }
}

fn of_net(results: &NetMatrixResults) -> Result<JobReport, JobError> {
    let race = net_matrix::view(results);
    let title = net_matrix::title(results);
    let report = bare_report(title, &results.guest, &results.created, &results.version, &results.environment);
    let report = JobReport {
        incomplete: lost(&race, &results.turns),
        tenants: vec![together::slice_view(&results.guest, &results.slice, &[])],
        costs: costs::lines_of_net(results),
        provenance: race_facts(results.seed, results.budget, results.turns.len(), &results.provenance, &report),
        texts: race_texts(&race, &results.turns, &results.provenance),
        caveats: results.caveats.clone(),
        race: Some(race),
        ..report
    };
    match fresh::of_net(results) {
        Some(again) => measured_again(&again, report),
        None => Ok(report),
    }
}

fn of_paths(table: &PathTable) -> JobReport {
    let race = paths::view(table);
    let title = format!("{} on {}: ways to a disk, read back", table.guest, table.ground.device);
    let report = bare_report(title, &table.guest, &table.created, env!("CARGO_PKG_VERSION"), &table.environment);
    let caveats =
        vec!["Nothing was raced: this says which ways take effect here, and not how fast they are".to_owned()];
    JobReport { race: Some(race), caveats, ..report }
}

/// Arms that lost samples of the race, by title.
fn lost(race: &RaceView, turns: &[Turn]) -> Vec<IncompleteArm> {
    let of = |(number, arm): (usize, &nearmetal_report::view::RaceArm)| {
        let own = turns.iter().filter(|turn| turn.arm == number);
        let last = last_tries(own, |turn: &Turn| (turn.round, turn.position));
        let samples: Vec<_> = last.into_iter().map(|turn| turn.outcome.failure()).collect();
        arms::lost(&arm.title, &samples)
    };
    race.arms.iter().enumerate().filter_map(of).collect()
}

fn race_facts(
    seed: u64,
    budget: u32,
    runs: usize,
    recorded: &BTreeMap<String, String>,
    report: &JobReport,
) -> Vec<Fact> {
    let fact = |key: &str, value: String| Fact { key: key.to_owned(), value: Some(value) };
    let mut facts = vec![fact("Measured", format!("{} by nearmetal {}", report.created, report.nearmetal_version))];
    if runs > 0 {
        facts.push(fact("Runs of the race", runs.to_string()));
        facts.push(fact("Seconds it was given", budget.to_string()));
        facts.push(fact("Seed", seed.to_string()));
        facts.push(fact("Order of runs", "random within each round, drawn from the seed".to_owned()));
    }
    facts.extend(provenance::recorded_facts(recorded));
    facts
}

fn race_texts(race: &RaceView, turns: &[Turn], recorded: &BTreeMap<String, String>) -> Vec<LongText> {
    let line = |turn: &Turn| {
        let title = race.arms.get(turn.arm).map_or("unknown", |arm| arm.title.as_str());
        let end = match &turn.outcome {
            nearmetal_results::Outcome::Measured { .. } => String::new(),
            nearmetal_results::Outcome::Failed { why } => format!("  failed: {why}"),
        };
        format!("{}  round {:<3} {title}{end}", turn.started, turn.round)
    };
    let order: Vec<String> = turns.iter().map(line).collect();
    let order = (!order.is_empty()).then(|| LongText { title: "Order of runs".to_owned(), text: order.join("\n") });
    order.into_iter().chain(provenance::recorded_texts(recorded)).collect()
}
