//! What an experiment leaves, whichever it is.

use crate::disk::MatrixResults;
use crate::net::NetMatrixResults;
use crate::results::Results;

/// What an experiment leaves.
#[derive(Debug, Clone, PartialEq)]
pub enum Measurement {
    /// Arms in pairs.
    Results(Box<Results>),
    /// A race of ways to a disk.
    Disk(Box<MatrixResults>),
    /// A race of ways to a network.
    Net(Box<NetMatrixResults>),
}

impl From<Results> for Measurement {
    fn from(results: Results) -> Self {
        Self::Results(Box::new(results))
    }
}

impl From<MatrixResults> for Measurement {
    fn from(results: MatrixResults) -> Self {
        Self::Disk(Box::new(results))
    }
}

impl From<NetMatrixResults> for Measurement {
    fn from(results: NetMatrixResults) -> Self {
        Self::Net(Box::new(results))
    }
}
