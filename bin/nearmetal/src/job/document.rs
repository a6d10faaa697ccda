//! Reading one document of `bench`, of any kind and any version that is still read. Hostile until parsed.

use std::path::Path;

use nearmetal_results::{Link, MatrixResults, Measurement, NetMatrixResults, PathTable, Results};
use serde_json::Value;

use super::error::{JobError, short};
use super::files::{check_outcomes, check_values, document, schema_of, typed};

/// What is read, for the message of a document that is something else.
const SCHEMAS: &str = "nearmetal.results/2`, `nearmetal.matrix/1`, `nearmetal.net-matrix/1` or `nearmetal.paths/1";

/// A document of `bench`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Document {
    /// What an experiment left.
    Measured(Measurement),
    /// Ways to a disk, read back and not raced.
    Paths(Box<PathTable>),
}

impl Document {
    /// Reads a document of any kind and of any version that is still read.
    ///
    /// # Errors
    /// The file, and the field in it: see [`JobError`].
    pub(crate) fn load(path: &Path) -> Result<Self, JobError> {
        let missing = || JobError::NotReadable {
            path: path.to_owned(),
            problem: "does not exist: name a job directory, or the JSON that `nearmetal bench … -o FILE` wrote"
                .to_owned(),
        };
        let value = nearmetal_results::upgraded(document(path)?.ok_or_else(missing)?);
        Self::of(path, value)
    }

    fn of(path: &Path, value: Value) -> Result<Self, JobError> {
        let field = |field: &str, problem: &str| JobError::Field {
            path: path.to_owned(),
            field: field.to_owned(),
            problem: problem.to_owned(),
        };
        Ok(match schema_of(&value) {
            nearmetal_results::SCHEMA => {
                let results: Results = typed(path, "", value, nearmetal_results::SCHEMA)?;
                check_values(path, &results)?;
                Self::Measured(results.into())
            }
            nearmetal_results::MATRIX_SCHEMA => {
                let results: MatrixResults = typed(path, "", value, nearmetal_results::MATRIX_SCHEMA)?;
                if results.winner.is_some_and(|winner| winner >= results.arms.len()) {
                    return Err(field("winner", "it is none of the arms"));
                }
                let again = results.confirmation.iter().flat_map(|confirmation| &confirmation.runs);
                check_outcomes(path, "turns", results.turns.iter().map(|turn| &turn.outcome))?;
                check_outcomes(path, "confirmation.runs", again.map(|run| &run.outcome))?;
                Self::Measured(results.into())
            }
            nearmetal_results::NET_MATRIX_SCHEMA => {
                let results: NetMatrixResults = typed(path, "", value, nearmetal_results::NET_MATRIX_SCHEMA)?;
                // Bare metal is an arm, and no guest can use it.
                let usable = |winner: usize| results.arms.get(winner).is_some_and(|arm| arm.path.link != Link::Bare);
                if results.winner.is_some_and(|winner| !usable(winner)) {
                    return Err(field("winner", "it is no arm that a guest can use"));
                }
                let again = results.confirmation.iter().flat_map(|confirmation| &confirmation.turns);
                check_outcomes(path, "turns", results.turns.iter().map(|turn| &turn.outcome))?;
                check_outcomes(path, "confirmation.turns", again.map(|turn| &turn.outcome))?;
                Self::Measured(results.into())
            }
            nearmetal_results::PATHS_SCHEMA => {
                Self::Paths(Box::new(typed(path, "", value, nearmetal_results::PATHS_SCHEMA)?))
            }
            found => {
                return Err(JobError::Schema { path: path.to_owned(), found: short(found), expected: SCHEMAS });
            }
        })
    }
}
