//! `<cpu><numa><cell>`: NUMA as the guest sees it.

use nearmetal_units::{Bytes, CpuSet};
use roxmltree::Document;
use serde::{Deserialize, Serialize};

use super::memory;
use crate::error::DomainError;
use crate::tree;

/// One guest NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFacts {
    /// Its number.
    pub id: u32,
    /// Its vCPUs, as numbers of the guest.
    pub vcpus: CpuSet,
    /// Its memory.
    pub memory: Bytes,
    /// `shared` or `private`, where it is written; decides over the whole domain's setting.
    #[serde(default)]
    pub access: Option<String>,
}

pub(crate) fn read(document: &Document<'_>) -> Result<Vec<CellFacts>, DomainError> {
    let mut cells = Vec::new();
    for (index, node) in tree::find_all(document, &["cpu", "numa", "cell"]).into_iter().enumerate() {
        let missing = || DomainError::Missing { position: tree::position(node), what: "cell/@memory".to_owned() };
        let text = node.attribute("memory").ok_or_else(missing)?;
        cells.push(CellFacts {
            // Without numbers libvirt counts them in their order.
            id: tree::number(node, "id")?.unwrap_or(index as u32),
            vcpus: tree::cpu_set(node, "cpus")?.unwrap_or_default(),
            memory: memory::scaled(node, "cell/@memory", text)?,
            access: tree::attribute(node, "memAccess"),
        });
    }
    Ok(cells)
}
