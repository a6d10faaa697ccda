//! Two plans of nearly the same fleet: what a change moves, refuses and costs.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_fleet::{FleetPlan, LevelId, LevelValue, Refusal, VmPlacement};

use super::rows::{place, same_place};

/// What differs from one plan to another.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Difference {
    /// VMs in another place: name, from, to.
    pub(crate) moved: Vec<(String, String, String)>,
    /// VMs without a place now, that had one: name, reason.
    pub(crate) refused: Vec<(String, Refusal)>,
    /// VMs with a place now, that had none: name, place.
    pub(crate) placed: Vec<(String, String)>,
    /// VMs only the second plan knows: name and place, or why not.
    pub(crate) added: Vec<(String, String)>,
    /// VMs only the first plan knows.
    pub(crate) gone: Vec<String>,
    /// VMs in the same place in both.
    pub(crate) same: usize,
    /// Levels whose value changed: words, before, after; `None` where a plan has no such level.
    pub(crate) levels: Vec<(LevelId, Option<LevelValue>, Option<LevelValue>)>,
}

pub(crate) fn difference(before: &FleetPlan, after: &FleetPlan) -> Difference {
    let placements = |plan: &'_ FleetPlan| -> BTreeMap<String, VmPlacement> {
        plan.placements.iter().map(|placement| (placement.vm.clone(), placement.clone())).collect()
    };
    let refusals = |plan: &'_ FleetPlan| -> BTreeMap<String, Refusal> {
        plan.refusals.iter().map(|refusal| (refusal.vm.clone(), refusal.clone())).collect()
    };
    let (had, has) = (placements(before), placements(after));
    let (lacked, lacks) = (refusals(before), refusals(after));
    let mut difference = Difference::default();
    for placement in &after.placements {
        let name = placement.vm.clone();
        match had.get(&name) {
            Some(old) if same_place(old, placement) => difference.same += 1,
            Some(old) => difference.moved.push((name, place(old), place(placement))),
            None if lacked.contains_key(&name) => difference.placed.push((name, place(placement))),
            None => difference.added.push((name, place(placement))),
        }
    }
    for refusal in &after.refusals {
        let name = refusal.vm.clone();
        if had.contains_key(&name) {
            difference.refused.push((name, refusal.clone()));
        } else if !lacked.contains_key(&name) {
            difference.added.push((name, format!("not placed: {}", refusal.reason)));
        }
    }
    let known = |name: &&String| !has.contains_key(*name) && !lacks.contains_key(*name);
    let all: BTreeSet<&String> = had.keys().chain(lacked.keys()).collect();
    difference.gone = all.into_iter().filter(known).cloned().collect();
    let mut ids: Vec<LevelId> = before.objective.levels.iter().map(|level| level.level).collect();
    ids.extend(after.objective.levels.iter().map(|level| level.level).filter(|id| {
        // A priority only the second plan has comes after those of the first.
        !before.objective.levels.iter().any(|level| level.level == *id)
    }));
    let find = |plan: &FleetPlan, id| plan.objective.levels.iter().find(|level| level.level == id).copied();
    let rows = ids.into_iter().map(|id| (id, find(before, id), find(after, id)));
    let value = |level: &Option<LevelValue>| level.map(|level| level.value);
    difference.levels = rows.filter(|(_, one, other)| value(one) != value(other)).collect();
    difference
}
