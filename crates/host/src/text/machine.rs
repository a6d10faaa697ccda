//! Settings, kinds of cores, caches, memory beyond DRAM, control groups: what is there, in few lines.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::{Bytes, CpuSet};

use super::table::Table;
use super::{or_dash, shown};
use crate::{Cache, CacheKind, Host, Setting, SwapArea, System};

/// /sys/devices/system/cpu/smt/control, in words.
fn smt(control: Option<&str>) -> &str {
    match control {
        Some("notsupported") => "not supported",
        Some("notimplemented") => "not implemented",
        Some("forceoff") => "off until the next boot",
        Some(word) => word,
        None => "?",
    }
}

/// One line for each group of settings that the source tells anything about.
pub(super) fn settings(host: &Host) -> String {
    let system = &host.system;
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let mut lines = Vec::new();
    let list = |cpus: &Option<CpuSet>| match cpus {
        Some(cpus) if cpus.is_empty() => "none".to_owned(),
        other => shown(other.as_ref()),
    };
    if system.isolated.is_some() || system.nohz_full.is_some() || system.smt.is_some() {
        let (isolated, nohz) = (list(&system.isolated), list(&system.nohz_full));
        lines.push(format!("isolated PUs {isolated}, tickless PUs {nohz}, SMT {}", smt(system.smt.as_deref())));
    }
    for policy in &system.frequency {
        let (driver, governor) = (word(&policy.driver), word(&policy.governor));
        lines.push(format!("frequency of PUs {}: {driver}, {governor}", policy.cpus));
    }
    if system.idle_driver.is_some() || system.clocksource.is_some() {
        let (driver, governor) = (word(&system.idle_driver), word(&system.idle_governor));
        lines.push(format!("idle states by {driver}, {governor}; clock {}", word(&system.clocksource)));
    }
    lines.extend(power_and_swap(system));
    if system.swappiness.is_some() || system.ksm.is_some() {
        let ksm = match system.ksm {
            Some(0) => "off".to_owned(),
            Some(1) => "on".to_owned(),
            other => shown(other),
        };
        let (swappiness, reclaim) = (shown(system.swappiness), shown(system.zone_reclaim_mode));
        lines.push(format!("page merging {ksm}, swappiness {swappiness}, zone reclaim {reclaim}"));
    }
    let reserved = system.hugepages.iter().filter_map(|total| {
        let reserved = total.reserved.filter(|reserved| *reserved > 0)?;
        Some(format!("{reserved} free pages of {} are promised", total.size))
    });
    lines.extend(reserved);
    lines.extend(vulnerabilities(&system.vulnerabilities));
    if let Some(line) = &system.command_line {
        lines.push(format!("command line: {line}"));
    }
    lines.into_iter().map(|line| format!("{}\n", super::printable(line))).collect()
}

/// Boost, tuned's profile, swap: what of them is known.
fn power_and_swap(system: &System) -> Option<String> {
    let boost = system.boost.as_ref().map(|boost| format!("boost {}", if boost.allowed { "on" } else { "off" }));
    let tuned = system.tuned.as_ref().map(|profile| format!("tuned profile {profile}"));
    let swap = system.swap.as_ref().map(|areas| match areas.as_slice() {
        [] => "no swap".to_owned(),
        areas => {
            let sum = |of: fn(&SwapArea) -> Bytes| areas.iter().fold(Bytes::ZERO, |sum, area| sum.plus(of(area)));
            format!("swap {}, {} of it used", sum(|area| area.size), sum(|area| area.used))
        }
    });
    let known: Vec<String> = [boost, tuned, swap].into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join("; "))
}

/// Those the kernel calls vulnerable by name, the others by count.
fn vulnerabilities(all: &[Setting]) -> Option<String> {
    if all.is_empty() {
        return None;
    }
    let open: Vec<&str> = all.iter().filter(|v| v.value.starts_with("Vulnerable")).map(|v| v.name.as_str()).collect();
    let mitigated = all.iter().filter(|v| v.value.starts_with("Mitigation")).count();
    let open = if open.is_empty() { "none".to_owned() } else { open.join(" ") };
    Some(format!("vulnerabilities: {open} open, {mitigated} mitigated, {} listed", all.len()))
}

