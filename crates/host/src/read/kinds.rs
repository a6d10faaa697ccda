//! Kinds of cores on machines that have several.
//!
//! Four sources, the surest first: the sets of x86's performance counters (`cpu_core`, `cpu_atom`), the identity
//! register of ARM cores, the scheduler's capacity, and the base frequency. The highest frequency is not one of them:
//! on uniform machines some cores may clock higher than others.

use std::collections::BTreeMap;

use nearmetal_units::CpuSet;

use super::processors::ROOT;
use crate::CoreKind;
use crate::facts::Facts;
use crate::parse::{cpu_list, number, number_u32, word};

pub(super) fn read(facts: &mut Facts<'_>, online: &CpuSet) -> Vec<CoreKind> {
    let counters = ["cpu_core", "cpu_atom", "cpu_lowpower"].map(|name| {
        let cpus = facts.optional(&format!("/sys/devices/{name}/cpus"), cpu_list);
        (name.to_owned(), cpus.unwrap_or_default().intersection(online))
    });
    let mut sets: BTreeMap<String, CpuSet> = counters.into_iter().filter(|(_, cpus)| !cpus.is_empty()).collect();
    let sources = [
        ("regs/identification/midr_el1", "midr "),
        ("cpu_capacity", "capacity "),
        ("cpufreq/base_frequency", "base frequency in kHz "),
    ];
    for (file, name) in sources {
        if sets.len() < 2 {
            sets = by_value(facts, file, name, online);
        }
    }
    if sets.len() < 2 {
        return Vec::new();
    }
    let mut kinds: Vec<CoreKind> = sets
        .into_iter()
        .map(|(name, cpus)| {
            let root = format!("{ROOT}/cpu{}", cpus.first().unwrap_or(0));
            CoreKind {
                name,
                capacity: facts.optional(&format!("{root}/cpu_capacity"), number_u32),
                max_frequency: facts.optional(&format!("{root}/cpufreq/cpuinfo_max_freq"), number),
                cpus,
            }
        })
        .collect();
    kinds.sort_by_key(|kind| kind.cpus.first());
    kinds
}

/// Online PUs by the text of one of their files; empty if one has none: half an answer tells no kinds apart.
fn by_value(facts: &mut Facts<'_>, file: &str, name: &str, online: &CpuSet) -> BTreeMap<String, CpuSet> {
    let mut sets: BTreeMap<String, CpuSet> = BTreeMap::new();
    for cpu in online.iter() {
        let Some(value) = facts.optional(&format!("{ROOT}/cpu{cpu}/{file}"), word) else { return BTreeMap::new() };
        sets.entry(format!("{name}{value}")).or_default().insert(cpu);
    }
    sets
}
