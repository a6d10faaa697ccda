//! `<cpu>`: the model and the topology the guest sees.

use roxmltree::Document;
use serde::{Deserialize, Serialize};

use super::vcpu;
use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

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

impl DomainXml {
    /// Shows the guest so many sockets, cores of a socket and threads of a core; dies and clusters that are written become
    /// one a socket.
    ///
    /// # Errors
    /// Their product is not the number of vCPUs the domain can have, which libvirt refuses.
    pub fn set_topology(&mut self, sockets: u32, cores: u32, threads: u32) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let maximum = vcpu::read(document)?.maximum;
            let parts = TopologyFacts { sockets, dies: 1, clusters: 1, cores, threads };
            if parts.vcpus() != u64::from(maximum) {
                let shown = format!("{sockets} sockets, {cores} cores, {threads} threads for {maximum} vCPUs");
                return Err(DomainError::argument("the topology", &shown, "its product is the number of vCPUs"));
            }
            let wanted = [("sockets", sockets), ("dies", 1), ("cores", cores), ("threads", threads)];
            let new = wanted
                .iter()
                .fold(Fragment::new("topology"), |topology, (name, count)| topology.attribute(*name, count));
            let root = document.root_element();
            let Some(cpu) = tree::child(root, "cpu") else {
                let before = order::before("domain", "cpu").unwrap_or_default();
                edits.insert_behind(root, before, &Fragment::new("cpu").child(new));
                return Ok(());
            };
            let Some(present) = tree::child(cpu, "topology") else {
                edits.insert_behind(cpu, order::before("cpu", "topology").unwrap_or_default(), &new);
                return Ok(());
            };
            for (name, count) in wanted.into_iter().chain([("clusters", 1)]) {
                // Parts that are not written are 1.
                if tree::number::<u32>(present, name).ok().flatten().unwrap_or(1) != count {
                    edits.set_attribute(present, name, &count.to_string());
                }
            }
            Ok(())
        })
    }
}