/// Kinds of cores; nothing on a machine of one kind.
pub(super) fn kinds(host: &Host) -> String {
    let mut table = Table::new("KINDS OF CORES", &["kind", "PUs", ">capacity", ">up to"]);
    for kind in &host.core_kinds {
        let frequency = kind.max_frequency.map(|khz| format!("{} MHz", khz / 1000));
        table.row(vec![kind.name.clone(), kind.cpus.to_string(), or_dash(kind.capacity), or_dash(frequency)]);
    }
    table.render()
}

/// One row for each level and kind; what they are shared by says more than each of them.
pub(super) fn caches(host: &Host) -> String {
    let mut table = Table::new("CACHES", &["cache", ">count", ">size", ">PUs each", ">dies", ">clusters"]);
    let mut rows: BTreeMap<(u32, Option<CacheKind>), Vec<&Cache>> = BTreeMap::new();
    for cache in &host.caches {
        rows.entry((cache.level, cache.kind)).or_default().push(cache);
    }
    for ((level, kind), caches) in rows {
        let kind = match kind {
            Some(CacheKind::Data) => " data",
            Some(CacheKind::Instruction) => " instruction",
            Some(CacheKind::Unified) => "",
            None => " ?",
        };
        let within = |groups: &[crate::CpuGroup]| {
            groups.iter().filter(|group| caches.iter().any(|cache| cache.cpus == group.cpus)).count()
        };
        let groups = |groups: &[crate::CpuGroup]| or_dash(Some(within(groups)).filter(|count| *count > 0));
        let sizes: BTreeSet<Option<Bytes>> = caches.iter().map(|cache| cache.size).collect();
        let shares: BTreeSet<usize> = caches.iter().map(|cache| cache.cpus.len()).collect();
        table.row(vec![
            format!("L{level}{kind}"),
            caches.len().to_string(),
            joined(sizes.into_iter().map(shown)),
            joined(shares.into_iter().map(|count| count.to_string())),
            groups(&host.dies),
            groups(&host.clusters),
        ]);
    }
    table.render()
}

fn joined(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(" or ")
}

/// Figures of the firmware for reaching memory, caches in front of it, tiers; nothing where no node has any.
pub(super) fn memory(host: &Host) -> String {
    let columns = ["node", "from nodes", ">read", ">write", ">read", ">write", "cache in front", ">tier"];
    let mut table = Table::new("REACHING MEMORY (the firmware's figures)", &columns);
    // One tier for all memory says nothing.
    let tiers: BTreeSet<Option<u32>> = host.nodes.iter().map(|node| node.tier).collect();
    let side = |node: &crate::NumaNode| {
        let caches: Vec<String> = node.side_caches.iter().map(|cache| shown(cache.size)).collect();
        if caches.is_empty() { "-".to_owned() } else { caches.join(" + ") }
    };
    let ns = |time: Option<u64>| time.map_or_else(|| "?".to_owned(), |time| format!("{time} ns"));
    let rate = |rate: Option<u64>| rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate} MB/s"));
    for node in &host.nodes {
        // Class 1, from processors, is the one that matters to guests.
        let access = node.access.iter().max_by_key(|access| access.class).cloned().unwrap_or_default();
        if node.access.is_empty() && node.side_caches.is_empty() && tiers.len() < 2 {
            continue;
        }
        table.row(vec![
            node.index.to_string(),
            if access.initiators.is_empty() { "?".to_owned() } else { access.initiators.to_string() },
            ns(access.read_latency),
            ns(access.write_latency),
            rate(access.read_bandwidth),
            rate(access.write_bandwidth),
            side(node),
            or_dash(node.tier),
        ]);
    }
    table.render()
}

