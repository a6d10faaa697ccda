//! `<iothreads>`, `<iothreadids>` and their pins.

use std::collections::BTreeSet;

use nearmetal_units::CpuSet;
use roxmltree::Document;
use serde::{Deserialize, Serialize};

use super::cputune;
use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

/// libvirt names no limit; QEMU gives each a thread. More than this is a damaged text.
const MAX_IOTHREADS: u32 = 1024;

/// Iothreads of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IothreadFacts {
    /// Their numbers, rising.
    pub ids: Vec<u32>,
    /// Pins, as (iothread number, PUs).
    pub pins: Vec<(u32, CpuSet)>,
    /// Longest polling, as (iothread number, ns), where it is written; 0 is no polling.
    #[serde(default)]
    pub polling: Vec<(u32, u64)>,
}

pub(crate) fn read(document: &Document<'_>) -> Result<IothreadFacts, DomainError> {
    let pins = cputune::iothread_pins(document)?.into_iter().collect();
    let mut polling = Vec::new();
    for node in tree::find_all(document, &["iothreadids", "iothread"]) {
        if let (Some(id), Some(poll)) = (tree::number(node, "id")?, tree::child(node, "poll")) {
            polling.extend(tree::number(poll, "max")?.map(|max| (id, max)));
        }
    }
    Ok(IothreadFacts { ids: ids(document)?.into_iter().collect(), pins, polling })
}

/// The numbers of all iothreads. `<iothreads>` says how many; `<iothreadids>` names some of them, and libvirt numbers
/// the others from 1 with what is not taken. More names than the count raise the count.
fn ids(document: &Document<'_>) -> Result<BTreeSet<u32>, DomainError> {
    let count = match tree::find(document, &["iothreads"]) {
        Some(node) => {
            let count: u32 = tree::whole_number(node, "<iothreads>", &tree::text(node))?;
            if count > MAX_IOTHREADS {
                return Err(tree::bad_value(node, "<iothreads>", &count.to_string(), "at most 1024"));
            }
            count
        }
        None => 0,
    };
    let mut ids = BTreeSet::new();
    for node in tree::find_all(document, &["iothreadids", "iothread"]) {
        if let Some(id) = tree::number::<u32>(node, "id")? {
            ids.insert(id);
        }
    }
    let mut next = 1;
    while ids.len() < count as usize {
        ids.insert(next);
        next += 1;
    }
    Ok(ids)
}

impl DomainXml {
    /// Gives the domain iothreads 1 to n, the k-th pinned to the k-th set.
    ///
    /// Iothreads beyond these stay, since other devices may name them, and are pinned to all PUs given here: without a
    /// pin they would run on the vCPUs' PUs. With an empty list nothing changes but the pins, which go.
    ///
    /// # Errors
    /// An empty CPU set, or more than 1024 of them.
    pub fn set_iothreads(&mut self, sets: &[CpuSet]) -> Result<bool, DomainError> {
        if sets.len() > MAX_IOTHREADS as usize {
            return Err(DomainError::argument("the number of iothreads", &sets.len().to_string(), "at most 1024"));
        }
        let pins: Vec<(u32, CpuSet)> = (1u32..).zip(sets.iter().cloned()).collect();
        let mut pins = cputune::checked(&pins, "an iothread pin")?;
        self.rewrite(|document, edits| {
            let before = ids(document)?;
            let all: BTreeSet<u32> = before.iter().copied().chain(pins.keys().copied()).collect();
            let everywhere = sets.iter().fold(CpuSet::new(), |all, set| all.union(set));
            if !sets.is_empty() {
                for id in &all {
                    pins.entry(*id).or_insert_with(|| everywhere.clone());
                }
            }
            let root = document.root_element();
            let count = all.len().to_string();
            match tree::find(document, &["iothreads"]) {
                Some(_) if all == before => {}
                Some(node) => edits.set_text(node, &count),
                None if sets.is_empty() => {}
                None => edits.insert_behind(root, &["vcpu", "vcpus"], &Fragment::new("iothreads").text(&count)),
            }
            // Names are needed only where libvirt's own numbering would give others.
            if let Some(list) = tree::find(document, &["iothreadids"]) {
                let new: Vec<Fragment> =
                    all.difference(&before).map(|id| Fragment::new("iothread").attribute("id", id)).collect();
                edits.insert_all_behind(list, &["iothread"], &new);
            }
            cputune::set_pins(document, edits, &cputune::IOTHREAD, &pins)
        })
    }
}
