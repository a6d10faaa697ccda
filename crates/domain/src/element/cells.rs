//! `<cpu><numa><cell>`: NUMA as the guest sees it.

use nearmetal_units::{Bytes, CpuSet, NodeSet};
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use super::{memory, vcpu};
use crate::document::DomainXml;
use crate::edit::Edits;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

/// Distance of a cell to itself, and the largest there is (ACPI's SLIT; virNumaDistance in libvirt).
const LOCAL: u32 = 10;
const FARTHEST: u32 = 255;

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
    /// Distances as (cell, distance), as written; 10 is local.
    #[serde(default)]
    pub distances: Vec<(u32, u32)>,
}

/// One guest NUMA node to be written, and where its memory comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its vCPUs, as numbers of the guest.
    pub vcpus: CpuSet,
    /// Its memory, in whole KiB.
    pub memory: Bytes,
    /// Host nodes the memory comes from, strictly.
    pub nodes: NodeSet,
    /// Distance to each cell by its number, 10 to itself; empty: not told to the guest.
    pub distances: Vec<u32>,
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
            distances: distances(node)?,
        });
    }
    Ok(cells)
}

fn distances(cell: Node<'_, '_>) -> Result<Vec<(u32, u32)>, DomainError> {
    let siblings = tree::children(cell, "distances").flat_map(|list| tree::children(list, "sibling"));
    let pairs = siblings.map(|sibling| Ok(tree::number(sibling, "id")?.zip(tree::number(sibling, "value")?)));
    pairs.filter_map(Result::transpose).collect()
}

impl DomainXml {
    /// Shows the guest these NUMA cells, numbered in their order, and takes the memory of each from its nodes, strictly.
    ///
    /// What else cells have (`memAccess`, caches) stays. Cells beyond these, and memory policies of cells beyond these, go.
    ///
    /// # Errors
    /// The cells' vCPUs are not exactly the domain's, or their memory does not add up to its memory (libvirt would follow
    /// the cells and change the domain's memory); a cell without vCPUs, memory or nodes; distances that are not those of a
    /// matrix with 10 on its diagonal and more beside it.
    pub fn set_cells(&mut self, cells: &[Cell]) -> Result<bool, DomainError> {
        check_shape(cells)?;
        let mut next = self.clone();
        let mut changed = next.rewrite(|document, edits| {
            check_sums(document, cells)?;
            write(document, edits, cells);
            Ok(())
        })?;
        let all = cells.iter().fold(NodeSet::new(), |all, cell| all.union(&cell.nodes));
        changed |= next.set_numatune_strict(&all)?;
        let nodes: Vec<NodeSet> = cells.iter().map(|cell| cell.nodes.clone()).collect();
        changed |= next.set_memnodes_strict(&nodes)?;
        *self = next;
        Ok(changed)
    }
}

fn check_shape(cells: &[Cell]) -> Result<(), DomainError> {
    let wrong = |value: &str, rule| Err(DomainError::argument("the guest's cells", value, rule));
    let mut seen = CpuSet::new();
    for (number, cell) in cells.iter().enumerate() {
        let name = format!("cell {number}");
        if cell.vcpus.is_empty() || cell.nodes.is_empty() || cell.memory == Bytes::ZERO {
            return wrong(&name, "each has vCPUs, memory and host nodes");
        }
        if cell.memory.get() % 1024 != 0 {
            return wrong(&cell.memory.to_string(), "libvirt counts memory in whole KiB");
        }
        if !seen.is_disjoint(&cell.vcpus) {
            return wrong(&cell.vcpus.to_string(), "a vCPU is in one of them");
        }
        seen = seen.union(&cell.vcpus);
        let count = cells[0].distances.len();
        if cell.distances.len() != count || (count != 0 && count != cells.len()) {
            return wrong(&name, "either all have a distance to each, or none has any");
        }
        for (to, distance) in cell.distances.iter().enumerate() {
            let good = if to == number { *distance == LOCAL } else { (LOCAL + 1..=FARTHEST).contains(distance) };
            if !good {
                return wrong(&format!("{distance} from {number} to {to}"), "10 is local, 11 to 255 are not");
            }
        }
    }
    if cells.is_empty() { wrong("none", "there is at least one") } else { Ok(()) }
}

