//! A job: the directory its commands wrote into, and the report made of it; or one document of `bench`, which is reported
//! alone ([`measurement`]).
//!
//! [`JobFiles`] reads and checks the files, [`assemble`] turns them into the view a report is rendered from. Assembling
//! is pure and invents nothing: what no file says is unknown in the report, and a caveat says which file is missing.

pub(crate) mod arms;
mod assemble;
mod by_nodes;
mod checks;
pub(crate) mod compared;
mod comparisons;
mod costs;
mod describe;
mod document;
mod error;
mod files;
mod fresh;
mod guest;
mod headline;
pub(crate) mod manifest;
pub(crate) mod matrix;
pub(crate) mod measurement;
mod memory;
mod metrics;
pub(crate) mod net_for_plan;
pub(crate) mod net_matrix;
pub(crate) mod outputs;
pub(crate) mod paths;
mod plan;
mod provenance;
mod race;
mod secrets;
mod slice;
mod tiles;
mod together;
pub(crate) mod tuned;

pub(crate) use assemble::assemble;
pub(crate) use document::Document;
pub(crate) use error::JobError;
pub(crate) use files::{JobFiles, load};
pub(crate) use headline::{Figure, headline_numbers};
pub(crate) use secrets::mask;
