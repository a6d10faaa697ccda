//! What holds on every sound host. A violation is reported, not repaired: firmware lies, captures are edited, and a
//! plan made on such a host must say so.

use std::collections::BTreeMap;
use std::fmt;

use nearmetal_units::{Bytes, CpuSet};

use crate::Host;

/// A rule about hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// If A lists B as its sibling, B lists A.
    SiblingsAreSymmetric,
    /// Every online PU is on exactly one core.
    OneCorePerCpu,
    /// Every online PU is in exactly one package, where the kernel lists packages.
    OnePackagePerCpu,
    /// Every PU is in at most one node, and says the same node as the node's own list.
    OneNodePerCpu,
    /// Core, last-level cache, package and node: of any two that meet, one contains the other.
    SetsNest,
    /// A node is nearer to itself than to any other node.
    LocalDistanceIsSmallest,
    /// Free memory is part of all memory, free and surplus pages are part of all pages.
    PartsAreSmallerThanTheWhole,
    /// What the nodes have together is what the machine has.
    NodesAddUpToTheMachine,
    /// Devices name nodes and functions that exist.
    DevicesReferToWhatExists,
}

/// One rule broken by one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub invariant: Invariant,
    /// What breaks it: `PU 3`, `node 1`, `0000:3b:00.0`.
    pub subject: String,
    /// The values that do not fit.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.subject, self.detail)
    }
}

/// All violations, by rule.
pub fn check(host: &Host) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    check_siblings(host, &mut found);
    check_cores(host, &mut found);
    check_packages(host, &mut found);
    check_node_membership(host, &mut found);
    check_nesting(host, &mut found);
    check_distances(host, &mut found);
    check_parts(host, &mut found);
    if let Some(detail) = memory_apart(host) {
        found.add(Invariant::NodesAddUpToTheMachine, "memory", detail);
    }
    check_references(host, &mut found);
    found.0.sort_by_key(|violation| violation.invariant);
    found.0
}

struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, invariant: Invariant, subject: impl Into<String>, detail: impl Into<String>) {
        self.0.push(Violation { invariant, subject: subject.into(), detail: detail.into() });
    }
}

fn check_siblings(host: &Host, found: &mut Found) {
    let siblings: BTreeMap<u32, &CpuSet> =
        host.processors.iter().filter_map(|cpu| Some((cpu.index, cpu.siblings.as_ref()?))).collect();
    for (cpu, own) in &siblings {
        for other in own.iter().filter(|other| other != cpu) {
            let back = siblings.get(&other);
            if !back.is_some_and(|set| set.contains(*cpu)) {
                let theirs = back.map_or_else(|| "?".to_owned(), ToString::to_string);
                let detail = format!("its siblings are {own}, yet those of PU {other} are {theirs}");
                found.add(Invariant::SiblingsAreSymmetric, format!("PU {cpu}"), detail);
            }
        }
    }
}

fn check_cores(host: &Host, found: &mut Found) {
    let mut cores: BTreeMap<u32, usize> = host.online().iter().map(|cpu| (cpu, 0)).collect();
    for cpu in host.cores.iter().flat_map(|core| core.cpus.iter()) {
        match cores.get_mut(&cpu) {
            Some(count) => *count += 1,
            None => found.add(Invariant::OneCorePerCpu, format!("PU {cpu}"), "is on a core and not online"),
        }
    }
    for (cpu, count) in cores.into_iter().filter(|(_, count)| *count != 1) {
        found.add(Invariant::OneCorePerCpu, format!("PU {cpu}"), format!("is on {count} cores"));
    }
}

fn check_packages(host: &Host, found: &mut Found) {
    if host.packages.is_empty() {
        return;
    }
    let mut packages: BTreeMap<u32, usize> = host.online().iter().map(|cpu| (cpu, 0)).collect();
    for cpu in host.packages.iter().flat_map(|package| package.cpus.iter()) {
        *packages.entry(cpu).or_default() += 1;
    }
    for (cpu, count) in packages.into_iter().filter(|(_, count)| *count != 1) {
        found.add(Invariant::OnePackagePerCpu, format!("PU {cpu}"), format!("is in {count} packages"));
    }
}

