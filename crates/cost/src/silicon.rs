//! The processor's own counters beside a sample ([`nearmetal_host::PerfEvent`]), in the words of a lab that counts.
//!
//! On silicon other programs run beside a measurement, so that instructions are those of the arm's own PUs: the slice, what is
//! on top of it, and all others where the arm is pinned nowhere. Accesses to memory are loads that no cache answered: those of
//! the guests' vCPUs, on bare metal those of the slice. Which node answered a load nobody tells, so there is no mean distance.

use std::collections::BTreeMap;

use nearmetal_host::{
    HostFs, LAB_VENDOR, NodeLoads, PerfCounter, PerfEvent, PerfScope, PerfSide, Thread, ThreadRole, guests, online_pus,
};
use nearmetal_units::CpuSet;

use super::Cost;
use super::snapshot::role_name;
use super::target::Target;

/// One counter, and what it is counted as.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    group: Cost,
    name: &'static str,
    event: PerfEvent,
    scope: PerfScope,
    side: PerfSide,
}

/// Loads that memory answered, and those of them that another node's did.
const LOADS: &str = "accesses";
const REMOTE: &str = "remote";
/// Those that the own node's memory answered.
const LOCAL: &str = "local";

/// Counters that count.
#[derive(Debug, Default)]
pub(super) struct Silicon {
    counters: Vec<(Wanted, PerfCounter)>,
    node_loads: Option<NodeLoads>,
    /// What is not counted, and why: a line for each group.
    pub(super) unknown: Vec<String>,
}

impl Silicon {
    /// Begins to count, where no lab does it.
    pub(super) fn open(fs: &HostFs, target: &Target) -> Self {
        if fs.lab_counters().is_some() {
            return Self::default();
        }
        if fs.read("/sys/class/dmi/id/sys_vendor").is_ok_and(|vendor| vendor.trim() == LAB_VENDOR) {
            let why = "instructions: this lab does not count; start it with `nearmetal lab up --count work`";
            return Self { unknown: vec![why.to_owned()], ..Self::default() };
        }
        let online = online_pus(fs).unwrap_or_default();
        // What cannot be listed is said where its CPU time is read.
        let threads = target.guests.iter().flat_map(|pid| guests::threads(fs, *pid).unwrap_or_default());
        let mut silicon = Self { node_loads: Some(NodeLoads::of(fs)), ..Self::default() };
        let mut missing: BTreeMap<Cost, String> = BTreeMap::new();
        for wanted in wanted(target, &online, &threads.collect::<Vec<_>>()) {
            // One that the processor lacks is not asked for on every PU.
            if missing.contains_key(&wanted.group) {
                continue;
            }
            match fs.count(wanted.event, wanted.scope, wanted.side) {
                Ok(counter) => silicon.counters.push((wanted, counter)),
                Err(error) => drop(missing.insert(wanted.group, format!("{}: {error}", wanted.group.title()))),
            }
        }
        // As in `whole`.
        silicon.counters.retain(|(wanted, _)| !missing.contains_key(&wanted.group));
        silicon.unknown = missing.into_values().collect();
        silicon
    }

    /// What was counted until now, and what could not be.
    pub(super) fn read(&mut self) -> (BTreeMap<(Cost, String), u64>, Vec<String>) {
        let read = |(wanted, counter): &mut (Wanted, PerfCounter)| {
            (wanted.group, wanted.name, counter.read().map_err(|error| error.to_string()))
        };
        let (values, failed) = whole(self.counters.iter_mut().map(read));
        (summed(values, self.node_loads), self.unknown.iter().cloned().chain(failed).collect())
    }
}

