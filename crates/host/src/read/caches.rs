//! Caches of processors. Documentation/ABI/testing/sysfs-devices-system-cpu.

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, CpuSet};

use super::processors::{ROOT, set_around};
use crate::facts::{Facts, index_after, read_each};
use crate::parse::{Malformed, Parsed, malformed, number, number_u32};
use crate::{Cache, CacheKind, Processor};

const SETS: [(&str, &str); 1] = [("shared_cpu_list", "shared_cpu_map")];

/// Reads every cache once, and fills in each PU's last-level cache.
///
/// A cache is read at the first PU that has it; further PUs it lists are not asked again, but for the last level, which
/// every PU confirms: plans depend on it.
pub(super) fn read(facts: &mut Facts<'_>, processors: &mut [Processor], online: &CpuSet) -> Vec<Cache> {
    let ahead = read_each(facts, processors, |facts, processor| read_ahead(facts, processor, online));
    let mut caches: Vec<Cache> = Vec::new();
    // Caches by directory number and PU.
    let mut known: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut last_levels = Vec::with_capacity(processors.len());
    for (processor, names) in processors.iter().zip(ahead) {
        let cpu = processor.index;
        let mut highest: Option<(u32, LastLevel)> = None;
        let mut complete = true;
        for (index, read) in names {
            let (at, found) = match (known.get(&(index, cpu)), read) {
                // Its first PU said what it is; this one has said whom it shares it with.
                (Some(at), Ahead::Sharers(cpus)) => (*at, LastLevel::Read(cpus)),
                (Some(at), Ahead::Whole(Some(cache))) => (*at, LastLevel::Read(cache.cpus)),
                (Some(at), _) => (*at, LastLevel::Ask(directory(cpu, index))),
                (None, read) => {
                    let read = match read {
                        Ahead::Whole(cache) => cache,
                        _ => read_cache(facts, processor, &directory(cpu, index), online),
                    };
                    let Some(cache) = read else {
                        // Without one cache's level nobody knows which is the last: a lower one must not pass for it.
                        complete = false;
                        continue;
                    };
                    cache.cpus.iter().for_each(|cpu| _ = known.entry((index, cpu)).or_insert(caches.len()));
                    let found = LastLevel::Read(cache.cpus.clone());
                    caches.push(cache);
                    (caches.len() - 1, found)
                }
            };
            let level = caches[at].level;
            if highest.as_ref().is_none_or(|(other, _)| level > *other) {
                highest = Some((level, found));
            }
        }
        last_levels.push((processor, highest.filter(|_| complete).map(|(_, found)| found)));
    }
    let confirmed = read_each(facts, &last_levels, |facts, (processor, found)| match found {
        Some(LastLevel::Read(cpus)) => Some(cpus.clone()),
        Some(LastLevel::Ask(directory)) => shared(facts, processor, directory, online),
        None => None,
    });
    for (processor, cpus) in processors.iter_mut().zip(confirmed) {
        processor.last_level_cache = cpus;
    }
    caches.sort_by_key(|cache| (cache.level, cache.kind, cache.cpus.first()));
    caches
}

fn directory(cpu: u32, index: u32) -> String {
    format!("{ROOT}/cpu{cpu}/cache/index{index}")
}

/// What is read of a PU's cache by several threads, before anybody knows at which PU it will be read.
enum Ahead {
    /// Nothing: another PU of the core is likely to tell.
    Nothing,
    /// Who shares it; the first of these reads the rest.
    Sharers(CpuSet),
    /// All of it; `None`: it cannot be read.
    Whole(Option<Cache>),
}

/// The numbers of a PU's cache directories. Where it is the first PU of its core, what they say as well: most caches
/// belong to one core.
fn read_ahead(facts: &mut Facts<'_>, processor: &Processor, online: &CpuSet) -> Vec<(u32, Ahead)> {
    if !processor.online {
        return Vec::new();
    }
    let cpu = processor.index;
    let first = processor.siblings.as_ref().is_some_and(|siblings| siblings.first() == Some(cpu));
    // No cache directory is no finding: some kernels and most virtual machines of old have none.
    let names = facts.list(&format!("{ROOT}/cpu{cpu}/cache"));
    let indices = names.iter().filter_map(|name| index_after(name, "index"));
    let mut read = |index| {
        if !first {
            return Ahead::Nothing;
        }
        let directory = directory(cpu, index);
        match shared(facts, processor, &directory, online) {
            Some(cpus) if cpus.first() != Some(cpu) => Ahead::Sharers(cpus),
            Some(cpus) => Ahead::Whole(describe(facts, &directory, cpus)),
            None => Ahead::Whole(None),
        }
    };
    indices.map(|index| (index, read(index))).collect()
}

/// What is known of a PU's last-level cache before it is asked itself.
enum LastLevel {
    /// It is the PU at which the cache was read.
    Read(CpuSet),
    /// It is yet to confirm what another PU said, in this directory.
    Ask(String),
}

fn read_cache(facts: &mut Facts<'_>, processor: &Processor, directory: &str, online: &CpuSet) -> Option<Cache> {
    let cpus = shared(facts, processor, directory, online)?;
    describe(facts, directory, cpus)
}

fn describe(facts: &mut Facts<'_>, directory: &str, cpus: CpuSet) -> Option<Cache> {
    Some(Cache {
        level: facts.required(&format!("{directory}/level"), number_u32)?,
        kind: facts.optional(&format!("{directory}/type"), kind),
        size: facts.optional(&format!("{directory}/size"), size),
        line: facts.optional(&format!("{directory}/coherency_line_size"), number).map(Bytes::new),
        ways: facts.optional(&format!("{directory}/ways_of_associativity"), number_u32),
        cpus,
    })
}

/// PUs that share it. Itanium kernels leave the set of caches empty that belong to one core: its siblings, then.
fn shared(facts: &mut Facts<'_>, processor: &Processor, directory: &str, online: &CpuSet) -> Option<CpuSet> {
    let set = set_around(facts, processor.index, directory, &SETS, true)?;
    let set = if set.is_empty() { processor.siblings.clone()? } else { set };
    Some(if set.is_subset(online) { set } else { set.intersection(online) })
}

pub(super) fn kind(text: &str) -> Parsed<CacheKind> {
    match text {
        "Data" => Ok(CacheKind::Data),
        "Instruction" => Ok(CacheKind::Instruction),
        "Unified" => Ok(CacheKind::Unified),
        _ => malformed("expected Data, Instruction or Unified"),
    }
}

/// `32K`, as the kernel prints it on every architecture.
pub(super) fn size(text: &str) -> Parsed<Bytes> {
    match text.strip_suffix('K') {
        Some(kib) => number(kib).map(Bytes::from_kib),
        None => Err(Malformed("expected a size such as 32K".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_kinds_are_the_kernels_or_refused() {
        assert_eq!(size("30720K"), Ok(Bytes::from_mib(30)));
        assert_eq!(kind("Unified"), Ok(CacheKind::Unified));
        for junk in ["", "K", "32", "32M", "-1K", "data"] {
            assert!(size(junk).is_err() && kind(junk).is_err(), "{junk:?}");
        }
    }
}
