//! Published figures this project stands beside its own: data/papers; and published orders: data/orders.toml.

mod data;
mod ours;
mod words;

use nearmetal_units::Bytes;

use data::{Figure, File, Side};

pub use words::{Words, experiment, experiments};

pub use crate::orders::order_said;
use crate::text::{LAB_WORDS, count, finite, shown, value};
use crate::view::{ArmRole, Beside, ComparisonView, JobReport, Metric, PaperFigure};

/// The experiment whose figures stand in every job's page: a guest on its drive, which is what a job measures.
const OF_A_JOB: &str = "passthrough-io";

/// The papers' figures of a job, with ours beside them where the report has a comparison of the planned arm with bare metal at
/// the same request size and in the same kind of unit.
pub fn beside(view: &JobReport) -> Vec<PaperFigure> {
    // What only an experiment has, such as several guests, would stand there as not measured.
    let of_one_guest = |figure: &Figure| figure.compares.is_none();
    figures(OF_A_JOB, of_one_guest, |figure| at_its_size(view, figure))
}

/// The papers' figures of an experiment of `nearmetal experiment`, with ours beside them; `steps` are the reports of the steps
/// that were run, by id.
pub fn of_experiment(name: &str, steps: &[(&str, &JobReport)]) -> Vec<PaperFigure> {
    figures(
        name,
        |_| true,
        |figure| match &figure.ours {
            Some(ours) => ours.find(steps),
            // Of one guest: what several do at once is another figure.
            None => steps
                .iter()
                .filter(|(_, report)| report.together.is_none())
                .find_map(|(_, report)| at_its_size(report, figure)),
        },
    )
}

/// How the figures of a paper were taken, by the name it has in [`PaperFigure`].
pub fn method(paper: &str) -> Option<String> {
    data::all().into_iter().find(|file| file.paper.name == paper).map(|file| file.paper.method)
}

/// The papers an experiment is from, in the order its figures stand.
pub fn papers_of(experiment: &str) -> Vec<String> {
    let has = |file: &File| file.figure.iter().any(|figure| figure.experiments.iter().any(|name| name == experiment));
    data::all().into_iter().filter(has).map(|file| file.paper.name).collect()
}

/// The steps in which an experiment's figures look for ours.
pub fn steps_asked(experiment: &str) -> Vec<String> {
    let files = data::all();
    let figures = files.iter().flat_map(|file| &file.figure);
    let of = figures.filter(|figure| figure.experiments.iter().any(|name| name == experiment));
    of.filter_map(|figure| Some(figure.ours.as_ref()?.step().to_owned())).collect()
}

fn figures(
    experiment: &str,
    wanted: impl Fn(&Figure) -> bool,
    ours: impl Fn(&Figure) -> Option<Beside>,
) -> Vec<PaperFigure> {
    let mut all = Vec::new();
    for File { paper, figure } in data::all() {
        let of = |figure: &Figure| figure.experiments.iter().any(|name| name == experiment) && wanted(figure);
        all.extend(figure.into_iter().filter(of).map(|figure| PaperFigure {
            paper: paper.name.clone(),
            ours: ours(&figure),
            section: figure.section,
            what: figure.what,
            configuration: figure.configuration,
            value: figure.value,
            unit: figure.unit,
            request_size: figure.request.map(Bytes::new),
            compares: figure.compares,
        }));
    }
    all
}

fn at_its_size(view: &JobReport, figure: &Figure) -> Option<Beside> {
    let size = Bytes::new(figure.request?);
    let of_size = |metric: &&Metric| metric.request_size == Some(size) && same_kind(&metric.unit, &figure.unit);
    let metric = view.metrics.iter().find(of_size)?;
    let row = view.comparison(&metric.id, ArmRole::Planned, ArmRole::Bare)?;
    ours_of(view, figure.side, metric, row)
}

fn ours_of(view: &JobReport, side: Side, metric: &Metric, row: &ComparisonView) -> Option<Beside> {
    let (number, what) = match side {
        Side::Bare => (finite(row.reference_value)?, "bare metal, the same slice".to_owned()),
        Side::Guest => (
            finite(row.subject_value)?,
            format!("one guest{}, {} of its bare metal", size_of(view), shown(row.ratio, row.interval)),
        ),
    };
    let mut note = what;
    match row.single_shot {
        true => note.push_str(", single shot"),
        false => note.push_str(&format!(", n = {}", row.n)),
    }
    if view.is_lab() {
        note.push_str(", ");
        note.push_str(LAB_WORDS);
    }
    Some(Beside { value: format!("{} {}", value(Some(number)), metric.unit), note })
}

/// ` of 2 vCPUs`: what a job's guest has, or the slice of a measurement alone; nothing where neither says.
fn size_of(view: &JobReport) -> String {
    let slice = || view.tenants.first().map(|tenant| tenant.cpus.len());
    let vcpus = view.guest.vcpus.map(|vcpus| vcpus as usize).or_else(slice);
    vcpus.map(|vcpus| format!(" of {}", count(vcpus, "vCPU"))).unwrap_or_default()
}

/// MB/s and GB/s are one kind; the value is shown in the unit it was measured in.
fn same_kind(ours: &str, theirs: &str) -> bool {
    ours == theirs || (ours == "MB/s" && theirs == "GB/s")
}

/// A published value with its unit: a factor stands close, and a direction has none.
pub fn of_unit(value: &str, unit: &str) -> String {
    match unit {
        "" => value.to_owned(),
        unit if unit.starts_with('×') => format!("{value}{unit}"),
        unit => format!("{value} {unit}"),
    }
}
