//! PUs, their siblings and caches, and the cores they make up.
//!
//! Documentation/admin-guide/cputopology.rst; cache directories in Documentation/ABI/testing/sysfs-devices-system-cpu.

use std::collections::BTreeSet;

use nearmetal_units::CpuSet;

use crate::facts::{Facts, index_after};
use crate::parse::{cpu_list, cpu_mask, flag, index_or_none, number_u32};
use crate::{Core, NumaNode, Processor, ReadError};

const ROOT: &str = "/sys/devices/system/cpu";

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
    listing
        .all
        .iter()
        .map(|&index| {
            let node = nodes.iter().find(|node| node.cpus.contains(index)).map(|node| node.index);
            let online = listing.online.contains(index);
            let mut processor =
                Processor { index, online, package: None, core: None, siblings: None, last_level_cache: None, node };
            if online {
                let topology = format!("{ROOT}/cpu{index}/topology");
                let number = |facts: &mut Facts<'_>, name: &str| {
                    facts.required(&format!("{topology}/{name}"), index_or_none).flatten()
                };
                processor.package = number(facts, "physical_package_id");
                processor.core = number(facts, "core_id");
                // The first pair since Linux 5.3, the second before; lists since 2.6.26, masks always.
                let names = [("core_cpus_list", "core_cpus"), ("thread_siblings_list", "thread_siblings")];
                processor.siblings = set_around(facts, index, &topology, &names);
                processor.last_level_cache = last_level_cache(facts, index);
            }
            processor
        })
        .collect()
}

/// The first set that is there, in list or mask form. It must contain the PU whose directory it is in.
fn set_around(facts: &mut Facts<'_>, cpu: u32, directory: &str, names: &[(&str, &str)]) -> Option<CpuSet> {
    for (list, mask) in names {
        let list = format!("{directory}/{list}");
        let mask = format!("{directory}/{mask}");
        let found = match facts.optional(&list, cpu_list) {
            Some(set) => Some((list, set)),
            None => facts.optional(&mask, cpu_mask).map(|set| (mask, set)),
        };
        match found {
            Some((_, set)) if set.contains(cpu) => return Some(set),
            Some((path, set)) => {
                let reason = format!("PU {cpu} is not in its own set");
                facts.note(ReadError::unreadable(&path, &set.to_string(), reason));
            }
            None => {}
        }
    }
    facts.absent(&format!("{directory}/{}", names[0].0));
    None
}

/// PUs sharing the cache of the highest level. No cache directory is no finding: some kernels and most virtual
/// machines of old have none.
fn last_level_cache(facts: &mut Facts<'_>, cpu: u32) -> Option<CpuSet> {
    let root = format!("{ROOT}/cpu{cpu}/cache");
    let mut highest: Option<(u32, String)> = None;
    for name in facts.list(&root) {
        if index_after(&name, "index").is_none() {
            continue;
        }
        let directory = format!("{root}/{name}");
        // Without one cache's level nobody knows which is the last: a lower one must not pass for it.
        let level = facts.required(&format!("{directory}/level"), number_u32)?;
        if highest.as_ref().is_none_or(|(other, _)| level > *other) {
            highest = Some((level, directory));
        }
    }
    let (_, directory) = highest?;
    set_around(facts, cpu, &directory, &[("shared_cpu_list", "shared_cpu_map")])
}

/// Cores by package and number: PUs that are siblings by the kernel's word. Core numbers are no help, they repeat over
/// packages and on some machines inside one. A PU without known siblings stands alone.
pub(super) fn cores(processors: &[Processor]) -> Vec<Core> {
    let online: CpuSet = processors.iter().filter(|cpu| cpu.online).map(|cpu| cpu.index).collect();
    let mut placed = BTreeSet::new();
    let mut cores = Vec::new();
    for processor in processors.iter().filter(|processor| processor.online) {
        if placed.contains(&processor.index) {
            continue;
        }
        let siblings = processor.siblings.iter().flat_map(CpuSet::iter).chain([processor.index]);
        let cpus: CpuSet = siblings.filter(|cpu| online.contains(*cpu) && !placed.contains(cpu)).collect();
        placed.extend(cpus.iter());
        cores.push(Core { package: processor.package, core: processor.core, cpus, node: processor.node });
    }
    cores.sort_by_key(|core| (core.package, core.core, core.cpus.first()));
    cores
}
