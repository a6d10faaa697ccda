//! Published figures this project stands beside its own: data/papers.toml; and published orders: data/orders.toml.

use nearmetal_units::Bytes;
use serde::Deserialize;

pub use crate::orders::order_said;
use crate::text::{LAB_WORDS, UNKNOWN, count, finite, ratio, value};
use crate::view::{ArmRole, Beside, ComparisonView, JobReport, Metric, PaperFigure};

const DATA: &str = include_str!("../data/papers.toml");

#[derive(Deserialize)]
struct File {
    paper: Paper,
    figure: Vec<Figure>,
}

#[derive(Deserialize)]
struct Paper {
    name: String,
    method: String,
}

#[derive(Deserialize)]
struct Figure {
    section: String,
    what: String,
    configuration: String,
    request: Option<u64>,
    value: String,
    unit: String,
    #[serde(default)]
    side: Side,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Default)]
#[serde(rename_all = "kebab-case")]
enum Side {
    Bare,
    #[default]
    Guest,
}

/// The papers' figures with ours beside them, where the report has a comparison of the planned arm with bare metal at the
/// same request size and in the same kind of unit.
pub fn beside(view: &JobReport) -> Vec<PaperFigure> {
    let Some(file) = read() else { return Vec::new() };
    file.figure.into_iter().map(|figure| stand(view, &file.paper, figure)).collect()
}

/// How the papers' figures were taken.
pub fn method() -> String {
    read().map(|file| file.paper.method).unwrap_or_default()
}

/// The data is part of the program; a test holds that it parses.
fn read() -> Option<File> {
    toml::from_str(DATA).ok()
}

fn stand(view: &JobReport, paper: &Paper, figure: Figure) -> PaperFigure {
    let request_size = figure.request.map(Bytes::new);
    let ours = request_size.and_then(|size| {
        let metric = view
            .metrics
            .iter()
            .find(|metric| metric.request_size == Some(size) && same_kind(&metric.unit, &figure.unit))?;
        let row = view.comparison(&metric.id, ArmRole::Planned, ArmRole::Bare)?;
        ours(view, figure.side, metric, row)
    });
    PaperFigure {
        paper: paper.name.clone(),
        section: figure.section,
        what: figure.what,
        configuration: figure.configuration,
        value: figure.value,
        unit: figure.unit,
        request_size,
        ours,
    }
}

fn ours(view: &JobReport, side: Side, metric: &Metric, row: &ComparisonView) -> Option<Beside> {
    let (number, what) = match side {
        Side::Bare => (finite(row.reference_value)?, "bare metal, the same slice".to_owned()),
        Side::Guest => (
            finite(row.subject_value)?,
            format!(
                "one guest of {}, {} of its bare metal",
                view.guest.vcpus.map_or(UNKNOWN.to_owned(), |vcpus| count(vcpus as usize, "vCPU")),
                ratio(row.ratio)
            ),
        ),
    };
    let mut note = what;
    if row.single_shot {
        note.push_str(", single shot");
    }
    if view.is_lab() {
        note.push_str(", ");
        note.push_str(LAB_WORDS);
    }
    Some(Beside { value: format!("{} {}", value(Some(number)), metric.unit), note })
}

/// MB/s and GB/s are one kind; the value is shown in the unit it was measured in.
fn same_kind(ours: &str, theirs: &str) -> bool {
    ours == theirs || (ours == "MB/s" && theirs == "GB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_parses() {
        let file: File = toml::from_str(DATA).unwrap();
        assert_eq!(file.figure.len(), 9);
        assert!(file.figure.iter().all(|figure| !figure.value.is_empty() && !figure.unit.is_empty()));
    }
}
