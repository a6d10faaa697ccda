//! `<memoryBacking>`: the page size guest memory is backed with.

use nearmetal_units::{NodeSet, PageSize};
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use super::memory;
use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

/// One `<page>` of `<hugepages>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepageFacts {
    /// Page size.
    pub size: PageSize,
    /// Guest cells it is for; `None` for all.
    pub cells: Option<NodeSet>,
}

/// `None` without `<hugepages>`; an empty list means the host's default size.
pub(crate) fn read(document: &Document<'_>) -> Result<Option<Vec<HugepageFacts>>, DomainError> {
    let Some(hugepages) = tree::find(document, &["memoryBacking", "hugepages"]) else { return Ok(None) };
    tree::children(hugepages, "page")
        .map(|page| Ok(HugepageFacts { size: page_size(page)?, cells: tree::node_set(page, "nodeset")? }))
        .collect::<Result<Vec<_>, DomainError>>()
        .map(Some)
}

fn page_size(page: Node<'_, '_>) -> Result<PageSize, DomainError> {
    let missing = || DomainError::Missing { position: tree::position(page), what: "page/@size".to_owned() };
    let text = page.attribute("size").ok_or_else(missing)?;
    let bytes = memory::scaled(page, "page/@size", text)?;
    PageSize::try_from(bytes).map_err(|error| tree::bad_value(page, "page/@size", text, error.rule))
}

impl DomainXml {
    /// Backs all guest memory with huge pages of one size. Other children of `<memoryBacking>` stay.
    pub fn set_hugepages(&mut self, size: PageSize) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            // libvirt prints page sizes in KiB.
            let page = Fragment::new("page").attribute("size", size.bytes().kib()).attribute("unit", "KiB");
            let hugepages = Fragment::new("hugepages").child(page.clone());
            let root = document.root_element();
            let Some(backing) = tree::child(root, "memoryBacking") else {
                let fragment = Fragment::new("memoryBacking").child(hugepages);
                let before = order::before("domain", "memoryBacking").unwrap_or_default();
                edits.insert_behind(root, before, &fragment);
                return Ok(());
            };
            let Some(present) = tree::child(backing, "hugepages") else {
                edits.insert_first(backing, &hugepages);
                return Ok(());
            };
            let pages: Vec<_> = tree::children(present, "page").collect();
            let fits = |page: &Node<'_, '_>| page_size(*page).ok() == Some(size) && page.attribute("nodeset").is_none();
            if pages.iter().any(fits) && pages.len() == 1 {
                return Ok(());
            }
            match pages.split_first() {
                None => edits.insert_first(present, &page),
                Some((first, others)) => {
                    others.iter().for_each(|other| edits.remove(*other));
                    edits.remove_attribute(*first, "nodeset");
                    if page_size(*first).ok() != Some(size) {
                        edits.set_attribute(*first, "size", &size.bytes().kib().to_string());
                        edits.set_attribute(*first, "unit", "KiB");
                    }
                }
            }
            Ok(())
        })
    }

    /// Leaves the page size to the kernel; `<memoryBacking>` goes too if nothing else stands in it.
    pub fn remove_hugepages(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for backing in tree::find_all(document, &["memoryBacking"]) {
                let (gone, kept): (Vec<_>, Vec<_>) = backing
                    .children()
                    .filter(|node| !node.is_text())
                    .partition(|node| crate::edit::is_plain(*node) && node.tag_name().name() == "hugepages");
                match (gone.is_empty(), kept.is_empty()) {
                    (true, _) => {}
                    (false, true) => edits.remove(backing),
                    (false, false) => gone.into_iter().for_each(|node| edits.remove(node)),
                }
            }
            Ok(())
        })
    }
}
