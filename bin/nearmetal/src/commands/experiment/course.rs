//! How an experiment goes: its steps one after the other, each written down as it begins and ends, and the pages.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nearmetal_change::timestamp;
use nearmetal_host::{HostFs, files};
use nearmetal_measure::{Experiment, MeasureError};
use nearmetal_report::html_page;
use nearmetal_report::papers::{Words, of_experiment};
use nearmetal_report::view::{EXPERIMENT_SCHEMA, ExperimentView, StepState, StepView, claims};
use nearmetal_results::{Entry, Measurement, State};

use super::steps::{Step, Which, shell_words};
use crate::commands::bench::asked;
use crate::commands::bench::keep::{lost, write};
use crate::commands::bench::measuring::perform;
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
    let unreadable = |error| WrongUse(format!("{:#}", anyhow::Error::from(error)));
    let Some(found) = experiment::load(directory).map_err(unreadable)? else { return Ok(fresh) };
    let commands = |view: &ExperimentView| view.steps.iter().map(|step| step.command.clone()).collect::<Vec<_>>();
    if found.name != fresh.name || commands(&found) != commands(&fresh) {
        return Err(
            other(format!("the experiment {} with the commands {}", found.name, commands(&found).join("; "))).into()
        );
    }
    let mut steps = found.steps;
    for step in &mut steps {
        // What is no longer there is measured again.
        if step.document.as_ref().is_some_and(|document| !directory.join(document).is_file()) {
            (step.state, step.begun, step.document) = (StepState::Waiting, None, None);
        }
    }
    Ok(ExperimentView { steps, created: found.created, environment: found.environment, ..fresh })
}

/// The right to measure into this directory. The kernel gives it back, however the process ends.
///
/// # Errors
/// [`WrongUse`] where another run measures into it now.
pub(super) fn claimed(directory: &Path) -> anyhow::Result<File> {
    files::create_dir_all(directory)?;
    let opened = files::open(directory)?;
    if files::try_lock(&opened, directory)? {
        return Ok(opened);
    }
    let directory = directory.display();
    Err(WrongUse(format!(
        "another run measures into `{directory}` now: wait until it ends, or name another directory with -o"
    ))
    .into())
}

/// Refuses to add to steps of another host, or of another plan of the VM.
///
/// # Errors
/// [`WrongUse`] with what differs.
fn same_ground(view: &ExperimentView, host: &str, plan: Option<&str>) -> Result<(), WrongUse> {
    let differs = |what: &str, was: &Option<String>, is: Option<&str>| {
        let was = was.as_deref().filter(|was| Some(*was) != is)?;
        Some(format!("{what} `{was}`, and this is `{}`", is.unwrap_or("unknown")))
    };
    for step in view.steps.iter().filter(|step| step.document.is_some()) {
        let of_host = differs("on the host", &step.host, Some(host));
        if let Some(other) = of_host.or_else(|| differs("under the plan of", &step.plan, plan)) {
            return Err(WrongUse(format!(
                "`{}` was measured {other}: name another directory with -o, so that a page speaks of one host and one plan",
                step.title
            )));
        }
    }
    Ok(())
}