/// A count of a group, or why it could not be read.
type Read = (Cost, &'static str, Result<u64, String>);

/// The groups of which every count could be read, and what became of the others: a part of a sum is no sum.
fn whole(read: impl IntoIterator<Item = Read>) -> (Vec<(Cost, &'static str, u64)>, Vec<String>) {
    let mut failed: BTreeMap<Cost, String> = BTreeMap::new();
    let mut values = Vec::new();
    for (group, name, value) in read {
        match value {
            Ok(value) => values.push((group, name, value)),
            Err(error) => drop(failed.entry(group).or_insert_with(|| format!("{}: {error}", group.title()))),
        }
    }
    values.retain(|(group, ..)| !failed.contains_key(group));
    (values, failed.into_values().collect())
}

/// Sums of what counters said, with accesses told apart by what this processor counts.
fn summed(
    values: impl IntoIterator<Item = (Cost, &'static str, u64)>,
    node_loads: Option<NodeLoads>,
) -> BTreeMap<(Cost, String), u64> {
    let mut sums: BTreeMap<(Cost, String), u64> = BTreeMap::new();
    for (group, name, value) in values {
        let sum = sums.entry((group, name.to_owned())).or_default();
        *sum = sum.saturating_add(value);
    }
    let of = |name: &str| sums.get(&(Cost::Locality, name.to_owned())).copied();
    if let (Some(loads), Some(remote), Some(count)) = (of(LOADS), of(REMOTE), node_loads) {
        sums.insert((Cost::Locality, LOADS.to_owned()), count.all(loads, remote));
        sums.insert((Cost::Locality, LOCAL.to_owned()), count.own(loads, remote));
    }
    sums
}

/// All that is counted.
fn wanted(target: &Target, online: &CpuSet, threads: &[Thread]) -> Vec<Wanted> {
    let own = target.slice.union(&target.on_top);
    let pus = if target.floats { own.union(online) } else { own };
    let mut all = Vec::new();
    let mut want = |group, name, event, scope, side| all.push(Wanted { group, name, event, scope, side });
    for pu in pus.iter() {
        let (scope, name) = (PerfScope::Pu(pu), target.place(pu));
        want(Cost::Work, name, PerfEvent::Instructions, scope, PerfSide::Both);
        want(Cost::Cycles, name, PerfEvent::Cycles, scope, PerfSide::Both);
        if !target.guests.is_empty() {
            want(Cost::Work, "in-guest", PerfEvent::Instructions, scope, PerfSide::Guest);
        }
    }
    for thread in threads {
        let (scope, name) = (PerfScope::Thread(thread.id), role_name(&thread.role));
        want(Cost::Work, name, PerfEvent::Instructions, scope, PerfSide::Both);
        want(Cost::Cycles, name, PerfEvent::Cycles, scope, PerfSide::Both);
    }
    let vcpus = threads.iter().filter(|thread| matches!(thread.role, ThreadRole::Vcpu(_)));
    let accessing: Vec<(PerfScope, PerfSide)> = match target.guests.is_empty() {
        true => target.slice.iter().map(|pu| (PerfScope::Pu(pu), PerfSide::Both)).collect(),
        false => vcpus.map(|thread| (PerfScope::Thread(thread.id), PerfSide::Guest)).collect(),
    };
    for (scope, side) in accessing {
        want(Cost::Locality, LOADS, PerfEvent::NodeLoads, scope, side);
        want(Cost::Locality, REMOTE, PerfEvent::NodeLoadMisses, scope, side);
        want(Cost::Misses, "last-level-cache", PerfEvent::LlcLoadMisses, scope, side);
        want(Cost::Misses, "tlb", PerfEvent::DtlbLoadMisses, scope, side);
    }
    all
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};

    use super::*;

    fn thread(id: u32, role: ThreadRole) -> Thread {
        Thread { id, name: String::new(), role, affinity: None, scheduling: None }
    }

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn scopes(all: &[Wanted], group: Cost, name: &str) -> Vec<PerfScope> {
        let of = all.iter().filter(|wanted| (wanted.group, wanted.name) == (group, name));
        of.map(|wanted| wanted.scope).collect()
    }

    #[test]
    fn an_arm_is_counted_on_its_own_pus_and_everywhere_if_it_floats() {
        let target = Target { guests: vec![7], slice: set("1"), on_top: set("2"), ..Target::default() };
        let threads = [thread(70, ThreadRole::Emulator), thread(71, ThreadRole::Vcpu(0))];
        let all = wanted(&target, &set("0-3"), &threads);
        assert_eq!(scopes(&all, Cost::Work, "pus-of-the-slice"), [PerfScope::Pu(1)]);
        assert_eq!(scopes(&all, Cost::Cycles, "pus-on-top"), [PerfScope::Pu(2)]);
        assert!(scopes(&all, Cost::Work, "other-pus").is_empty());
        assert_eq!(scopes(&all, Cost::Work, "vcpus"), [PerfScope::Thread(71)]);
        assert_eq!(scopes(&all, Cost::Work, "emulator-thread"), [PerfScope::Thread(70)]);
        let loads = all.iter().find(|wanted| wanted.event == PerfEvent::NodeLoads).unwrap();
        assert_eq!((loads.scope, loads.side), (PerfScope::Thread(71), PerfSide::Guest));
        let floats = wanted(&Target { floats: true, ..target.clone() }, &set("0-3"), &threads);
        assert_eq!(scopes(&floats, Cost::Work, "other-pus"), [PerfScope::Pu(0), PerfScope::Pu(3)]);
        let bare = wanted(&Target { guests: vec![], ..target }, &set("0-3"), &[]);
        assert_eq!(scopes(&bare, Cost::Locality, "accesses"), [PerfScope::Pu(1)]);
        assert!(scopes(&bare, Cost::Work, "in-guest").is_empty());
    }

    #[test]
    fn accesses_are_told_apart_by_what_the_processor_counts() {
        let counted = [(Cost::Locality, LOADS, 70), (Cost::Locality, LOADS, 30), (Cost::Locality, REMOTE, 10)];
        for (count, all, local) in [(NodeLoads::Any, 100, 90), (NodeLoads::Own, 110, 100)] {
            let sums = summed(counted, Some(count));
            let of = |name: &str| sums.get(&(Cost::Locality, name.to_owned())).copied();
            assert_eq!((of(LOADS), of(LOCAL), of(REMOTE)), (Some(all), Some(local), Some(10)), "{count:?}");
        }
        assert_eq!(summed([(Cost::Work, "vcpus", 5)], Some(NodeLoads::Any)).len(), 1, "nothing is made up");
    }

    #[test]
    fn a_group_that_is_read_in_part_is_unknown() {
        let failed = || Err("the counter was taken away".to_owned());
        let read = [
            (Cost::Work, "vcpus", Ok(5)),
            (Cost::Work, "in-guest", failed()),
            (Cost::Work, "vcpus", failed()),
            (Cost::Cycles, "vcpus", Ok(9)),
        ];
        let (values, unknown) = whole(read);
        assert_eq!(values, [(Cost::Cycles, "vcpus", 9)]);
        assert_eq!(unknown, [format!("{}: the counter was taken away", Cost::Work.title())]);
    }

    #[test]
    fn what_a_machine_does_not_count_is_said_once_for_each_group() {
        let target = Target { slice: set("0-1"), ..Target::default() };
        let mut silicon = Silicon::open(&HostFs::of_tree(MemoryTree::new(), "a capture"), &target);
        let (values, unknown) = silicon.read();
        assert!(values.is_empty());
        assert_eq!(unknown.len(), 4, "{unknown:?}");
        assert!(unknown[0].contains("a capture counts no instructions"), "{unknown:?}");
        let mut lab = MemoryTree::new();
        lab.put("/sys/class/dmi/id/sys_vendor", Entry::File(LAB_VENDOR.as_bytes().to_vec())).unwrap();
        let silicon = Silicon::open(&HostFs::of_tree(lab, "a lab"), &target);
        assert!(silicon.unknown[0].contains("lab up --count work"), "{:?}", silicon.unknown);
    }
}
