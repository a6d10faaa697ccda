//! `<vcpu>`: how many, and whether libvirt or numad chooses where.

use nearmetal_units::CpuSet;
use roxmltree::Document;
use serde::{Deserialize, Serialize};

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::tree;

/// Virtual CPUs of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuFacts {
    /// The most it can have.
    pub maximum: u32,
    /// How many it starts with.
    pub current: u32,
    /// `static` or `auto` (numad chooses), where it is written.
    pub placement: Option<String>,
    /// PUs of all its threads that have no pin of their own.
    pub cpuset: Option<CpuSet>,
}

pub(crate) fn read(document: &Document<'_>) -> Result<VcpuFacts, DomainError> {
    // A domain without <vcpu> has one (virDomainVcpuParse).
    let Some(node) = tree::find(document, &["vcpu"]) else {
        return Ok(VcpuFacts { maximum: 1, current: 1, placement: None, cpuset: None });
    };
    let maximum = tree::whole_number(node, "<vcpu>", &tree::text(node))?;
    let current = tree::number(node, "current")?.unwrap_or(maximum);
    if maximum == 0 || current == 0 || current > maximum {
        return Err(tree::bad_value(
            node,
            "<vcpu>",
            &format!("{current} of {maximum}"),
            "at least 1, and current at most the maximum",
        ));
    }
    Ok(VcpuFacts {
        maximum,
        current,
        placement: tree::attribute(node, "placement"),
        cpuset: tree::cpu_set(node, "cpuset")?,
    })
}

impl DomainXml {
    /// Takes the choice of PUs away from numad. Without `placement='auto'` there is nothing to do: static is the default.
    pub fn set_vcpu_placement_static(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for node in
                tree::find(document, &["vcpu"]).into_iter().filter(|node| node.attribute("placement") == Some("auto"))
            {
                edits.set_attribute(node, "placement", "static");
            }
            Ok(())
        })
    }
}
