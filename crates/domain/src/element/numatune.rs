//! `<numatune>`: the host nodes guest memory comes from.

use nearmetal_units::NodeSet;
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use crate::document::DomainXml;
use crate::edit::Edits;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

/// Memory policy of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NumatuneFacts {
    /// `strict` (libvirt's default), `preferred`, `interleave`, `restrictive`.
    pub mode: Option<String>,
    /// Host nodes.
    pub nodes: Option<NodeSet>,
    /// `static` or `auto` (numad chooses), where it is written.
    pub placement: Option<String>,
    /// Policies of single guest cells.
    pub cells: Vec<MemnodeFacts>,
}

/// Memory policy of one guest cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemnodeFacts {
    /// Guest cell.
    pub cell: u32,
    /// As in [`NumatuneFacts::mode`].
    pub mode: Option<String>,
    /// Host nodes.
    pub nodes: Option<NodeSet>,
}

pub(crate) fn read(document: &Document<'_>) -> Result<Option<NumatuneFacts>, DomainError> {
    let Some(numatune) = tree::find(document, &["numatune"]) else { return Ok(None) };
    let mut facts = NumatuneFacts::default();
    if let Some(memory) = tree::child(numatune, "memory") {
        facts.mode = tree::attribute(memory, "mode");
        facts.nodes = tree::node_set(memory, "nodeset")?;
        facts.placement = tree::attribute(memory, "placement");
    }
    for node in tree::children(numatune, "memnode") {
        let missing = || DomainError::Missing { position: tree::position(node), what: "memnode/@cellid".to_owned() };
        facts.cells.push(MemnodeFacts {
            cell: tree::number(node, "cellid")?.ok_or_else(missing)?,
            mode: tree::attribute(node, "mode"),
            nodes: tree::node_set(node, "nodeset")?,
        });
    }
    Ok(Some(facts))
}

impl DomainXml {
    /// Takes all guest memory from these nodes, strictly. Policies of single cells stay where they are strict and
    /// inside these nodes; others go, since they would override the nodes set here. An empty set removes the policy.
    pub fn set_numatune_strict(&mut self, nodes: &NodeSet) -> Result<bool, DomainError> {
        if nodes.is_empty() {
            return self.remove_numatune();
        }
        self.rewrite(|document, edits| {
            let memory = Fragment::new("memory").attribute("mode", "strict").attribute("nodeset", nodes);
            let root = document.root_element();
            let Some(numatune) = tree::child(root, "numatune") else {
                let before = order::before("domain", "numatune").unwrap_or_default();
                edits.insert_behind(root, before, &Fragment::new("numatune").child(memory));
                return Ok(());
            };
            match tree::child(numatune, "memory") {
                Some(present) => set_memory(edits, present, nodes),
                None => edits.insert_first(numatune, &memory),
            }
            for cell in tree::children(numatune, "memnode").filter(|cell| !inside(*cell, nodes)) {
                edits.remove(cell);
            }
            Ok(())
        })
    }

    /// Takes the memory of guest cell n from the n-th nodes, strictly. Policies of other cells go: libvirt refuses one of a
    /// cell that is not there. There must be a `<numatune>` already.
    pub(crate) fn set_memnodes_strict(&mut self, cells: &[NodeSet]) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let Some(numatune) = tree::find(document, &["numatune"]) else { return Ok(()) };
            let mut present: Vec<Option<Node<'_, '_>>> = vec![None; cells.len()];
            for node in tree::children(numatune, "memnode") {
                match tree::number::<usize>(node, "cellid")?.and_then(|cell| present.get_mut(cell)) {
                    Some(place @ None) => *place = Some(node),
                    _ => edits.remove(node),
                }
            }
            let mut new = Vec::new();
            for (cell, (node, nodes)) in present.into_iter().zip(cells).enumerate() {
                let Some(node) = node else {
                    let fragment = Fragment::new("memnode").attribute("cellid", cell).attribute("mode", "strict");
                    new.push(fragment.attribute("nodeset", nodes));
                    continue;
                };
                edits.set_attribute(node, "mode", "strict");
                if tree::node_set(node, "nodeset").ok().flatten().as_ref() != Some(nodes) {
                    edits.set_attribute(node, "nodeset", &nodes.to_string());
                }
            }
            edits.insert_all_behind(numatune, &["memory", "memnode"], &new);
            Ok(())
        })
    }

    /// Leaves memory to the kernel's default policy.
    pub fn remove_numatune(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            tree::find_all(document, &["numatune"]).into_iter().for_each(|node| edits.remove(node));
            Ok(())
        })
    }
}

fn set_memory(edits: &mut Edits<'_>, memory: Node<'_, '_>, nodes: &NodeSet) {
    edits.set_attribute(memory, "mode", "strict");
    if tree::node_set(memory, "nodeset").ok().flatten().as_ref() != Some(nodes) {
        edits.set_attribute(memory, "nodeset", &nodes.to_string());
    }
    // With placement='auto' libvirt asks numad and does not look at the nodeset.
    if memory.attribute("placement").is_some_and(|placement| placement != "static") {
        edits.remove_attribute(memory, "placement");
    }
}

fn inside(cell: Node<'_, '_>, nodes: &NodeSet) -> bool {
    let strict = cell.attribute("mode").is_none_or(|mode| mode == "strict");
    strict && tree::node_set(cell, "nodeset").ok().flatten().is_some_and(|own| own.is_subset(nodes))
}
