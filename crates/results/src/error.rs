//! What can go wrong with what was measured.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A document that cannot be read.
    #[error(transparent)]
    Load(#[from] nearmetal_load::LoadError),
    /// What was asked for cannot be: another argument is the remedy, and the words name it.
    #[error("{0}")]
    Asked(String),
    /// A store of a newer nearmetal.
    #[error("{0}")]
    Newer(String),
    /// The results store.
    #[error("results store `{path}`")]
    Store {
        /// Path.
        path: String,
        /// SQLite's answer.
        #[source]
        source: rusqlite::Error,
    },
    /// The figures do not allow a statement.
    #[error("statistics")]
    Statistics(#[from] nearmetal_stats::StatsError),
}

impl ResultsError {
    /// Whether it is about what the user named, and not about this machine.
    pub fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Asked(_) | Self::Load(nearmetal_load::LoadError::Asked(_)))
    }
}