fn check_node_membership(host: &Host, found: &mut Found) {
    let mut owners: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for node in &host.nodes {
        for cpu in node.cpus.iter() {
            owners.entry(cpu).or_default().push(node.index);
        }
    }
    for (cpu, nodes) in owners.iter().filter(|(_, nodes)| nodes.len() > 1) {
        found.add(Invariant::OneNodePerCpu, format!("PU {cpu}"), format!("is in nodes {nodes:?}"));
    }
    for processor in &host.processors {
        let listed = owners.get(&processor.index).and_then(|nodes| nodes.first()).copied();
        if processor.online && listed.is_none() {
            found.add(Invariant::OneNodePerCpu, format!("PU {}", processor.index), "is online and in no node");
        } else if processor.node != listed {
            let detail = format!("names node {:?}, its node's list says {listed:?}", processor.node);
            found.add(Invariant::OneNodePerCpu, format!("PU {}", processor.index), detail);
        }
    }
}

fn check_nesting(host: &Host, found: &mut Found) {
    let mut sets: Vec<(String, CpuSet)> = Vec::new();
    for processor in &host.processors {
        let cache = processor.last_level_cache.as_ref();
        if let Some(cache) = cache.filter(|cache| cache.first() == Some(processor.index)) {
            sets.push((format!("last-level cache of PU {}", processor.index), cache.clone()));
        }
    }
    let groups = [
        ("package", &host.packages),
        ("die", &host.dies),
        ("cluster", &host.clusters),
        ("book", &host.books),
        ("drawer", &host.drawers),
    ];
    for (name, groups) in groups {
        sets.extend(groups.iter().map(|group| (format!("{name} of PUs {}", group.cpus), group.cpus.clone())));
    }
    let inner = host.caches.iter().filter(|cache| cache.level == 2);
    sets.extend(inner.map(|cache| (format!("L2 of PUs {}", cache.cpus), cache.cpus.clone())));
    sets.extend(host.nodes.iter().map(|node| (format!("node {}", node.index), node.cpus.clone())));
    sets.extend(host.cores.iter().map(|core| (format!("core of PUs {}", core.cpus), core.cpus.clone())));
    // Each PU's sets, so that only sets that meet are compared: 4096 PUs have thousands of sets.
    let mut by_cpu: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (position, (_, cpus)) in sets.iter().enumerate() {
        for cpu in cpus.iter() {
            by_cpu.entry(cpu).or_default().push(position);
        }
    }
    let mut meeting: Vec<(usize, usize)> = by_cpu
        .values()
        .flat_map(|sets| sets.iter().flat_map(|one| sets.iter().map(|two| (*one, *two))))
        .filter(|(one, two)| one < two)
        .collect();
    meeting.sort_unstable();
    meeting.dedup();
    for (one, two) in meeting {
        let ((one, left), (two, right)) = (&sets[one], &sets[two]);
        if !left.is_subset(right) && !right.is_subset(left) {
            found.add(Invariant::SetsNest, one.clone(), format!("has PUs {left}, and {two} has {right}"));
        }
    }
}

fn check_distances(host: &Host, found: &mut Found) {
    for node in &host.nodes {
        let Some(local) = node.distance(node.index) else { continue };
        let nearer = node.distances.iter().find(|(other, distance)| *other != node.index && *distance <= local);
        if let Some((other, distance)) = nearer {
            let detail = format!("its distance to itself is {local}, to node {other} {distance}");
            found.add(Invariant::LocalDistanceIsSmallest, format!("node {}", node.index), detail);
        }
    }
}

