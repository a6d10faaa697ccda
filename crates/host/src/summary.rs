//! The head of `nearmetal inspect --format json`, and the whole document.

use std::collections::BTreeSet;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Host, invariants};

/// Name and version of the document's form. The number rises when a field changes its meaning or goes.
pub const SCHEMA: &str = "nearmetal.host/1";

/// Counts of a host. `None`: the source does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Distinct package numbers of online PUs.
    pub packages: Option<usize>,
    /// NUMA nodes, CPU-less and memory-less ones included.
    pub numa_nodes: usize,
    /// Cores with an online PU.
    pub cores: usize,
    /// Online PUs.
    pub pus: usize,
    /// PCI functions, virtual ones included.
    pub pci_devices: usize,
    /// Memory of all nodes, in bytes.
    pub memory: Option<Bytes>,
}

/// A host as published: schema name, summary, what contradicts itself, everything.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    summary: Summary,
    contradictions: Vec<String>,
    host: &'a Host,
}

impl<'a> Document<'a> {
    /// The document of a host.
    pub fn new(host: &'a Host) -> Self {
        let contradictions = invariants::check(host).iter().map(ToString::to_string).collect();
        Self { schema: SCHEMA, summary: host.summary(), contradictions, host }
    }

    /// As indented JSON. A host is plain data with text keys, so that this cannot fail; if it did, the document says so.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()))
    }
}

impl Host {
    /// Counts of this host.
    pub fn summary(&self) -> Summary {
        let online = || self.processors.iter().filter(|processor| processor.online);
        let packages: Option<BTreeSet<u32>> = online().map(|processor| processor.package).collect();
        let memory = self.nodes.iter().map(|node| node.memory_total).collect::<Option<Vec<Bytes>>>();
        Summary {
            packages: packages.map(|packages| packages.len()).filter(|count| *count > 0),
            numa_nodes: self.nodes.len(),
            cores: self.cores.len(),
            pus: online().count(),
            pci_devices: self.pci_devices.len(),
            memory: memory.map(|nodes| nodes.into_iter().fold(Bytes::ZERO, Bytes::plus)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::synthetic::Synthetic;

    use super::*;

    #[test]
    fn what_is_not_known_is_null_not_zero() {
        let mut host = Synthetic::new().packages(2).nvme(0).build();
        let summary = host.summary();
        assert_eq!((summary.packages, summary.pus, summary.memory), (Some(2), 4, Some(Bytes::from_mib(8192))));
        host.nodes[1].memory_total = None;
        host.processors[0].package = None;
        assert_eq!((host.summary().packages, host.summary().memory), (None, None));
    }

    #[test]
    fn the_document_reads_back() {
        let host = Synthetic::new().packages(2).threads(2).nvme(1).network(0, 4, 2).build();
        let json: serde_json::Value = serde_json::from_str(&Document::new(&host).to_json()).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["summary"]["numa_nodes"], 2);
        assert_eq!(serde_json::from_value::<Host>(json["host"].clone()).unwrap(), host);
    }
}
