//! What can be wrong with a load, and with what its program printed.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A program's output was not what it prints, or a document not what its schema says.
    #[error("cannot read {what}: {why}; it began: {text}")]
    Unreadable {
        /// Whose output, or which document.
        what: String,
        /// What is wrong with it.
        why: String,
        /// Its beginning.
        text: String,
    },
    /// A program ran and failed.
    #[error("{what} failed: {why}")]
    WorkloadFailed {
        /// Program.
        what: String,
        /// Its own words.
        why: String,
    },
    /// The load does not fit what is done with it.
    #[error("{0}")]
    Unfit(String),
    /// What was asked for cannot be: another argument is the remedy, and the words name it.
    #[error("{0}")]
    Asked(String),
}
