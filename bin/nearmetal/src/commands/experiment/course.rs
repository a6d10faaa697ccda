//! How an experiment goes: its steps one after the other, each written down as it begins and ends, and the pages.

use std::path::{Path, PathBuf};
use std::time::Instant;

use nearmetal_change::timestamp;
use nearmetal_host::files;
use nearmetal_measure::{Experiment, Measurement, State};
use nearmetal_report::html_page;
use nearmetal_report::papers::{Words, of_experiment};
use nearmetal_report::view::{EXPERIMENT_SCHEMA, ExperimentView, StepState, StepView, claims};

use super::steps::{Step, Which};
use crate::commands::bench::asked;
use crate::commands::bench::keep::lost;
use crate::commands::bench::measuring::{perform, written};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::experiment;
use crate::job::Document;
use crate::printer::Printer;
use crate::results_store;

/// The experiment in this directory as it was left, or a new one.
///
/// # Errors
/// [`WrongUse`] where the directory holds another experiment, or the same of other VMs or with other flags.
pub(super) fn begun(directory: &Path, words: Words, which: &Which, steps: &[Step]) -> anyhow::Result<ExperimentView> {
    let fresh = new(words, which, steps, directory);
    let other = |what: String| {
        let advice = "name another directory with -o, or remove this one";
        WrongUse(format!("`{}` holds {what}: {advice}", directory.display()))
    };
    let Some(found) = experiment::load(directory).map_err(other)? else {
        files::create_dir_all(directory)?;
        return Ok(fresh);
    };
    let commands = |view: &ExperimentView| view.steps.iter().map(|step| step.command.clone()).collect::<Vec<_>>();
    if found.name != fresh.name || commands(&found) != commands(&fresh) {
        return Err(
            other(format!("the experiment {} with the commands {}", found.name, commands(&found).join("; "))).into()
        );
    }
    Ok(ExperimentView { steps: found.steps, created: found.created, environment: found.environment, ..fresh })
}

fn new(words: Words, which: &Which, steps: &[Step], directory: &Path) -> ExperimentView {
    let step = |step: &Step| StepView {
        id: step.id.to_owned(),
        title: step.title.to_owned(),
        command: format!("nearmetal bench {}", step.words.join(" ")),
        begun: None,
        state: StepState::Waiting,
        seconds: None,
        document: None,
        page: None,
        claims: Vec::new(),
    };
    let Words { name, question, did, does, differs, conclude, .. } = words;
    ExperimentView {
        schema: EXPERIMENT_SCHEMA.to_owned(),
        figures: of_experiment(&name, &[]),
        name,
        question,
        created: timestamp::now(),
        nearmetal_version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: None,
        guests: which.guests(),
        quick: which.common().quick,
        did,
        does,
        differs,
        conclude,
        command: again(directory),
        steps: steps.iter().map(step).collect(),
    }
}

/// The command as it was given, with the directory named.
fn again(directory: &Path) -> String {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "-o" || word.starts_with("--output")) {
        words.extend(["-o".to_owned(), directory.display().to_string()]);
    }
    format!("nearmetal {}", words.join(" "))
}

/// The course of one experiment.
pub(super) struct Course {
    directory: PathBuf,
    /// What is known so far.
    pub(super) view: ExperimentView,
}

impl Course {
    /// A course in this directory.
    pub(super) fn new(directory: PathBuf, view: ExperimentView) -> Self {
        Self { directory, view }
    }

    /// Runs the steps that are not done, and makes the page.
    ///
    /// # Errors
    /// The directory cannot be written. What a step gives is kept in the view, its failure too.
    pub(super) fn run(&mut self, steps: &[Step], printer: &mut Printer) -> anyhow::Result<()> {
        for (number, step) in steps.iter().enumerate() {
            let of = format!("step {} of {}", number + 1, steps.len());
            if matches!(self.view.steps[number].state, StepState::Done | StepState::Incomplete { .. }) {
                printer.say(&format!("== {of}, {}: done before", step.title));
                continue;
            }
            printer.say(&format!("== {of}, {}: nearmetal bench {}", step.title, step.words.join(" ")));
            self.step(number, step, printer)?;
            experiment::keep(&self.directory, &self.view)?;
        }
        experiment::render(&self.directory, &mut self.view)
    }

