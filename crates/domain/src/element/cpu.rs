//! `<cpu>`: the model and the topology the guest sees.

use roxmltree::Document;
use serde::{Deserialize, Serialize};

use crate::error::DomainError;
use crate::tree;

/// CPU model, topology and features as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuFacts {
    /// `host-passthrough`, `host-model`, `custom`, `maximum`; `None` where nothing is chosen.
    pub mode: Option<String>,
    /// Named model, `Skylake-Server`.
    pub model: Option<String>,
    /// Sockets, cores and threads; `None` where libvirt gives each vCPU a socket.
    pub topology: Option<TopologyFacts>,
    /// Features by name with their policy (`require`, `disable`, …), in their order.
    pub features: Vec<(String, String)>,
    /// `passthrough`, `emulate` or `disable`: the caches the guest sees.
    pub cache: Option<String>,
}

/// Topology of the guest's CPUs. Parts that are not written are 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyFacts {
    /// Sockets.
    pub sockets: u32,
    /// Dies of a socket.
    pub dies: u32,
    /// Clusters of a die.
    pub clusters: u32,
    /// Cores of a cluster.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
}

impl TopologyFacts {
    /// vCPUs this topology has room for.
    pub fn vcpus(&self) -> u64 {
        [self.sockets, self.dies, self.clusters, self.cores, self.threads]
            .into_iter()
            .fold(1u64, |product, part| product.saturating_mul(u64::from(part)))
    }
}

impl CpuFacts {
    /// The policy of a feature, `require` where none is written (libvirt's default).
    pub fn feature(&self, name: &str) -> Option<&str> {
        self.features.iter().find(|(known, _)| known == name).map(|(_, policy)| policy.as_str())
    }
}

pub(crate) fn read(document: &Document<'_>) -> Result<CpuFacts, DomainError> {
    let Some(cpu) = tree::find(document, &["cpu"]) else { return Ok(CpuFacts::default()) };
    let topology = match tree::child(cpu, "topology") {
        None => None,
        Some(node) => {
            let part = |name: &str| Ok::<u32, DomainError>(tree::number(node, name)?.unwrap_or(1));
            Some(TopologyFacts {
                sockets: part("sockets")?,
                dies: part("dies")?,
                clusters: part("clusters")?,
                cores: part("cores")?,
                threads: part("threads")?,
            })
        }
    };
    let features = tree::children(cpu, "feature")
        .filter_map(|node| {
            let policy = tree::attribute(node, "policy").unwrap_or_else(|| "require".to_owned());
            Some((tree::attribute(node, "name")?, policy))
        })
        .collect();
    Ok(CpuFacts {
        mode: tree::attribute(cpu, "mode"),
        model: tree::child_text(cpu, "model"),
        topology,
        features,
        cache: tree::child(cpu, "cache").and_then(|cache| tree::attribute(cache, "mode")),
    })
}
