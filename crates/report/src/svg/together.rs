//! Several guests at once: for each number of them the ratio of all, and of each, to their bare slices.

use super::matrix::{Labels, rows_chart};
use super::{MatrixMark, MatrixRow, Surface, Width};
use crate::text::count;
use crate::view::{JobReport, RatioView, TogetherView};

/// The chart over the number of guests; `None` if no ratio could be had.
pub fn together_svg(view: &JobReport, surface: Surface) -> Option<String> {
    together_chart(view, surface, Width::Wide)
}

/// [`together_svg`] at either width.
pub(crate) fn together_chart(view: &JobReport, surface: Surface, width: Width) -> Option<String> {
    let together = view.together.as_ref()?;
    let rows = rows(together);
    let title = format!("Guests at once against their bare slices at once: {}", together.load);
    let labels = Labels {
        id: "together",
        title: &title,
        foot: "ratio to the bare slices that ran at once, in the same rounds; filled: all together, hollow: each guest",
        headed: surface == Surface::Standalone,
    };
    let any = rows.iter().any(|row| row.ratio.is_some());
    any.then(|| rows_chart(&labels, &rows, view.is_lab(), surface, width))
}

fn rows(together: &TogetherView) -> Vec<MatrixRow> {
    let mut rows = Vec::new();
    for row in &together.counts {
        let name = if row.count == 1 { "1 guest alone".to_owned() } else { format!("{} guests at once", row.count) };
        rows.push(drawn(name, row.ratio, MatrixMark::Winner));
        if row.count > 1 {
            rows.extend(
                row.shares.iter().map(|share| drawn(format!("    {}", share.guest), share.ratio, MatrixMark::Other)),
            );
        }
    }
    rows
}

fn drawn(name: String, ratio: Option<RatioView>, mark: MatrixMark) -> MatrixRow {
    MatrixRow {
        name,
        ratio: ratio.map(|ratio| ratio.ratio),
        interval: ratio.map(|ratio| (ratio.interval.low, ratio.interval.high)),
        note: ratio.map_or("fewer than two pairs".to_owned(), |ratio| count(ratio.n as usize, "pair")),
        mark,
    }
}
