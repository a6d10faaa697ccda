//! A published experiment on a terminal.

use super::paint::{Ink, Page, Style};
use crate::papers::of_unit;
use crate::text::{LAB_WORDS, capital, one_line};
use crate::view::{ExperimentView, StepState};

/// The experiment as text: the question, each step with its claims, the papers' figures with ours.
pub fn experiment_text(view: &ExperimentView, style: &Style) -> String {
    let mut page = Page::new(*style);
    let place = match &view.environment {
        Some(_) if view.is_lab() => format!(" · {LAB_WORDS}"),
        Some(_) => " · silicon".to_owned(),
        None => String::new(),
    };
    let line = format!("experiment {} · {} · {}{place}", view.name, view.guests.join(", "), view.created);
    page.wrapped(&one_line(&line), Ink::Quiet, 0);
    page.blank();
    page.wrapped(&one_line(&view.question), Ink::Strong, 0);
    page.wrapped(&capital(&view.verdict()), Ink::Plain, 0);
    for step in &view.steps {
        page.heading(&one_line(&step.title));
        if let Some(why) = step.state.why() {
            let ink = if matches!(step.state, StepState::Failed { .. }) { Ink::Bad } else { Ink::Unsure };
            page.wrapped(&one_line(&format!("{}: {why}", step.state.word())), ink, 2);
        }
        let (told, more) = step.told();
        for claim in told {
            page.wrapped(&format!("- {}", one_line(claim)), Ink::Plain, 2);
        }
        if more > 0 {
            page.wrapped(&format!("and {more} more, in experiment.json"), Ink::Quiet, 2);
        }
        match step.state {
            StepState::Done if step.claims.is_empty() => {
                page.wrapped("No claim: nothing was shown beyond the noise", Ink::Plain, 2);
            }
            StepState::Waiting => page.wrapped("not run yet: the same command goes on with it", Ink::Unsure, 2),
            _ => {}
        }
    }
    let mut paper = "";
    for figure in &view.figures {
        if figure.paper != paper {
            page.blank();
            page.wrapped(&one_line(&figure.paper), Ink::Strong, 0);
            paper = &figure.paper;
        }
        let size = figure.request_size.map(|size| format!(", {size}")).unwrap_or_default();
        let theirs = format!("{}{size}: theirs {}", figure.what, of_unit(&figure.value, &figure.unit));
        let ours = match &figure.ours {
            Some(ours) => format!("ours {} ({})", ours.value, ours.note),
            None => "ours not measured".to_owned(),
        };
        let compares = figure.compares.as_ref().map(|compares| format!(". Compares: {compares}")).unwrap_or_default();
        page.wrapped(&one_line(&format!("- {theirs}; {ours}{compares}")), Ink::Plain, 2);
    }
    page.heading("What to conclude, and what not");
    for line in &view.conclude {
        page.wrapped(&format!("- {}", one_line(line)), Ink::Plain, 2);
    }
    page.finish()
}
