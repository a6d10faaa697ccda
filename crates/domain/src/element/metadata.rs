//! `<metadata>`: nearmetal's own mark of the workload class, and other programs' data.

use roxmltree::Document;

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

/// Namespace of nearmetal's elements in `<metadata>`:
/// `<nearmetal:class xmlns:nearmetal='https://nearmetal.invalid/xmlns/domain/1'>latency</nearmetal:class>`.
pub const NAMESPACE: &str = "https://nearmetal.invalid/xmlns/domain/1";

/// Namespace of the mark of an instance that a measurement started. libvirt keeps one element of each namespace in `<metadata>`
/// and drops the others (`virXMLNodeSanitizeNamespaces`), so it cannot stand in that of the class.
const TURN_NAMESPACE: &str = "https://nearmetal.invalid/xmlns/turn/1";

/// The workload class written in the domain, as written.
pub(crate) fn class(document: &Document<'_>) -> Option<String> {
    let metadata = tree::find(document, &["metadata"])?;
    let class = metadata.children().find(|node| node.has_tag_name((NAMESPACE, "class")))?;
    Some(tree::text(class)).filter(|text| !text.is_empty())
}

/// The operating system virt-install noted in libosinfo's metadata, such as `http://microsoft.com/win/11`.
pub(crate) fn operating_system(document: &Document<'_>) -> Option<String> {
    let metadata = tree::find(document, &["metadata"])?;
    let named = |name: &'static str| {
        move |node: &roxmltree::Node<'_, '_>| {
            node.tag_name().name() == name
                && node.tag_name().namespace().is_some_and(|space| space.starts_with("http://libosinfo.org/"))
        }
    };
    let libosinfo = metadata.children().find(named("libosinfo"))?;
    libosinfo.children().find(named("os")).and_then(|os| tree::attribute(os, "id"))
}

impl DomainXml {
    /// Marks a definition as one that a measurement starts the domain with for a turn; `arm` says which.
    pub fn set_turn(&mut self, arm: &str) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let mark = Fragment::new("nearmetal-turn:arm").attribute("xmlns:nearmetal-turn", TURN_NAMESPACE).text(arm);
            let root = document.root_element();
            match tree::child(root, "metadata") {
                Some(metadata) => {
                    let old = metadata.children().filter(|node| node.has_tag_name((TURN_NAMESPACE, "arm")));
                    old.for_each(|node| edits.remove(node));
                    edits.insert_last(metadata, &mark);
                }
                None => {
                    let before = order::before("domain", "metadata").unwrap_or_default();
                    edits.insert_behind(root, before, &Fragment::new("metadata").child(mark));
                }
            }
            Ok(())
        })
    }

    /// The arm of a measurement that a definition is marked with, if it is.
    pub fn turn(&self) -> Result<Option<String>, DomainError> {
        self.with_tree(|document| {
            let metadata = tree::find(document, &["metadata"]);
            let mut marks = metadata.into_iter().flat_map(|node| node.children());
            Ok(marks.find(|node| node.has_tag_name((TURN_NAMESPACE, "arm"))).map(tree::text))
        })
    }

    /// Removes `<metadata>`: a copy of a domain is not what other programs wrote about the original.
    pub fn remove_metadata(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            tree::find_all(document, &["metadata"]).into_iter().for_each(|node| edits.remove(node));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_marked_beside_what_others_wrote_and_once() {
        let bare = "<domain type='kvm'>\n  <name>a</name>\n  <memory>1</memory>\n  <vcpu>1</vcpu>\n</domain>";
        let class =
            format!("<metadata><nearmetal:class xmlns:nearmetal='{NAMESPACE}'>latency</nearmetal:class></metadata>");
        let with_class = bare.replace("<memory>", &format!("{class}\n  <memory>"));
        for text in [bare, &with_class] {
            let mut xml = DomainXml::parse(text).unwrap();
            assert_eq!(xml.turn().unwrap(), None);
            for arm in ["as-found", "node.small.none-native.main-loop"] {
                assert!(xml.set_turn(arm).unwrap());
                assert_eq!(xml.turn().unwrap().as_deref(), Some(arm), "{}", xml.as_str());
            }
            assert_eq!(xml.as_str().matches("turn:arm>").count(), 1, "{}", xml.as_str());
            let kept = (text != bare).then(|| "latency".to_owned());
            assert_eq!(xml.facts().unwrap().class, kept);
        }
    }
}
