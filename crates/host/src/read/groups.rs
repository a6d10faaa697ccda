//! Packages, dies, clusters, and the books and drawers of s390: sets of PUs under cpuN/topology.
//!
//! Documentation/admin-guide/cputopology.rst. The sets say what belongs together; the numbers beside them do not: they
//! are -1 on POWER and s390, and shared by two packages on some ia64 machines.

use std::collections::BTreeMap;

use nearmetal_units::CpuSet;

use super::processors::{ROOT, set_of};
use crate::facts::Facts;
use crate::parse::index_or_none;
use crate::{CpuGroup, Processor};

/// The groups of one host, each kind by its first PU.
pub(super) struct Groups {
    pub(super) packages: Vec<CpuGroup>,
    pub(super) dies: Vec<CpuGroup>,
    pub(super) clusters: Vec<CpuGroup>,
    pub(super) books: Vec<CpuGroup>,
    pub(super) drawers: Vec<CpuGroup>,
}

pub(super) fn read(facts: &mut Facts<'_>, processors: &[Processor], online: &CpuSet) -> Groups {
    // The first pair since Linux 5.3, the second before.
    let package = [("package_cpus_list", "package_cpus"), ("core_siblings_list", "core_siblings")];
    let mut packages = sets(facts, &package, online);
    for group in &mut packages {
        let number = |cpu| processors.iter().find(|processor| processor.index == cpu)?.package;
        group.number = group.cpus.iter().find_map(number);
    }
    if packages.is_empty() {
        packages = by_number(processors);
    }
    let numbered = |facts: &mut Facts<'_>, list: &str, mask: &str, id: &str| {
        let mut groups = sets(facts, &[(list, mask)], online);
        for group in &mut groups {
            let first = group.cpus.first().unwrap_or(0);
            group.number = facts.optional(&format!("{ROOT}/cpu{first}/topology/{id}"), index_or_none).flatten();
        }
        groups
    };
    // Kernels without dies or clusters give every PU, or every core, one of its own; ARM puts the package there.
    let (mut dies, mut clusters) = (
        numbered(facts, "die_cpus_list", "die_cpus", "die_id"),
        numbered(facts, "cluster_cpus_list", "cluster_cpus", "cluster_id"),
    );
    if dies.iter().all(|die| die.cpus.len() == 1) {
        dies.clear();
    }
    if clusters.iter().all(|cluster| is_core(&cluster.cpus, processors)) {
        clusters.clear();
    }
    Groups {
        packages,
        dies,
        clusters,
        books: numbered(facts, "book_siblings_list", "book_siblings", "book_id"),
        drawers: numbered(facts, "drawer_siblings_list", "drawer_siblings", "drawer_id"),
    }
}

/// One set for each PU that is in none yet. A PU in a set read earlier is not asked again: 4096 PUs of 64 packages would
/// say the same thing 64 times each.
fn sets(facts: &mut Facts<'_>, names: &[(&str, &str)], online: &CpuSet) -> Vec<CpuGroup> {
    // A kernel that has no such sets has none for any PU. A few are asked, since one PU's file may be damaged.
    const ASKED: usize = 8;
    let mut placed = CpuSet::new();
    let mut groups = Vec::new();
    let mut without = 0;
    for cpu in online.iter() {
        if placed.contains(cpu) {
            continue;
        }
        let Some(set) = set_of(facts, cpu, &format!("{ROOT}/cpu{cpu}/topology"), names) else {
            without += 1;
            if groups.is_empty() && without == ASKED {
                break;
            }
            continue;
        };
        // Damaged sets overlap; every PU is in the first that names it.
        let cpus: CpuSet = set.iter().filter(|cpu| online.contains(*cpu) && !placed.contains(*cpu)).collect();
        cpus.iter().for_each(|cpu| _ = placed.insert(cpu));
        groups.push(CpuGroup { number: None, cpus });
    }
    groups
}

/// Packages by number alone, on kernels that give no sets.
fn by_number(processors: &[Processor]) -> Vec<CpuGroup> {
    let mut groups: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for processor in processors.iter().filter(|processor| processor.online) {
        let Some(package) = processor.package else { return Vec::new() };
        groups.entry(package).or_default().insert(processor.index);
    }
    groups.into_iter().map(|(number, cpus)| CpuGroup { number: Some(number), cpus }).collect()
}

fn is_core(cpus: &CpuSet, processors: &[Processor]) -> bool {
    let first = cpus.first();
    let siblings = processors.iter().find(|processor| Some(processor.index) == first);
    cpus.len() == 1 || siblings.and_then(|processor| processor.siblings.as_ref()) == Some(cpus)
}
