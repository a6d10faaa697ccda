//! Units and identifiers, parsed and printed in one place. No I/O.

mod bytes;
mod index_set;
mod network;
mod pci_address;
mod seconds;

pub use bytes::{Bytes, PageSize};
pub use index_set::{Cpu, CpuSet, IndexSet, Kind, Node, NodeSet};
pub use network::{MacAddress, VlanId};
pub use pci_address::PciAddress;
pub use seconds::seconds;

/// A text that is not what it should be: names the kind, the text and the rule it broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}: {rule}")]
pub struct ParseError {
    /// What was expected, with its article: `a CPU list`.
    pub kind: &'static str,
    /// The text as given, cut to 80 characters.
    pub text: String,
    /// What it must look like.
    pub rule: &'static str,
}

impl ParseError {
    pub(crate) fn new(kind: &'static str, text: &str, rule: &'static str) -> Self {
        Self { kind, text: text.chars().take(80).collect(), rule }
    }
}
