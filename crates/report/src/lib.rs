//! View models and their renderers: terminal, JSON, SVG, one HTML page.
//!
//! Pure functions from [`view::JobReport`] to text; nothing is read, measured or written here. The binary writes files.
//!
//! | To get | Call |
//! |---|---|
//! | the page | [`html_page`] |
//! | a published experiment's page, and its words | [`experiment_page`], [`experiment_text`] |
//! | the terminal's report | [`terminal`] |
//! | `summary.json`, and whether one keeps its schema | [`summary_json`], [`summary_violations`] |
//! | the machine with the slice in it | [`machine_svg`] |
//! | a whole host, from its model alone | [`host_svg`], [`host_picture`] |
//! | the arms against bare metal | [`arms_svg`] |
//! | the ratio over request sizes | [`sizes_svg`] |
//! | a matrix of arms against the default | [`race_svg`], [`matrix_svg`] |
//! | several guests at once, by their number | [`together_svg`] |
//! | one guest over more and more nodes, by mode | [`by_nodes_svg`] |
//! | more and more tiles of guests | [`tiles_svg`] |
//! | the words of a race: its order, what became of each way, what to use | [`view::RaceView`] |
//! | papers' figures and orders beside ours | [`papers::beside`], [`papers::order_said`] |
//! | a fleet's plan: text, pictures, page | [`fleet::FleetReport`] |
//! | a fleet as it is now | [`watch::picture`] |

pub mod fleet;
mod headline;
mod headline_nodes;
mod headline_tiles;
mod html;
mod orders;
mod palette;
pub mod papers;
mod race;
mod slice_text;
mod summary;
mod summary_schema;
mod svg;
mod terminal;
mod text;
pub mod view;
pub mod watch;

pub use headline::{Headline, Piece, Stress, headline};
pub use html::{PageError, experiment_page, html_page};
pub use palette::PALETTE;
pub use summary::{ArmFigure, NoiseFigure, SUMMARY_SCHEMA, StageFigure, Summary, summary, summary_json};
pub use summary_schema::summary_violations;
pub use svg::{
    MatrixMark, MatrixRow, Moment, Surface, arms_svg, by_nodes_svg, host_svg, machine_svg, matrix_svg, matrix_svg_of,
    race_svg, sizes_svg, tiles_svg, together_svg,
};
pub use terminal::{Style, experiment_text, host_picture, terminal};
pub use text::value;
