//! How the demo goes: its stages with their times, and what went wrong in them.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use nearmetal_report::view::StageSeconds;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// The course of one demo. Trouble in a stage is kept, and the stages that make sense without it still run: above all the
/// rollback.
pub(super) struct Course<'a> {
    /// Where words go.
    pub printer: &'a mut Printer,
    /// The stages so far.
    pub stages: Vec<StageSeconds>,
    clock: Instant,
    trouble: Vec<(ExitStatus, String)>,
    next: Vec<String>,
}

impl<'a> Course<'a> {
    /// A course that begins now.
    pub(super) fn new(printer: &'a mut Printer) -> Self {
        Self { printer, stages: Vec::new(), clock: Instant::now(), trouble: Vec::new(), next: Vec::new() }
    }

    /// Runs a stage and takes its time, whatever comes of it.
    pub(super) fn timed<T>(
        &mut self,
        name: &str,
        stage: impl FnOnce(&mut Printer) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.printer.say(&format!("== {name}"));
        let start = Instant::now();
        let result = stage(self.printer).with_context(|| format!("stage `{name}`"));
        let seconds = start.elapsed().as_secs_f64();
        self.stages.push(StageSeconds { name: name.to_owned(), seconds });
        self.printer.say(&format!("== {name}: {seconds:.1} s"));
        result
    }

    /// [`Course::timed`], with a failure kept as trouble; `None` then.
    pub(super) fn stage<T>(&mut self, name: &str, stage: impl FnOnce(&mut Printer) -> anyhow::Result<T>) -> Option<T> {
        self.timed(name, stage).map_err(|error| self.failed(format!("{error:#}"))).ok()
    }

    /// Something was refused or broke.
    pub(super) fn failed(&mut self, what: String) {
        self.trouble.push((ExitStatus::Refused, what));
    }

    /// Everything ran, and something was found that should not be.
    pub(super) fn found(&mut self, what: String) {
        self.trouble.push((ExitStatus::Findings, what));
    }

    /// What to do about it.
    pub(super) fn next(&mut self, what: String) {
        self.next.push(what);
    }

    /// Everything that went wrong so far.
    pub(super) fn trouble(&self) -> impl Iterator<Item = &str> {
        self.trouble.iter().map(|(_, what)| what.as_str())
    }

    /// Everything that went wrong, and what to do next; nothing where nothing went wrong.
    pub(super) fn last_words(&self, output: &Path) -> Vec<String> {
        let errors = self.trouble.iter().map(|(_, what)| format!("error: {what}"));
        let kept = format!("what was collected is in `{}`", output.display());
        let next = self.next.iter().chain([&kept]).filter(|_| self.has_trouble()).map(|what| format!("next: {what}"));
        errors.chain(next).collect()
    }

    /// Whether anything went wrong so far.
    pub(super) fn has_trouble(&self) -> bool {
        !self.trouble.is_empty()
    }

    /// Says what went wrong and what to do next, and how the demo ends.
    pub(super) fn conclude(self, output: &Path) -> ExitStatus {
        let words = self.last_words(output);
        let Self { printer, clock, trouble, .. } = self;
        printer.say(&format!("whole job: {:.0} s", clock.elapsed().as_secs_f64()));
        words.iter().for_each(|line| printer.important(line));
        match trouble.iter().any(|(status, _)| *status == ExitStatus::Refused) {
            true => ExitStatus::Refused,
            false if trouble.is_empty() => ExitStatus::Done,
            false => ExitStatus::Findings,
        }
    }
}