/// Control groups that limit PUs or nodes.
pub(super) fn cpusets(host: &Host) -> String {
    const MOST: usize = 20;
    let mut table = Table::new("CONTROL GROUPS WITH LIMITS", &["group", ">version", "PUs", "nodes", "partition"]);
    for group in host.cpusets.iter().take(MOST) {
        let cpus = group.effective_cpus.as_ref().or(group.cpus.as_ref());
        let nodes = group.effective_nodes.as_ref().or(group.nodes.as_ref());
        let version = group.version.to_string();
        table.row(vec![group.path.clone(), version, shown(cpus), shown(nodes), or_dash(group.partition.as_ref())]);
    }
    let mut text = table.render();
    if host.cpusets.len() > MOST {
        text.push_str(&format!("and {} more\n", host.cpusets.len() - MOST));
    }
    text
}

/// Interrupts by function: how many, and where they go.
pub(super) fn interrupts(host: &Host) -> String {
    let mut table = Table::new("INTERRUPTS OF FUNCTIONS", &["function", ">count", "go to PUs", "may go to PUs"]);
    let mut rows: BTreeMap<nearmetal_units::PciAddress, Vec<&crate::Interrupt>> = BTreeMap::new();
    for interrupt in host.interrupts.iter().filter(|interrupt| !interrupt.actions.is_empty()) {
        if let Some(device) = interrupt.device {
            rows.entry(device).or_default().push(interrupt);
        }
    }
    for (device, interrupts) in rows {
        let union = |set: fn(&crate::Interrupt) -> Option<&CpuSet>| {
            let all: CpuSet = interrupts.iter().filter_map(|one| set(one)).flat_map(CpuSet::iter).collect();
            if all.is_empty() { "?".to_owned() } else { all.to_string() }
        };
        let (effective, affinity) = (union(|one| one.effective.as_ref()), union(|one| one.affinity.as_ref()));
        table.row(vec![device.to_string(), interrupts.len().to_string(), effective, affinity]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;
    use crate::{Boost, CoreKind, FrequencyPolicy, MemoryAccess, MemorySideCache, TunedProfile};

    #[test]
    fn what_the_source_does_not_tell_takes_no_line() {
        let host = Synthetic::new().build();
        assert_eq!([settings(&host), kinds(&host), memory(&host), cpusets(&host), interrupts(&host)].concat(), "");
    }

    #[test]
    fn settings_and_kinds_are_lines() {
        let mut host = Synthetic::new().cores_per_node(4).build();
        host.system.isolated = Some(CpuSet::new());
        host.system.frequency =
            vec![FrequencyPolicy { driver: Some("intel_pstate".to_owned()), governor: None, cpus: host.online() }];
        let setting = |name: &str, value: &str| Setting { name: name.to_owned(), value: value.to_owned() };
        host.system.boost = Some(Boost { allowed: true, path: String::new() });
        host.system.tuned = Some(TunedProfile::Active("virtual-host".to_owned()));
        host.system.swap = Some(Vec::new());
        host.system.vulnerabilities = vec![setting("mds", "Vulnerable: x"), setting("l1tf", "Mitigation: y")];
        let expected = "\
isolated PUs none, tickless PUs ?, SMT ?
frequency of PUs 0-3: intel_pstate, ?
boost on; tuned profile virtual-host; no swap
vulnerabilities: mds open, 1 mitigated, 2 listed
";
        assert_eq!(settings(&host), expected);
        host.core_kinds = vec![CoreKind {
            name: "cpu_atom".to_owned(),
            cpus: CpuSet::one(3),
            capacity: None,
            max_frequency: Some(3_900_000),
        }];
        assert!(kinds(&host).contains("cpu_atom  3           -  3900 MHz"), "{}", kinds(&host));
        assert!(caches(&host).contains("L3                  1  32 MiB         4"), "{}", caches(&host));
    }

    #[test]
    fn memory_shows_figures_of_processors() {
        let mut host = Synthetic::new().build();
        let access = |class, latency| MemoryAccess {
            class,
            initiators: [0].into_iter().collect(),
            read_latency: Some(latency),
            ..MemoryAccess::default()
        };
        host.nodes[0].access = vec![access(0, 8), access(1, 77)];
        host.nodes[0].side_caches =
            vec![MemorySideCache { size: Some(Bytes::from_mib(96 << 10)), ..Default::default() }];
        assert!(memory(&host).contains("0     0           77 ns"), "{}", memory(&host));
        assert!(memory(&host).contains("96 GiB"), "{}", memory(&host));
    }
}
