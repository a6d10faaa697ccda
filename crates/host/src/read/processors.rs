//! PUs, their siblings, and the cores they make up.
//!
//! Documentation/admin-guide/cputopology.rst; cache directories in Documentation/ABI/testing/sysfs-devices-system-cpu.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::CpuSet;

use crate::facts::{Facts, index_after, read_each};
use crate::parse::{cpu_list, cpu_mask, flag, index_or_none};
use crate::{Core, NumaNode, Processor, ReadError};

pub(super) const ROOT: &str = "/sys/devices/system/cpu";

/// Which PUs there are.
pub(super) struct Listing {
    /// All, by rising index.
    pub(super) all: Vec<u32>,
    /// Those the kernel schedules on.
    pub(super) online: CpuSet,
}

/// Lists PUs: directories `cpuN`; online by the kernel's list, or on kernels before 2.6.26 by each PU's own file.
pub(super) fn list(facts: &mut Facts<'_>) -> Listing {
    let mut all: Vec<u32> = facts.list(ROOT).iter().filter_map(|name| index_after(name, "cpu")).collect();
    all.sort_unstable();
    all.dedup();
    let list = facts.optional(&format!("{ROOT}/online"), cpu_list).filter(|online| !online.is_empty());
    if all.is_empty() {
        facts.absent(ROOT);
        let online = list.unwrap_or_default();
        return Listing { all: online.iter().collect(), online };
    }
    let online = match list {
        Some(list) => all.iter().copied().filter(|cpu| list.contains(*cpu)).collect(),
        None => all.iter().copied().filter(|cpu| is_online(facts, *cpu)).collect(),
    };
    Listing { all, online }
}

/// PU 0 often has no `online` file since it cannot be taken offline; offline PUs have no topology.
fn is_online(facts: &mut Facts<'_>, cpu: u32) -> bool {
    match facts.optional(&format!("{ROOT}/cpu{cpu}/online"), flag) {
        Some(online) => online,
        None => facts.fs.exists(&format!("{ROOT}/cpu{cpu}/topology")),
    }
}

pub(super) fn read(facts: &mut Facts<'_>, listing: &Listing, nodes: &[NumaNode]) -> Vec<Processor> {
    read_each(facts, &listing.all, |facts, &index| {
        let node = nodes.iter().find(|node| node.cpus.contains(index)).map(|node| node.index);
        let online = listing.online.contains(index);
        let mut processor = Processor { index, online, node, ..Processor::default() };
        if online {
            let topology = format!("{ROOT}/cpu{index}/topology");
            let number = |facts: &mut Facts<'_>, name: &str| {
                facts.required(&format!("{topology}/{name}"), index_or_none).flatten()
            };
            processor.package = number(facts, "physical_package_id");
            processor.core = number(facts, "core_id");
            // The first pair since Linux 5.3, the second before; lists since 2.6.26, masks always.
            let names = [("core_cpus_list", "core_cpus"), ("thread_siblings_list", "thread_siblings")];
            processor.siblings = set_around(facts, index, &topology, &names, false);
        }
        processor
    })
}

/// The first set that is there, in mask or list form; its absence is written down.
pub(super) fn set_around(
    facts: &mut Facts<'_>,
    cpu: u32,
    directory: &str,
    names: &[(&str, &str)],
    may_be_empty: bool,
) -> Option<CpuSet> {
    let before = facts.unreadable.len();
    let set = find_set(facts, cpu, directory, names, may_be_empty);
    if set.is_none() && facts.unreadable.len() == before {
        facts.absent(&format!("{directory}/{}", names[0].0));
    }
    set
}

/// As [`set_around`], of a kind that many kernels do not have.
pub(super) fn set_of(facts: &mut Facts<'_>, cpu: u32, directory: &str, names: &[(&str, &str)]) -> Option<CpuSet> {
    find_set(facts, cpu, directory, names, false)
}

/// A set must contain the PU whose directory it is in; an empty one may stand for "its own core" where that is so.
fn find_set(
    facts: &mut Facts<'_>,
    cpu: u32,
    directory: &str,
    names: &[(&str, &str)],
    may_be_empty: bool,
) -> Option<CpuSet> {
    for (list, mask) in names {
        let list = format!("{directory}/{list}");
        let mask = format!("{directory}/{mask}");
        // Masks first: kernels have had them longer, and captures that were edited by hand were edited there.
        let found = match facts.optional(&mask, cpu_mask) {
            Some(set) => Some((mask, set)),
            None => facts.optional(&list, cpu_list).map(|set| (list, set)),
        };
        match found {
            Some((_, set)) if set.contains(cpu) || (set.is_empty() && may_be_empty) => return Some(set),
            Some((path, set)) => {
                let reason = format!("PU {cpu} is not in its own set");
                facts.note(ReadError::unreadable(&path, &set.to_string(), reason));
            }
            None => {}
        }
    }
    None
}

/// Cores by package and number: PUs that are siblings by the kernel's word. Core numbers are no help, they repeat over
/// packages and on some machines inside one. A PU without known siblings stands alone.
pub(super) fn cores(processors: &[Processor]) -> Vec<Core> {
    let online: CpuSet = processors.iter().filter(|cpu| cpu.online).map(|cpu| cpu.index).collect();
    let numbers: BTreeMap<u32, Option<u32>> = processors.iter().map(|cpu| (cpu.index, cpu.core)).collect();
    let mut placed = BTreeSet::new();
    let mut cores = Vec::new();
    for processor in processors.iter().filter(|processor| processor.online) {
        if placed.contains(&processor.index) {
            continue;
        }
        let siblings = processor.siblings.iter().flat_map(CpuSet::iter).chain([processor.index]);
        let cpus: CpuSet = siblings.filter(|cpu| online.contains(*cpu) && !placed.contains(cpu)).collect();
        placed.extend(cpus.iter());
        let numbers: BTreeSet<u32> = cpus.iter().filter_map(|cpu| numbers.get(&cpu).copied().flatten()).collect();
        let numbers = numbers.into_iter().collect();
        cores.push(Core { package: processor.package, core: processor.core, cpus, node: processor.node, numbers });
    }
    cores.sort_by_key(|core| (core.package, core.core, core.cpus.first()));
    cores
}
