//! The figures a job is judged by.

use nearmetal_report::view::{ArmRole, ComparisonView, JobReport};

/// One ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    /// Pairs.
    pub n: u32,
    /// Subject over reference.
    pub ratio: f64,
    /// Its interval; `None` for a single shot.
    pub interval: Option<(f64, f64)>,
}

/// The headline metric's ratios; `None` where a side was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct HeadlineNumbers {
    /// Planned over bare metal on the same slice.
    pub planned_to_bare: Option<Figure>,
    /// As found over bare metal.
    pub found_to_bare: Option<Figure>,
    /// Planned over as found: the gain.
    pub planned_to_found: Option<Figure>,
    /// Planned over the arm that is neither, where there is one (what virt-install writes).
    pub planned_to_other: Option<Figure>,
}

/// Takes the headline's figures from a report.
pub(crate) fn headline_numbers(report: &JobReport) -> HeadlineNumbers {
    let Some(metric) = report.headline_metric.as_deref() else { return HeadlineNumbers::default() };
    let of = |subject, reference| report.comparison(metric, subject, reference).and_then(figure);
    HeadlineNumbers {
        planned_to_bare: of(ArmRole::Planned, ArmRole::Bare),
        found_to_bare: of(ArmRole::AsFound, ArmRole::Bare),
        planned_to_found: of(ArmRole::Planned, ArmRole::AsFound),
        planned_to_other: of(ArmRole::Planned, ArmRole::Other),
    }
}

fn figure(row: &ComparisonView) -> Option<Figure> {
    let interval = row.interval.map(|ends| (ends.low, ends.high));
    Some(Figure { n: row.n, ratio: row.ratio?, interval })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::job::{JobFiles, assemble};

    fn sample() -> JobReport {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/results/job-sample");
        assemble(&JobFiles::load(&directory).unwrap(), None).unwrap()
    }

    #[test]
    fn all_four_ratios_of_the_headline_metric_are_there() {
        let numbers = headline_numbers(&sample());
        let figure = |figure: Option<Figure>| figure.map(|figure| (figure.n, (figure.ratio * 10.0).round() / 10.0));
        assert_eq!(figure(numbers.planned_to_found), Some((6, 2.4)));
        assert_eq!(figure(numbers.planned_to_bare), Some((6, 0.6)));
        assert_eq!(figure(numbers.found_to_bare), Some((6, 0.3)));
        assert_eq!(figure(numbers.planned_to_other).map(|(n, _)| n), Some(6));
        let gain = numbers.planned_to_found.unwrap();
        let (low, high) = gain.interval.unwrap();
        assert!(low < gain.ratio && gain.ratio < high, "{gain:?}");
        // The ratios of three arms agree: planned/found = (planned/bare) / (found/bare), as geometric means do.
        let bare = |figure: Option<Figure>| figure.unwrap().ratio;
        assert!((gain.ratio - bare(numbers.planned_to_bare) / bare(numbers.found_to_bare)).abs() < 1e-9);
    }

    #[test]
    fn without_a_measurement_there_are_no_numbers() {
        let mut report = sample();
        report.headline_metric = None;
        assert_eq!(headline_numbers(&report), HeadlineNumbers::default());
    }
}
