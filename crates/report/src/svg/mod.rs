//! Pictures as SVG: the machine with the VM's slice in it, the arms against bare metal, the ratio over request sizes,
//! modes over NUMA nodes.

mod arms;
mod by_nodes;
mod canvas;
mod fleet;
mod host;
mod machine;
mod marker;
mod matrix;
mod race;
mod scale;
mod sizes;
mod together;

pub use arms::arms_svg;
pub use by_nodes::{by_nodes_svg, tiles_svg};
pub use host::host_svg;
pub use machine::{Moment, machine_svg};
pub use matrix::{MatrixMark, MatrixRow, matrix_svg, matrix_svg_of};
pub use race::race_svg;
pub use sizes::sizes_svg;
pub use together::together_svg;

pub(crate) use arms::arms_chart;
pub(crate) use by_nodes::{by_nodes_chart, tiles_chart};
pub(crate) use fleet::{fleet_overview_svg, host_figure, hosts_svg, left_out};
pub(crate) use machine::is_wide;
pub(crate) use race::race_chart;
pub(crate) use sizes::sizes_chart;
pub(crate) use together::together_chart;

/// How wide a chart is drawn: a chart scaled down to a telephone's width could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// 680 units: pages, files, print.
    Wide,
    /// 380 units: narrow screens.
    Narrow,
}

impl Width {
    /// User units across.
    fn units(self) -> f64 {
        match self {
            Self::Wide => 680.0,
            Self::Narrow => 380.0,
        }
    }

    /// Keeps the names inside two drawings of one chart apart.
    fn suffix(self) -> &'static str {
        match self {
            Self::Wide => "",
            Self::Narrow => "-narrow",
        }
    }
}

/// Where a picture will stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// Inside a page that carries the palette and the figures' style.
    Page,
    /// In a file of its own: style and ground included.
    Standalone,
}
