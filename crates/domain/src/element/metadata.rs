//! `<metadata>`: nearmetal's own mark of the workload class, and other programs' data.

use roxmltree::Document;

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::tree;

/// Namespace of nearmetal's elements in `<metadata>`:
/// `<nearmetal:class xmlns:nearmetal='https://nearmetal.invalid/xmlns/domain/1'>latency</nearmetal:class>`.
pub const NAMESPACE: &str = "https://nearmetal.invalid/xmlns/domain/1";

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
    /// Removes `<metadata>`: a copy of a domain is not what other programs wrote about the original.
    pub fn remove_metadata(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            tree::find_all(document, &["metadata"]).into_iter().for_each(|node| edits.remove(node));
            Ok(())
        })
    }
}
