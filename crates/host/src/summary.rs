//! The head of `nearmetal inspect --format json`, and the whole document.

use std::collections::BTreeSet;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Core, Host, invariants};

/// Name and version of the document's form. The number rises when a field changes its meaning or goes.
pub const SCHEMA: &str = "nearmetal.host/1";

/// Counts of a host. `None`: the source does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Packages with an online PU, by the kernel's sets of PUs: 64 on a POWER7 that numbers none of them.
    pub packages: Option<usize>,
    /// NUMA nodes, CPU-less and memory-less ones included.
    pub numa_nodes: usize,
    /// Cores with an online PU, as the vendor and hwloc count them: a module of AMD family 15h counts two, and is one
    /// entry of [`Host::cores`].
    pub cores: usize,
    /// Online PUs.
    pub pus: usize,
    /// PCI functions, virtual ones included, bridges between PCI buses (class 0x0604) not.
    pub pci_devices: usize,
    /// Bridges between PCI buses.
    #[serde(default)]
    pub pci_bridges: usize,
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
        let numbers: Option<BTreeSet<u32>> = online().map(|processor| processor.package).collect();
        let packages = match self.packages.len() {
            0 => numbers.map(|numbers| numbers.len()).filter(|count| *count > 0),
            count => Some(count),
        };
        let bridges = self.pci_devices.iter().filter(|device| device.is_bridge()).count();
        let memory = self.nodes.iter().map(|node| node.memory_total).collect::<Option<Vec<Bytes>>>();
        Summary {
            packages,
            numa_nodes: self.nodes.len(),
            cores: self.cores.iter().map(Core::count).sum(),
            pus: online().count(),
            pci_devices: self.pci_devices.len() - bridges,
            pci_bridges: bridges,
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
        host.packages.clear();
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
