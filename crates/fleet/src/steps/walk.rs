//! The order: whoever's place is free goes; where nobody's is, one steps aside to a free place, or is shut down.

use std::collections::{BTreeMap, BTreeSet};

use super::both::{growth, leaving, moved, swaps_devices};
use super::{Action, Step, Steps};
use crate::checker::{Breach, clashes};
use crate::model::{Fleet, FleetHost, FleetPlan, HostChange, HostSelector, Vm, VmPlacement};
use crate::planner::{Arrival, Options, plan};

/// VMs that are tried aside at one halt, and hosts each is tried on: each try is a small plan.
const MOST_ASIDE: usize = 16;
const MOST_HOSTS: usize = 16;

/// What runs by now.
pub(super) struct Walk<'a> {
    fleet: &'a Fleet,
    hosts: BTreeMap<&'a str, &'a FleetHost>,
    index: BTreeMap<&'a str, usize>,
    /// Where each VM is to be; `None`: nowhere.
    goal: Vec<Option<&'a VmPlacement>>,
    now: Vec<Option<VmPlacement>>,
    /// VMs on each host.
    residents: BTreeMap<&'a str, BTreeSet<usize>>,
    /// VMs of each group.
    mates: BTreeMap<&'a str, Vec<usize>>,
    done: Steps,
}

