//! Reading the tree: children and attributes by name, values with their place in errors.

use std::str::FromStr;

use nearmetal_units::{CpuSet, IndexSet, Kind, NodeSet};
use roxmltree::{Document, Node};

use crate::edit::is_plain;
use crate::error::{DomainError, Position, short};

/// The place of an element.
pub(crate) fn position(node: Node<'_, '_>) -> Position {
    Position::at(node.document().input_text(), node.range().start)
}

/// The first child of that name, in no namespace.
pub(crate) fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    children(node, name).next()
}

/// The children of that name, in no namespace.
pub(crate) fn children<'a, 'i, 'n>(
    node: Node<'a, 'i>,
    name: &'n str,
) -> impl Iterator<Item = Node<'a, 'i>> + use<'a, 'i, 'n> {
    node.children().filter(move |child| is_plain(*child) && child.tag_name().name() == name)
}

/// The first element at that path below the root.
pub(crate) fn find<'a, 'i>(document: &'a Document<'i>, path: &[&str]) -> Option<Node<'a, 'i>> {
    path.iter().try_fold(document.root_element(), |node, name| child(node, name))
}

/// All elements at that path below the root, through all parents of these names.
pub(crate) fn find_all<'a, 'i>(document: &'a Document<'i>, path: &[&str]) -> Vec<Node<'a, 'i>> {
    path.iter().fold(vec![document.root_element()], |nodes, name| {
        nodes.into_iter().flat_map(|node| children(node, name)).collect()
    })
}

/// The text of an element, trimmed.
pub(crate) fn text(node: Node<'_, '_>) -> String {
    node.children().filter(Node::is_text).filter_map(|part| part.text()).collect::<String>().trim().to_owned()
}

/// The text of the child of that name, trimmed; `None` where it is missing or empty.
pub(crate) fn child_text(node: Node<'_, '_>, name: &str) -> Option<String> {
    child(node, name).map(text).filter(|text| !text.is_empty())
}

/// An attribute as an owned string.
pub(crate) fn attribute(node: Node<'_, '_>, name: &str) -> Option<String> {
    node.attribute(name).map(str::to_owned)
}

/// The error of a value.
pub(crate) fn bad_value(node: Node<'_, '_>, what: &str, value: &str, rule: impl ToString) -> DomainError {
    DomainError::BadValue {
        position: position(node),
        what: what.to_owned(),
        value: short(value),
        rule: rule.to_string(),
    }
}

/// A whole number from an attribute, in decimal or, behind `0x`, in hex as in libvirt's PCI addresses.
pub(crate) fn number<T: TryFrom<u64>>(node: Node<'_, '_>, name: &str) -> Result<Option<T>, DomainError> {
    node.attribute(name)
        .map(|value| whole_number(node, &format!("{}/@{name}", node.tag_name().name()), value))
        .transpose()
}

/// A whole number from a text.
pub(crate) fn whole_number<T: TryFrom<u64>>(node: Node<'_, '_>, what: &str, value: &str) -> Result<T, DomainError> {
    let trimmed = value.trim();
    let parsed = match trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        None if trimmed.bytes().all(|b| b.is_ascii_digit()) => trimmed.parse().ok(),
        _ => None,
    };
    parsed
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| bad_value(node, what, value, "a whole number in range is needed"))
}

/// A CPU set from an attribute.
pub(crate) fn cpu_set(node: Node<'_, '_>, name: &str) -> Result<Option<CpuSet>, DomainError> {
    set(node, name)
}

/// A node set from an attribute.
pub(crate) fn node_set(node: Node<'_, '_>, name: &str) -> Result<Option<NodeSet>, DomainError> {
    set(node, name)
}

fn set<K: Kind>(node: Node<'_, '_>, name: &str) -> Result<Option<IndexSet<K>>, DomainError> {
    let Some(value) = node.attribute(name) else { return Ok(None) };
    let what = format!("{}/@{name}", node.tag_name().name());
    parse_set(value).map(Some).map_err(|error| bad_value(node, &what, value, error.rule))
}

/// libvirt's form of a set: the kernel's, and `^N` takes N out of what stands before it.
pub(crate) fn parse_set<K: Kind>(text: &str) -> Result<IndexSet<K>, nearmetal_units::ParseError> {
    let mut members = IndexSet::<K>::new();
    for part in text.split(',') {
        match part.trim().strip_prefix('^') {
            Some(index) if !index.contains('-') => {
                for index in IndexSet::<K>::from_str(index)?.iter() {
                    members.remove(index);
                }
            }
            _ => members = members.union(&IndexSet::from_str(part)?),
        }
    }
    Ok(members)
}