fn new(words: Words, which: &Which, steps: &[Step], directory: &Path) -> ExperimentView {
    let step = |step: &Step| StepView {
        id: step.id.to_owned(),
        title: step.title.to_owned(),
        command: step.command(),
        begun: None,
        state: StepState::Waiting,
        seconds: None,
        document: None,
        page: None,
        claims: Vec::new(),
        host: None,
        plan: None,
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
    let mut words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if !words.iter().any(|word| word.starts_with("-o") || word.starts_with("--output")) {
        words.extend(["-o".to_owned(), directory.display().to_string()]);
    }
    format!("nearmetal {}", shell_words(&words))
}

/// The course of one experiment.
pub(super) struct Course {
    directory: PathBuf,
    /// The name of this host.
    host: String,
    /// What is known so far.
    pub(super) view: ExperimentView,
}

impl Course {
    /// A course in this directory.
    pub(super) fn new(directory: PathBuf, view: ExperimentView) -> Self {
        let host = HostFs::live().read("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
        Self { directory, host: host.unwrap_or_else(|_| "unknown".to_owned()), view }
    }

    /// Runs the steps that are not done, and makes the page.
    ///
    /// # Errors
    /// The directory cannot be written; somebody asked for the end. What a step gives is kept in the view, its failure too.
    pub(super) fn run(&mut self, steps: &[Step], printer: &mut Printer) -> anyhow::Result<()> {
        for (number, step) in steps.iter().enumerate() {
            let of = format!("step {} of {}", number + 1, steps.len());
            if matches!(self.view.steps[number].state, StepState::Done | StepState::Incomplete { .. }) {
                printer.say(&format!("== {of}, {}: done before", step.title));
                continue;
            }
            printer.say(&format!("== {of}, {}: {}", step.title, step.command()));
            self.step(number, step, printer)?;
            experiment::keep(&self.directory, &self.view)?;
        }
        experiment::render(&self.directory, &mut self.view)
    }

    fn step(&mut self, number: usize, step: &Step, printer: &mut Printer) -> anyhow::Result<()> {
        let start = Instant::now();
        let begun_before = self.view.steps[number].begun.clone();
        let ended = asked(&step.words).and_then(|mut experiment| {
            let plan = experiment.conditions_mut().plan.clone();
            same_ground(&self.view, &self.host, plan.as_deref())?;
            let view = &mut self.view.steps[number];
            view.state = StepState::Waiting;
            view.begun.get_or_insert_with(timestamp::now);
            (view.host, view.plan) = (Some(self.host.clone()), plan);
            experiment::keep(&self.directory, &self.view)?;
            self.written(number, step, measured(experiment, begun_before, printer)?)
        });
        let view = &mut self.view.steps[number];
        view.seconds = Some(view.seconds.unwrap_or_default() + start.elapsed().as_secs_f64());
        match ended {
            Ok(()) => view.state.why().into_iter().for_each(|why| printer.important(why)),
            // The same command goes on with it.
            Err(error) if matches!(error.downcast_ref(), Some(MeasureError::Stopped)) => {
                experiment::keep(&self.directory, &self.view)?;
                return Err(error);
            }
            Err(error) => {
                let why = format!("{error:#}");
                printer.important(&format!("{}: {why}", step.title));
                view.state = StepState::Failed { why };
            }
        }
        Ok(())
    }

    /// Writes a step's document and page.
    fn written(&mut self, number: usize, step: &Step, measurement: Measurement) -> anyhow::Result<()> {
        let (document, page) = (format!("{}.json", step.id), format!("{}.html", step.id));
        let path = self.directory.join(&document);
        write(&measurement, &path)?;
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
        let incomplete = self.view.steps.iter().filter(|step| matches!(step.state, StepState::Incomplete { .. }));
        let incomplete: Vec<&str> = incomplete.map(|step| step.title.as_str()).collect();
        if incomplete.is_empty() {
            return ExitStatus::Done;
        }
        let advice = "arms lost samples; to measure such a step again, remove its document and run the same command";
        printer.important(&format!("incomplete: {}: {advice}", incomplete.join(", ")));
        ExitStatus::Findings
    }
}

/// Measures; a step that was begun and has runs in the store goes on there, if it asks for the same
/// under the same kernel, and begins anew where these can no longer be gone on with.
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
    let kernel = HostFs::live().read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut found = None;
    let is_it = |entry: &Entry| entry.created >= begun && entry.kernel == kernel.trim();
    for entry in store.entries(None)?.into_iter().filter(is_it) {
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
        found = Some(entry.id);
        break;
    }
    drop(store);
    going_on(found, printer, |resume, printer| {
        experiment.conditions_mut().resume = resume;
        perform(&experiment, printer)
    })
}

/// Goes on with the measurement that was found, if one was. One that can only be measured anew is: the next command would find
/// it again, and be refused again.
fn going_on<T>(
    found: Option<i64>,
    printer: &mut Printer,
    mut perform: impl FnMut(Option<i64>, &mut Printer) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let error = match perform(found, printer) {
        Err(error) => error,
        measured => return measured,
    };
    match error.downcast_ref() {
        Some(MeasureError::Anew(why)) => printer.important(&format!("{why}: the step is measured anew")),
        _ => return Err(error),
    }
    perform(None, printer)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;

    use nearmetal_report::papers::experiment;

    use super::*;
    use crate::printer::Outlet;

    /// What was said.
    #[derive(Clone, Default)]
    struct Said(Rc<RefCell<String>>);

    impl Outlet for Said {
        fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.borrow_mut().push_str(&String::from_utf8_lossy(bytes));
            Ok(())
        }
    }

    #[test]
    fn what_can_no_longer_be_gone_on_with_is_measured_anew_and_that_is_said() {
        let said = Said::default();
        let mut printer = Printer::to(true, Box::new(said.clone()));
        let mut asked = Vec::new();
        let measured = going_on(Some(3), &mut printer, |resume, _| {
            asked.push(resume);
            match resume {
                Some(_) => Err(MeasureError::Anew("measurement 3 began on another QEMU".into()).into()),
                None => Ok("measured"),
            }
        });
        assert_eq!((measured.unwrap(), asked), ("measured", vec![Some(3), None]));
        assert_eq!(said.0.borrow().as_str(), "measurement 3 began on another QEMU: the step is measured anew\n");
        // Any other error ends the step.
        let others: [fn() -> MeasureError; 2] =
            [|| MeasureError::Stopped, || MeasureError::Unfit("4 runs in a row failed".into())];
        for error in others {
            let mut times = 0;
            let ended = going_on(Some(3), &mut printer, |_, _| -> anyhow::Result<()> {
                times += 1;
                Err(error().into())
            });
            assert_eq!((ended.unwrap_err().to_string(), times), (error().to_string(), 1));
        }
        assert_eq!(said.0.borrow().lines().count(), 1);
    }

    #[test]
    fn two_runs_do_not_measure_into_one_directory() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("experiment-new");
        let first = claimed(&directory).unwrap();
        let refused = claimed(&directory).unwrap_err();
        assert!(refused.is::<WrongUse>() && refused.to_string().contains("experiment-new"), "{refused}");
        drop(first);
        claimed(&directory).unwrap();
    }

    fn measured_on(host: &str, plan: &str) -> ExperimentView {
        let step = StepView {
            id: "modes".into(),
            title: "Modes".into(),
            command: "nearmetal bench modes web1".into(),
            begun: None,
            state: StepState::Done,
            seconds: None,
            document: Some("modes.json".into()),
            page: None,
            claims: Vec::new(),
            host: Some(host.into()),
            plan: Some(plan.into()),
        };
        let words = experiment("numa-modes").unwrap();
        ExperimentView {
            schema: EXPERIMENT_SCHEMA.into(),
            name: words.name,
            question: words.question,
            created: String::new(),
            nearmetal_version: String::new(),
            environment: None,
            guests: vec!["web1".into()],
            quick: true,
            did: words.did,
            does: words.does,
            differs: words.differs,
            conclude: words.conclude,
            command: String::new(),
            steps: vec![step],
            figures: Vec::new(),
        }
    }

    #[test]
    fn a_page_speaks_of_one_host_and_one_plan() {
        let view = measured_on("a", "monday");
        assert_eq!(same_ground(&view, "a", Some("monday")), Ok(()));
        let other = same_ground(&view, "b", Some("monday")).unwrap_err();
        assert!(other.0.contains("on the host `a`, and this is `b`"), "{other}");
        let other = same_ground(&view, "a", Some("tuesday")).unwrap_err();
        assert!(other.0.contains("under the plan of `monday`"), "{other}");
        let mut waiting = view;
        waiting.steps[0].document = None;
        assert_eq!(same_ground(&waiting, "b", None), Ok(()), "nothing was measured yet");
    }
}