    fn step(&mut self, number: usize, step: &Step, printer: &mut Printer) -> anyhow::Result<()> {
        let start = Instant::now();
        let begun_before = self.view.steps[number].begun.clone();
        self.view.steps[number].begun.get_or_insert_with(timestamp::now);
        experiment::keep(&self.directory, &self.view)?;
        let measured = asked(&step.words).and_then(|experiment| measured(experiment, begun_before, printer));
        let ended = measured.and_then(|measurement| self.written(number, step, measurement));
        let view = &mut self.view.steps[number];
        view.seconds = Some(start.elapsed().as_secs_f64());
        if let Err(error) = ended {
            let why = format!("{error:#}");
            printer.important(&format!("{}: {why}", step.title));
            view.state = StepState::Failed { why };
            // It begins anew the next time.
            view.begun = None;
        }
        Ok(())
    }

    /// Writes a step's document and page.
    fn written(&mut self, number: usize, step: &Step, measurement: Measurement) -> anyhow::Result<()> {
        let (document, page) = (format!("{}.json", step.id), format!("{}.html", step.id));
        let path = self.directory.join(&document);
        match &measurement {
            Measurement::Results(results) => written(results, Some(&path))?,
            Measurement::Disk(results) => written(results, Some(&path))?,
            Measurement::Net(results) => written(results, Some(&path))?,
        };
        let lost = lost(&measurement);
        let report = Document::Measured(measurement).report(&path)?;
        files::write_atomic(&self.directory.join(&page), html_page(&report)?)?;
        self.view.environment = Some(report.environment.clone());
        let view = &mut self.view.steps[number];
        view.state = if lost.is_empty() { StepState::Done } else { StepState::Incomplete { why: lost.join("; ") } };
        (view.document, view.page, view.claims) = (Some(document), Some(page), claims(&report));
        Ok(())
    }

    /// Says where the page is, and how it ended: a step that failed fails the experiment.
    pub(super) fn conclude(&self, printer: &mut Printer) -> ExitStatus {
        printer.say(&format!("Report: {}", self.directory.join(experiment::PAGE).display()));
        let failed = self.view.steps.iter().filter(|step| matches!(step.state, StepState::Failed { .. }));
        let failed: Vec<&str> = failed.map(|step| step.title.as_str()).collect();
        if !failed.is_empty() {
            printer.important(&format!("failed: {}; the same command runs them again", failed.join(", ")));
            return ExitStatus::Refused;
        }
        let incomplete = |step: &StepView| matches!(step.state, StepState::Incomplete { .. });
        if self.view.steps.iter().any(incomplete) { ExitStatus::Findings } else { ExitStatus::Done }
    }
}

/// Measures; a step that was begun and has runs in the store goes on there, if it asks for the same.
fn measured(
    mut experiment: Experiment,
    begun_before: Option<String>,
    printer: &mut Printer,
) -> anyhow::Result<Measurement> {
    let Some(begun) = begun_before else { return perform(&experiment, printer) };
    let Some(path) = experiment.conditions_mut().store.clone().filter(|path| path.exists()) else {
        return perform(&experiment, printer);
    };
    let store = results_store::open(&path)?;
    let asked = experiment.conditions_mut().clone();
    for entry in store.entries(None)?.into_iter().filter(|entry| entry.created >= begun) {
        let Some(request) = &entry.request else { continue };
        let Ok(mut earlier) = Experiment::parse(&entry.experiment, request) else { continue };
        *earlier.conditions_mut() = asked.clone();
        if earlier != experiment {
            continue;
        }
        if entry.state == State::Done {
            return Ok(store.measurement(entry.id)?);
        }
        printer.say(&format!("going on with measurement {}, which has {} runs", entry.id, entry.runs));
        experiment.conditions_mut().resume = Some(entry.id);
        break;
    }
    drop(store);
    perform(&experiment, printer)
}