impl<'a> Walk<'a> {
    pub(super) fn new(fleet: &'a Fleet, plan: &'a FleetPlan) -> Self {
        let goals: BTreeMap<&str, &VmPlacement> =
            plan.placements.iter().map(|placement| (placement.vm.as_str(), placement)).collect();
        let mut mates: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, vm) in fleet.vms.iter().enumerate() {
            vm.groups.iter().for_each(|rule| mates.entry(&rule.group).or_default().push(at));
        }
        let mut walk = Self {
            fleet,
            hosts: fleet.hosts.iter().map(|host| (host.name.as_str(), host)).collect(),
            index: fleet.vms.iter().enumerate().map(|(at, vm)| (vm.name.as_str(), at)).collect(),
            goal: fleet.vms.iter().map(|vm| goals.get(vm.name.as_str()).copied()).collect(),
            now: vec![None; fleet.vms.len()],
            residents: BTreeMap::new(),
            mates,
            done: Steps::default(),
        };
        for (at, vm) in fleet.vms.iter().enumerate() {
            walk.set(at, vm.current.clone());
        }
        walk
    }

    pub(super) fn run(mut self) -> Steps {
        for vm in 0..self.fleet.vms.len() {
            if self.now[vm].is_some() && self.goal[vm].is_none() {
                self.stop(vm, "the plan has no place for it".to_owned());
            }
        }
        let mut aside = BTreeSet::new();
        loop {
            while self.go_where_free() {}
            let waiting = self.waiting();
            if waiting.is_empty() {
                break;
            }
            if !self.step_aside(&waiting, &mut aside) {
                self.shut_one_down(&waiting);
            }
        }
        for vm in 0..self.fleet.vms.len() {
            if let (None, Some(goal)) = (&self.now[vm], self.goal[vm]) {
                let again = self.done.shut_down.contains(&self.fleet.vms[vm].name);
                let reason = if again { "its place is free now" } else { "the plan has a place for it" };
                self.step(vm, goal.clone(), reason.to_owned());
            }
        }
        self.done
    }

    fn set(&mut self, vm: usize, place: Option<VmPlacement>) {
        let host_of = |place: &VmPlacement| self.hosts.get_key_value(place.host.as_str()).map(|(name, _)| *name);
        if let Some(host) = self.now[vm].as_ref().and_then(host_of) {
            self.residents.entry(host).or_default().remove(&vm);
        }
        if let Some(host) = place.as_ref().and_then(host_of) {
            self.residents.entry(host).or_default().insert(vm);
        }
        self.now[vm] = place;
    }

    /// VMs that run and are not where they are to be.
    fn waiting(&self) -> Vec<usize> {
        let waits = |vm: &usize| match (&self.now[*vm], self.goal[*vm]) {
            (Some(now), Some(goal)) => !same(now, goal),
            _ => false,
        };
        (0..self.now.len()).filter(waits).collect()
    }

    /// Lets everybody go whose place is free. Whether anybody went.
    fn go_where_free(&mut self) -> bool {
        let mut went = false;
        for vm in self.waiting() {
            let Some(goal) = self.goal[vm] else { continue };
            if self.is_free(vm, goal) {
                self.step(vm, goal.clone(), "its place in the plan is free".to_owned());
                went = true;
            }
        }
        went
    }

    /// Whether a VM may take a place beside everybody else and its own old place: no rule breaks that holds now.
    fn is_free(&self, vm: usize, to: &VmPlacement) -> bool {
        let asked = &self.fleet.vms[vm];
        let after = self.breaches(vm, Some(to), None);
        if !after.is_empty() {
            let before = self.breaches(vm, self.now[vm].as_ref(), Some(to));
            if !after.iter().all(|breach| before.contains(breach)) {
                return false;
            }
        }
        let Some(from) = self.now[vm].as_ref().filter(|from| from.host == to.host) else { return true };
        let (old, place) = leaving(asked, self.unused_name(&asked.name), from, to);
        let during = self.clashes(vm, Some(to), Some((&old, &place)), Some(to));
        during.is_empty() || during.iter().all(|breach| after.contains(breach))
    }

    fn breaches(&self, vm: usize, place: Option<&VmPlacement>, besides: Option<&VmPlacement>) -> Vec<Breach> {
        self.clashes(vm, place, None, besides)
    }

    /// What breaks on the host of a place, and among the VM's groups, with the VM there.
    fn clashes(
        &self,
        vm: usize,
        place: Option<&VmPlacement>,
        old: Option<(&Vm, &VmPlacement)>,
        besides: Option<&VmPlacement>,
    ) -> Vec<Breach> {
        let mut others: BTreeSet<usize> = BTreeSet::new();
        for at in [place, besides].into_iter().flatten() {
            others.extend(self.residents.get(at.host.as_str()).into_iter().flatten());
        }
        others.extend(self.mates_of(vm));
        others.remove(&vm);
        let mut placements: Vec<VmPlacement> = others.iter().filter_map(|at| self.now[*at].clone()).collect();
        placements.extend(place.cloned());
        let mut vms: Vec<&Vm> = others.iter().map(|at| &self.fleet.vms[*at]).collect();
        vms.push(&self.fleet.vms[vm]);
        if let Some((old, place)) = old {
            vms.push(old);
            placements.push(place.clone());
        }
        let names: BTreeSet<&str> = placements.iter().map(|placement| placement.host.as_str()).collect();
        let hosts: Vec<&FleetHost> = names.iter().filter_map(|name| self.hosts.get(name).copied()).collect();
        clashes(self.fleet, &hosts, &vms, &placements, &growth(&hosts, &placements))
    }

    fn mates_of(&self, vm: usize) -> impl Iterator<Item = usize> {
        let groups = self.fleet.vms[vm].groups.iter();
        groups.flat_map(|rule| self.mates.get(rule.group.as_str()).into_iter().flatten().copied())
    }

    /// A name no VM has.
    fn unused_name(&self, name: &str) -> String {
        let mut unused = format!("{name}, leaving");
        while self.index.contains_key(unused.as_str()) {
            unused.push('_');
        }
        unused
    }

    /// Brings a VM to a place that is free.
    fn step(&mut self, vm: usize, to: VmPlacement, reason: String) {
        let asked = &self.fleet.vms[vm];
        let from = self.now[vm].clone();
        let action = match &from {
            None => Action::Start { host: to.host.clone() },
            Some(from) if from.host == to.host => {
                Action::Move { host: to.host.clone(), memory: moved(asked, from, &to) }
            }
            Some(from) => Action::Migrate { from: from.host.clone(), to: to.host.clone() },
        };
        let swaps = from.as_ref().is_some_and(|from| swaps_devices(from, &to, &self.fleet.hosts));
        let old = from.as_ref().filter(|from| from.host == to.host);
        let old = old.map(|from| leaving(asked, self.unused_name(&asked.name), from, &to).1);
        let pools = self.pools(vm, &to, old);
        self.set(vm, Some(to.clone()));
        let name = asked.name.clone();
        self.done.steps.push(Step { vm: name, action, to: Some(to), pools, swaps_devices: swaps, reason });
    }

    /// Pages pools of the host must have grown by while a VM takes a place there.
    fn pools(&self, vm: usize, to: &VmPlacement, old: Option<VmPlacement>) -> Vec<HostChange> {
        let others = self.residents.get(to.host.as_str()).into_iter().flatten().filter(|other| **other != vm);
        let mut placements: Vec<VmPlacement> = others.filter_map(|other| self.now[*other].clone()).collect();
        placements.push(to.clone());
        placements.extend(old);
        let host: Vec<&FleetHost> = self.hosts.get(to.host.as_str()).copied().into_iter().collect();
        growth(&host, &placements)
    }

    fn stop(&mut self, vm: usize, reason: String) {
        let Some(from) = self.now[vm].clone() else { return };
        self.set(vm, None);
        let name = self.fleet.vms[vm].name.clone();
        let action = Action::ShutDown { host: from.host };
        let (to, pools) = (None, Vec::new());
        self.done.steps.push(Step { vm: name, action, to, pools, swaps_devices: false, reason });
    }

    /// Whose place in the plan is free once `vm` is where it is now.
    fn helped(&self, vm: usize, waiting: &[usize]) -> Option<usize> {
        let mut others = waiting.iter().copied().filter(|other| *other != vm && self.now[*other].is_some());
        others.find(|other| self.goal[*other].is_some_and(|goal| self.is_free(*other, goal)))
    }

    /// One of those that wait goes to a free place from which another can go on. Each does so once at most, so that this
    /// ends.
    fn step_aside(&mut self, waiting: &[usize], aside: &mut BTreeSet<usize>) -> bool {
        let fresh: Vec<usize> = waiting.iter().copied().filter(|vm| !aside.contains(vm)).take(MOST_ASIDE).collect();
        for vm in fresh {
            let Some(from) = self.now[vm].clone() else { continue };
            // Its own host first: no memory crosses the network.
            let others = self.fleet.hosts.iter().map(|host| host.name.as_str()).filter(|name| *name != from.host);
            let names: Vec<&str> = std::iter::once(from.host.as_str()).chain(others).take(MOST_HOSTS).collect();
            for name in names {
                let Some(place) = self.free_place(vm, name) else { continue };
                if !self.is_free(vm, &place) {
                    continue;
                }
                self.set(vm, Some(place.clone()));
                let helped = self.helped(vm, waiting);
                self.set(vm, Some(from.clone()));
                if let Some(helped) = helped {
                    aside.insert(vm);
                    let reason = format!("aside, so that `{}` can go to its place", self.fleet.vms[helped].name);
                    self.step(vm, place, reason);
                    return true;
                }
            }
        }
        false
    }

    /// A place on a host beside everybody there, its own old place included.
    fn free_place(&self, vm: usize, host: &str) -> Option<VmPlacement> {
        let asked = &self.fleet.vms[vm];
        if !(asked.hosts.names.is_empty() || asked.hosts.names.iter().any(|name| name == host)) {
            return None;
        }
        let there = self.residents.get(host).into_iter().flatten().copied();
        let others: BTreeSet<usize> = there.chain(self.mates_of(vm)).filter(|other| *other != vm).collect();
        let fixed = |at: usize| {
            self.now[at].clone().map(|now| Vm { current: Some(now), movable: false, ..self.fleet.vms[at].clone() })
        };
        let mut vms: Vec<Vm> = others.into_iter().filter_map(fixed).collect();
        if let Some(now) = self.now[vm].as_ref().filter(|now| now.host == host) {
            let name = self.unused_name(&asked.name);
            let current = Some(VmPlacement { vm: name.clone(), ..now.clone() });
            vms.push(Vm { name, groups: Vec::new(), current, movable: false, ..asked.clone() });
        }
        let names: BTreeSet<&str> = vms
            .iter()
            .filter_map(|vm| vm.current.as_ref())
            .map(|current| current.host.as_str())
            .chain([host])
            .collect();
        let hosts = names.iter().filter_map(|name| self.hosts.get(name)).map(|host| (*host).clone()).collect();
        let selector = HostSelector { names: vec![host.to_owned()], ..asked.hosts.clone() };
        vms.push(Vm { current: None, hosts: selector, ..asked.clone() });
        let small = Fleet { vms, hosts, spread: self.fleet.spread };
        let options = Options { seed: 0, steps: 0, budget: None, arrival: Arrival::Online };
        // What cannot be planned has no free place either: somebody runs where the figures have no room for it.
        let found = plan(&small, &options).ok()?;
        found.placements.into_iter().find(|placement| placement.vm == asked.name)
    }

    /// The least of those that wait: one that lets another go on if there is one, then by priority and size.
    fn shut_one_down(&mut self, waiting: &[usize]) {
        let mut order = waiting.to_vec();
        order.sort_by_key(|vm| (self.fleet.vms[*vm].priority, self.fleet.vms[*vm].vcpus, *vm));
        let mut chosen: Option<(usize, Option<usize>)> = order.first().map(|vm| (*vm, None));
        for vm in order {
            let before = self.now[vm].clone();
            self.set(vm, None);
            let helped = self.helped(vm, waiting);
            self.set(vm, before);
            if helped.is_some() {
                chosen = Some((vm, helped));
                break;
            }
        }
        let Some((vm, helped)) = chosen else { return };
        let whom = helped.map_or("others".to_owned(), |helped| format!("`{}`", self.fleet.vms[helped].name));
        self.done.shut_down.push(self.fleet.vms[vm].name.clone());
        self.stop(vm, format!("{whom} cannot move before, it cannot either, and no place is free to step aside to"));
    }
}

/// Whether nothing has to be done to get from one to the other.
fn same(now: &VmPlacement, goal: &VmPlacement) -> bool {
    let cells = now.cells == goal.cells && now.host == goal.host && now.page_size == goal.page_size;
    let device = |grant: &crate::model::DeviceGrant| (grant.demand, grant.supply, grant.count, grant.functions.clone());
    cells && now.devices.iter().map(device).eq(goal.devices.iter().map(device))
}
