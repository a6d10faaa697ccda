//! Whether two domain XMLs say the same: for texts libvirt has printed, where only layout may differ.

use roxmltree::{Document, Node};

use crate::document::{DomainXml, read};
use crate::error::{DomainError, short};

/// The first place where two domains differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the element, `domain/devices/disk[2]/driver`.
    pub path: String,
    /// What the first says there.
    pub before: String,
    /// What the second says there.
    pub after: String,
}

/// Compares two domains, ignoring white space between elements, comments, the order of attributes and the way values
/// are quoted. The order of elements counts: libvirt prints them in one order.
pub fn first_difference(before: &DomainXml, after: &DomainXml) -> Result<Option<Difference>, DomainError> {
    let (before, after): (Document<'_>, Document<'_>) = (read(before.as_str())?, read(after.as_str())?);
    Ok(compare(before.root_element(), after.root_element(), "domain"))
}

/// Whether two domains say the same; see [`first_difference`].
pub fn same_after_canonicalisation(before: &DomainXml, after: &DomainXml) -> Result<bool, DomainError> {
    Ok(first_difference(before, after)?.is_none())
}

// Recursion is bounded: a text nests at most 64 levels.
fn compare(before: Node<'_, '_>, after: Node<'_, '_>, path: &str) -> Option<Difference> {
    let differ = |before: String, after: String| {
        Some(Difference { path: path.to_owned(), before: short(&before), after: short(&after) })
    };
    if before.tag_name() != after.tag_name() {
        return differ(format!("<{}>", before.tag_name().name()), format!("<{}>", after.tag_name().name()));
    }
    let (left, right) = (attributes(before), attributes(after));
    if left != right {
        let only = |these: &[String], those: &[String]| {
            these.iter().filter(|item| !those.contains(item)).cloned().collect::<Vec<_>>().join(" ")
        };
        return differ(only(&left, &right), only(&right, &left));
    }
    let (left, right) = (own_text(before), own_text(after));
    if left != right {
        return differ(left, right);
    }
    let left: Vec<_> = before.children().filter(Node::is_element).collect();
    let right: Vec<_> = after.children().filter(Node::is_element).collect();
    for index in 0..left.len().max(right.len()) {
        let found = match (left.get(index), right.get(index)) {
            (Some(one), Some(other)) => compare(*one, *other, &format!("{path}/{}", step(&left, index))),
            (Some(one), None) => differ(format!("<{}>", one.tag_name().name()), "nothing".to_owned()),
            (None, Some(other)) => differ("nothing".to_owned(), format!("<{}>", other.tag_name().name())),
            (None, None) => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// `disk`, or `disk[2]` among several.
fn step(siblings: &[Node<'_, '_>], index: usize) -> String {
    let name = siblings[index].tag_name().name();
    let same = |node: &&Node<'_, '_>| node.tag_name() == siblings[index].tag_name();
    match siblings.iter().filter(same).count() {
        1 => name.to_owned(),
        _ => format!("{name}[{}]", siblings[..index].iter().filter(same).count() + 1),
    }
}

fn attributes(node: Node<'_, '_>) -> Vec<String> {
    let mut list: Vec<String> = node
        .attributes()
        .map(|attribute| {
            format!("{}{}='{}'", attribute.namespace().unwrap_or_default(), attribute.name(), attribute.value())
        })
        .collect();
    list.sort();
    list
}

fn own_text(node: Node<'_, '_>) -> String {
    let pieces = node.children().filter(Node::is_text).filter_map(|child| child.text());
    pieces.map(str::trim).filter(|piece| !piece.is_empty()).collect::<Vec<_>>().join(" ")
}
