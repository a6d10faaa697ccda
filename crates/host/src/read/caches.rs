//! Caches of processors. Documentation/ABI/testing/sysfs-devices-system-cpu.

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, CpuSet};

use super::processors::{ROOT, set_around};
use crate::facts::{Facts, index_after};
use crate::parse::{Malformed, Parsed, malformed, number, number_u32};
use crate::{Cache, CacheKind, Processor};

const SETS: [(&str, &str); 1] = [("shared_cpu_list", "shared_cpu_map")];

/// Reads every cache once, and fills in each PU's last-level cache.
///
/// A cache is read at the first PU that has it; further PUs it lists are not asked again, but for the last level, which
/// every PU confirms: plans depend on it.
pub(super) fn read(facts: &mut Facts<'_>, processors: &mut [Processor], online: &CpuSet) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    // Caches by directory number and PU.
    let mut known: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for processor in processors.iter_mut().filter(|processor| processor.online) {
        let cpu = processor.index;
        let root = format!("{ROOT}/cpu{cpu}/cache");
        let mut highest: Option<(u32, usize, String)> = None;
        let mut complete = true;
        // No cache directory is no finding: some kernels and most virtual machines of old have none.
        for name in facts.list(&root) {
            let Some(index) = index_after(&name, "index") else { continue };
            let directory = format!("{root}/{name}");
            let (at, own) = match known.get(&(index, cpu)) {
                Some(at) => (*at, false),
                None => {
                    let Some(cache) = read_cache(facts, processor, &directory, online) else {
                        // Without one cache's level nobody knows which is the last: a lower one must not pass for it.
                        complete = false;
                        continue;
                    };
                    cache.cpus.iter().for_each(|cpu| _ = known.entry((index, cpu)).or_insert(caches.len()));
                    caches.push(cache);
                    (caches.len() - 1, true)
                }
            };
            let level = caches[at].level;
            if highest.as_ref().is_none_or(|(other, ..)| level > *other) {
                highest = Some((level, at, if own { String::new() } else { directory }));
            }
        }
        processor.last_level_cache = match highest {
            Some((_, at, directory)) if complete && directory.is_empty() => Some(caches[at].cpus.clone()),
            Some((_, _, directory)) if complete => shared(facts, processor, &directory, online),
            _ => None,
        };
    }
    caches.sort_by_key(|cache| (cache.level, cache.kind, cache.cpus.first()));
    caches
}

fn read_cache(facts: &mut Facts<'_>, processor: &Processor, directory: &str, online: &CpuSet) -> Option<Cache> {
    let level = facts.required(&format!("{directory}/level"), number_u32)?;
    let cpus = shared(facts, processor, directory, online)?;
    Some(Cache {
        level,
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