fn check_parts(host: &Host, found: &mut Found) {
    let rule = Invariant::PartsAreSmallerThanTheWhole;
    for node in &host.nodes {
        let subject = format!("node {}", node.index);
        if let (Some(total), Some(free)) = (node.memory_total, node.memory_free) {
            if free > total {
                found.add(rule, &subject, format!("{free} of {total} are free"));
            }
        }
        for pool in &node.pools {
            let (size, total) = (pool.size, pool.total);
            if pool.free > total || pool.surplus > total {
                let detail = format!("{} free and {} surplus of {total} pages of {size}", pool.free, pool.surplus);
                found.add(rule, &subject, detail);
            }
        }
        let pooled = node.pools.iter().fold(Bytes::ZERO, |sum, pool| sum.plus(pool.size.bytes().times(pool.total)));
        if let Some(total) = node.memory_total.filter(|total| pooled > *total) {
            found.add(rule, &subject, format!("{pooled} of {total} are in hugepage pools"));
        }
    }
}

/// How far apart the sums may be, in percent of the larger: the kernel counts both from the same pages, and a balloon or
/// a hot-plugged block moves one a moment before the other.
const MOST_APART: u128 = 3;

/// Where the memory of all nodes is not that of the machine: both figures, and what a plan takes. Seen on a virtual
/// machine of one node.
pub fn memory_apart(host: &Host) -> Option<String> {
    let (nodes, machine) = (host.memory_of_nodes()?, host.system.memory_total?);
    let (less, more) = (nodes.min(machine), nodes.max(machine));
    let apart = more.less(less);
    if u128::from(apart.get()) * 100 <= u128::from(more.get()) * MOST_APART {
        return None;
    }
    let follows = match nodes < machine {
        true => format!("{apart} belong to no node, and plans use what the nodes have"),
        false => "plans give each node its share of the smaller figure".to_owned(),
    };
    Some(format!("the nodes have {nodes} together, and the machine {machine} (/proc/meminfo): {follows}"))
}

