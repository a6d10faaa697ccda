//! What can go wrong while the host's work is counted.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// What was counted says nothing.
    #[error("{0}")]
    Unfit(String),
    /// The kernel refused a read.
    #[error("{what}")]
    Kernel {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: nearmetal_host::ReadError,
    },
    /// The kernel refused a write.
    #[error("{what}")]
    KernelWrite {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: nearmetal_host::WriteError,
    },
}
