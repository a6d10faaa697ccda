//! What can be wrong with a job directory: always the file, and the field where there is one.

use std::path::PathBuf;

use nearmetal_host::files::FileError;

/// Why no report can be made of a directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// A file that a report cannot do without.
    #[error(
        "`{}` has no `{file}`: name a job directory, which holds `plan.json` and the output of other commands",
        directory.display()
    )]
    Missing {
        /// The directory given.
        directory: PathBuf,
        /// The file.
        file: &'static str,
    },
    /// A plan alone is no job.
    #[error(
        "`{}` holds only a plan: run `nearmetal inspect --format json`, `nearmetal verify --format json` \
         or `nearmetal bench -o FILE`, and save the output there as one of {}",
        directory.display(),
        others.join(", ")
    )]
    NothingButPlan {
        /// The directory given.
        directory: PathBuf,
        /// The files that would do.
        others: Vec<&'static str>,
    },
    /// The system's answer.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not a regular file, or larger than any job leaves.
    #[error("`{}` {problem}", path.display())]
    NotReadable {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        problem: String,
    },
    /// Another schema, or none.
    #[error("`{}`, field `schema`: found `{found}`, but this version reads `{expected}`", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// What it says, cut to 80 characters.
        found: String,
        /// What is read.
        expected: &'static str,
    },
    /// A field that is not what it should be.
    #[error("`{}`, field `{field}`: {problem}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Path of the field, such as `runs[3].outcome`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The plan.
    #[error("the plan of this job")]
    Plan(#[from] nearmetal_change::ChangeError),
    /// A domain XML inside a file.
    #[error("`{file}`, field `{field}`: the domain XML cannot be read")]
    Xml {
        /// The file.
        file: String,
        /// Path of the field.
        field: String,
        /// Where and why.
        #[source]
        source: nearmetal_domain::DomainError,
    },
    /// Two files of different jobs.
    #[error("`{left}` and `{right}` belong to different jobs: {problem}")]
    Disagree {
        /// A file.
        left: &'static str,
        /// Another.
        right: &'static str,
        /// The two values.
        problem: String,
    },
    /// A domain that the plan does not place.
    #[error("`plan.json` does not place `{wanted}`; it places: {known}")]
    NoSuchDomain {
        /// The name given.
        wanted: String,
        /// The names there are.
        known: String,
    },
    /// Figures of one guest are not shown under the name of another.
    #[error("--domain asks for `{wanted}`, but `results.json` measured `{measured}`: drop --domain")]
    NotMeasured {
        /// The name given.
        wanted: String,
        /// The guest measured.
        measured: String,
    },
    /// Several domains, and nothing that says which one.
    #[error("`plan.json` places several domains: name one with --domain: {known}")]
    WhichDomain {
        /// The names there are.
        known: String,
    },
    /// A plan in which everything is blocked.
    #[error("`plan.json` places no domain: there is nothing to report on")]
    NoDomain,
    /// Runs that give no statement.
    #[error("`results.json`: its runs cannot be compared")]
    Comparison(#[from] nearmetal_results::ResultsError),
}

/// An outside text for a message: at most 80 characters, no control characters.
pub(crate) fn short(text: &str) -> String {
    cut(text, 80)
}

/// [`short`], with another limit in characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