fn check_references(host: &Host, found: &mut Found) {
    let rule = Invariant::DevicesReferToWhatExists;
    let exists = |address| host.pci_devices.iter().any(|device| device.address == address);
    for device in &host.pci_devices {
        let subject = device.address.to_string();
        if let Some(node) = device.node.filter(|node| host.node(*node).is_none()) {
            found.add(rule, &subject, format!("is on node {node}, which does not exist"));
        }
        if let Some(physical) = device.physical_function.filter(|address| !exists(*address)) {
            found.add(rule, &subject, format!("is a virtual function of {physical}, which does not exist"));
        }
        for function in device.sriov.iter().flat_map(|state| &state.functions) {
            if !exists(*function) {
                found.add(rule, &subject, format!("has the virtual function {function}, which does not exist"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Numbering, Synthetic};
    use proptest::prelude::*;

    /// Breaks one thing in a sound host and gives the rules that notice, each once.
    fn rules_after(break_it: impl FnOnce(&mut Host)) -> Vec<Invariant> {
        let mut host = Synthetic::new().packages(2).cores_per_node(2).threads(2).network(0, 4, 2).build();
        assert_eq!(check(&host), []);
        break_it(&mut host);
        let mut rules: Vec<Invariant> = check(&host).into_iter().map(|violation| violation.invariant).collect();
        rules.dedup();
        rules
    }

    #[test]
    fn memory_without_a_node_is_named_with_both_figures_and_what_a_plan_takes() {
        let mut host = Synthetic::new().packages(2).build();
        let available = |host: &Host| host.memory_available(&host.nodes[0]);
        host.system.memory_total = Some(Bytes::from_mib(12_288));
        assert_eq!(
            memory_apart(&host).unwrap(),
            "the nodes have 8 GiB together, and the machine 12 GiB (/proc/meminfo): 4 GiB belong to no node, and plans \
             use what the nodes have"
        );
        assert_eq!(available(&host), host.nodes[0].memory_available());
        host.system.memory_total = Some(Bytes::from_mib(2048));
        assert!(memory_apart(&host).unwrap().ends_with("plans give each node its share of the smaller figure"));
        assert_eq!(available(&host), Some(Bytes::from_mib(1024)));
        host.nodes[1].memory_total = None;
        assert_eq!(memory_apart(&host), None, "one node says nothing: there is no sum");
    }

    #[test]
    fn each_rule_notices_its_own_breach() {
        use Invariant::*;
        assert_eq!(rules_after(|host| host.processors[1].siblings = Some(CpuSet::one(1))), [SiblingsAreSymmetric]);
        assert_eq!(rules_after(|host| host.processors[1].siblings = None), [SiblingsAreSymmetric]);
        assert_eq!(rules_after(|host| drop(host.cores.remove(0))), [OneCorePerCpu]);
        assert_eq!(rules_after(|host| drop(host.packages.remove(0))), [OnePackagePerCpu]);
        assert_eq!(rules_after(|host| host.packages[1].cpus = "1-7".parse().unwrap()), [OnePackagePerCpu, SetsNest]);
        let everything = |host: &mut Host| {
            host.caches.iter_mut().filter(|c| c.level == 2).for_each(|c| c.cpus = "0-5".parse().unwrap())
        };
        assert_eq!(rules_after(everything), [SetsNest]);
        assert_eq!(rules_after(|host| host.nodes[0].pools[0].total = 4096), [PartsAreSmallerThanTheWhole]);
        let machine = |mib| move |host: &mut Host| host.system.memory_total = Some(Bytes::from_mib(mib));
        assert_eq!(rules_after(machine(8000)), [], "two nodes of 4096 MiB: counters a moment apart");
        assert_eq!(rules_after(machine(12_288)), [NodesAddUpToTheMachine]);
        assert_eq!(rules_after(machine(6144)), [NodesAddUpToTheMachine]);
        assert_eq!(rules_after(|host| host.processors[0].node = Some(1)), [OneNodePerCpu]);
        assert_eq!(rules_after(|host| _ = host.nodes[0].cpus.remove(0)), [OneNodePerCpu, SetsNest]);
        let straddling = Some("0-5".parse().unwrap());
        assert_eq!(rules_after(|host| host.processors[0].last_level_cache = straddling), [SetsNest]);
        assert_eq!(rules_after(|host| host.nodes[0].distances[1].1 = 10), [LocalDistanceIsSmallest]);
        let more = Some(Bytes::from_mib(1 << 20));
        assert_eq!(rules_after(|host| host.nodes[0].memory_free = more), [PartsAreSmallerThanTheWhole]);
        assert_eq!(rules_after(|host| host.nodes[0].pools[0].surplus = 1), [PartsAreSmallerThanTheWhole]);
        assert_eq!(rules_after(|host| host.pci_devices[0].node = Some(9)), [DevicesReferToWhatExists]);
        assert_eq!(rules_after(|host| drop(host.pci_devices.remove(2))), [DevicesReferToWhatExists]);
    }

    proptest! {
        #[test]
        fn synthetic_hosts_are_sound(
            shape in (1u32..5, 1u32..4, 1u32..4, 1u32..7, 1u32..5),
            numbering in prop_oneof![Just(Numbering::Adjacent), Just(Numbering::Split), Just(Numbering::Dealt)],
            vfs in 0u32..20,
        ) {
            let (packages, nodes, caches, cores, threads) = shape;
            let host = Synthetic::new()
                .packages(packages)
                .nodes_per_package(nodes)
                .caches_per_node(caches)
                .cores_per_node(cores)
                .threads(threads)
                .numbering(numbering)
                .nvme(0)
                .network(packages * nodes - 1, 16, vfs)
                .build();
            prop_assert_eq!(check(&host), vec![]);
            let pus = packages * nodes * cores * threads;
            prop_assert_eq!(host.online(), (0..pus).collect::<CpuSet>());
            prop_assert_eq!(host.cores.len() as u32, packages * nodes * cores);
        }
    }
}
