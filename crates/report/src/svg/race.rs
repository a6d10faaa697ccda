//! The chart of a race, from its view.

use super::matrix::{Labels, matrix_svg_of, rows_chart};
use super::{Surface, Width};
use crate::view::JobReport;

/// The race's arms against the reference; `None` if nothing was raced.
pub fn race_svg(view: &JobReport) -> Option<String> {
    let race = view.race.as_ref().filter(|race| race.was_raced())?;
    Some(matrix_svg_of(&view.title, &race.axis(), &race.rows(), view.is_lab(), Surface::Standalone))
}

/// The same inside a page, at either width.
pub(crate) fn race_chart(view: &JobReport, width: Width) -> Option<String> {
    let race = view.race.as_ref().filter(|race| race.was_raced())?;
    let foot = format!("{} in the same rounds, 95 % interval of each arm alone", race.axis());
    let labels = Labels { id: "race", title: &view.title, foot: &foot, headed: false };
    Some(rows_chart(&labels, &race.rows(), view.is_lab(), Surface::Page, width))
}
