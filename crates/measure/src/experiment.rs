//! The list of experiments: a line each. The store keeps a request by its experiment's name, and runs it again.

use nearmetal_host::HostFs;
use nearmetal_hypervisor::Hypervisor;
use nearmetal_load::LoadError;
use nearmetal_results::Measurement;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::decisions::DecisionsRequest;
use crate::drive::DriveRequest;
use crate::engine::Site;
use crate::error::MeasureError;
use crate::event::Event;
use crate::finish::in_a_session;
use crate::inside::InsideRequest;
use crate::matrix::MatrixRequest;
use crate::modes::ModesRequest;
use crate::net::NetMatrixRequest;
use crate::pages::PagesRequest;
use crate::slice::SliceRequest;
use crate::tiles::TilesRequest;
use crate::together::TogetherRequest;
use crate::tune::TuneRequest;

macro_rules! experiments {
    ($($(#[$doc:meta])* $name:ident, $word:literal, $request:ty;)+) => {
        /// One experiment with its request.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum Experiment { $($(#[$doc])* $name(Box<$request>)),+ }

        impl Experiment {
            /// The words of all experiments.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The experiment that a store keeps under this word.
            ///
            /// # Errors
            /// No experiment has that name, or the request is not of its form.
            pub fn parse(word: &str, request: &str) -> Result<Self, MeasureError> {
                let unreadable = |error: serde_json::Error| {
                    let text = request.chars().take(80).collect();
                    LoadError::Unreadable { what: "the request of a measurement".to_owned(), why: error.to_string(), text }
                };
                match word {
                    $($word => Ok(Self::$name(Box::new(serde_json::from_str(request).map_err(unreadable)?))),)+
                    other => Err(MeasureError::Unfit(format!("this version knows no experiment `{other}`"))),
                }
            }

            /// Under what it is made.
            pub fn conditions_mut(&mut self) -> &mut Conditions {
                match self { $(Self::$name(request) => &mut request.conditions),+ }
            }

            /// Runs it.
            ///
            /// # Errors
            /// Its own.
            pub fn perform(
                &self,
                fs: &HostFs,
                hypervisor: &mut dyn Hypervisor,
                tell: &mut dyn FnMut(Event<'_>),
            ) -> Result<Measurement, MeasureError> {
                let site = Site { fs, hypervisor, tell };
                match self { $(Self::$name(request) => Ok(in_a_session($word, &**request, site)?.into())),+ }
            }
        }
    };
}

experiments! {
    /// A guest in clones.
    Slice, "slice", SliceRequest;
    /// A guest without each decision of its plan.
    Decisions, "decisions", DecisionsRequest;
    /// A guest with and without huge pages and pins.
    Pages, "pages", PagesRequest;
    /// A guest as each of its possible plans has it.
    Tune, "tune", TuneRequest;
    /// A guest in itself.
    Inside, "inside", InsideRequest;
    /// A guest with a drive of its own.
    Drive, "drive", DriveRequest;
    /// Several guests at once.
    Together, "together", TogetherRequest;
    /// Tiles of guests that serve.
    Tiles, "tiles", TilesRequest;
    /// A guest over several nodes.
    Modes, "modes", ModesRequest;
    /// Ways to a disk.
    Disk, "disk", MatrixRequest;
    /// Ways to a network.
    Net, "net", NetMatrixRequest;
}

#[cfg(test)]
mod tests {
    use super::Experiment;

    #[test]
    fn the_page_of_experiments_has_a_whole_row_for_each() {
        let page = include_str!("../../../docs/reference/experiments.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let columns = rows[0].len();
        for word in Experiment::WORDS {
            let row = rows.iter().find(|row| row[1] == format!("`{word}`"));
            let row = row.unwrap_or_else(|| panic!("docs/reference/experiments.md has no row for `{word}`"));
            assert_eq!(row.len(), columns, "{word}");
            assert!(row[1..columns - 1].iter().all(|cell| !cell.is_empty()), "{word} has an empty cell");
        }
        assert_eq!(rows.len(), Experiment::WORDS.len() + 2, "a row is of no experiment");
    }
}