fn check_sums(document: &Document<'_>, cells: &[Cell]) -> Result<(), DomainError> {
    let wrong = |value: String, rule| Err(DomainError::argument("the guest's cells", &value, rule));
    let vcpus = cells.iter().fold(CpuSet::new(), |all, cell| all.union(&cell.vcpus));
    let maximum = vcpu::read(document)?.maximum;
    // Compared without making a set of what a hostile text calls its number of vCPUs.
    if vcpus.len() as u64 != u64::from(maximum) || vcpus.iter().next_back() != maximum.checked_sub(1) {
        return wrong(format!("vCPUs {vcpus} of {maximum}"), "together they have all vCPUs of the domain, from 0 on");
    }
    let sum = cells.iter().fold(Bytes::ZERO, |sum, cell| sum.plus(cell.memory));
    let mut plugged = Bytes::ZERO;
    for size in tree::find_all(document, &["devices", "memory", "target", "size"]) {
        plugged = plugged.plus(memory::scaled(size, "<size>", &tree::text(size))?);
    }
    // <memory> counts modules plugged in besides (virDomainDefSetMemoryTotal).
    let (memory, _) = memory::read(document)?;
    if sum.plus(plugged) != memory {
        return wrong(format!("{sum} of {memory}"), "together they have the memory of the domain");
    }
    Ok(())
}

fn write(document: &Document<'_>, edits: &mut Edits<'_>, cells: &[Cell]) {
    let root = document.root_element();
    let fragments = || cells.iter().enumerate().map(|(number, cell)| fragment(number, cell));
    let Some(cpu) = tree::child(root, "cpu") else {
        let numa = Fragment::new("numa").children(fragments());
        insert(edits, root, Fragment::new("cpu").child(numa), "cpu");
        return;
    };
    let Some(numa) = tree::child(cpu, "numa") else {
        insert(edits, cpu, Fragment::new("numa").children(fragments()), "numa");
        return;
    };
    let mut present: Vec<Option<Node<'_, '_>>> = vec![None; cells.len()];
    for (index, node) in tree::children(numa, "cell").enumerate() {
        let number = tree::number::<usize>(node, "id").ok().flatten().unwrap_or(index);
        match present.get_mut(number) {
            Some(place @ None) => *place = Some(node),
            _ => edits.remove(node),
        }
    }
    let mut new = Vec::new();
    for (number, (node, cell)) in present.into_iter().zip(cells).enumerate() {
        match node {
            Some(node) => change(edits, node, cell),
            None => new.push(fragment(number, cell)),
        }
    }
    edits.insert_all_behind(numa, &["cell"], &new);
}

fn insert(edits: &mut Edits<'_>, parent: Node<'_, '_>, fragment: Fragment, name: &str) {
    match order::before(parent.tag_name().name(), name) {
        Some(before) => edits.insert_behind(parent, before, &fragment),
        None => edits.insert_last(parent, &fragment),
    }
}

fn change(edits: &mut Edits<'_>, node: Node<'_, '_>, cell: &Cell) {
    if tree::cpu_set(node, "cpus").ok().flatten().as_ref() != Some(&cell.vcpus) {
        edits.set_attribute(node, "cpus", &cell.vcpus.to_string());
    }
    let memory = node.attribute("memory").and_then(|text| memory::scaled(node, "cell/@memory", text).ok());
    if memory != Some(cell.memory) {
        edits.set_attribute(node, "memory", &cell.memory.kib().to_string());
        edits.set_attribute(node, "unit", "KiB");
    }
    let mut written = distances(node).unwrap_or_default();
    written.sort_unstable();
    let wanted: Vec<(u32, u32)> = (0u32..).zip(cell.distances.iter().copied()).collect();
    if written != wanted {
        tree::children(node, "distances").for_each(|list| edits.remove(list));
        if !wanted.is_empty() {
            edits.insert_first(node, &distances_fragment(&cell.distances));
        }
    }
}

fn fragment(number: usize, cell: &Cell) -> Fragment {
    let fragment = Fragment::new("cell")
        .attribute("id", number)
        .attribute("cpus", &cell.vcpus)
        .attribute("memory", cell.memory.kib())
        .attribute("unit", "KiB");
    if cell.distances.is_empty() { fragment } else { fragment.child(distances_fragment(&cell.distances)) }
}

fn distances_fragment(distances: &[u32]) -> Fragment {
    let sibling = |(id, value)| Fragment::new("sibling").attribute("id", id).attribute("value", value);
    Fragment::new("distances").children((0u32..).zip(distances).map(sibling))
}
