//! From findings to what is done about each of their objects. Nothing is written here.

use std::collections::BTreeMap;
use std::path::Path;

use nearmetal_rules::Finding;

use super::item::{Findings, Item};
use super::{FixPlan, conflicts, definitions, live};
use crate::ChangeError;
use crate::change::Change;
use crate::machine::Machine;
use crate::steps::boot_unit_change;

/// What would be done on this machine now. Needs no rights beyond reading. `state` is where the journal lies.
///
/// # Errors
/// Only where the machine cannot be asked at all; what is in the way of one cure is a [`super::Treatment::Refused`].
pub fn plan(machine: &mut Machine<'_>, found: Findings<'_>, state: &Path) -> Result<FixPlan, ChangeError> {
    let wanted = |finding: &&Finding| found.rules.is_empty() || found.rules.contains(&finding.rule.as_str());
    let findings = found.examination.findings.iter().filter(wanted);
    let mut items: Vec<Item> =
        findings.flat_map(|finding| finding.objects.iter().map(|object| Item::new(finding, object))).collect();
    conflicts::refuse(&mut items);
    for item in items.iter_mut().filter(|item| item.open) {
        match live::changes(machine, &item.treated)? {
            Ok(changes) => item.changes = changes,
            Err(why) => item.refuse(why),
        }
    }
    live::refuse_pools_without_room(machine, &mut items)?;
    let definitions = definitions::changes(machine, found, &mut items)?;
    items.iter_mut().for_each(Item::settle);
    let mut live: BTreeMap<u8, Vec<Change>> = BTreeMap::new();
    for change in items.iter().filter(|item| item.open).flat_map(|item| &item.changes) {
        let list = live.entry(rank(change)).or_default();
        if !list.contains(change) {
            list.push(change.clone());
        }
    }
    let pins = live.remove(&LAST).unwrap_or_default();
    let first: Vec<Change> = live.into_values().flatten().collect();
    let needed = first.iter().any(Change::is_made_again_at_boot);
    let unit = boot_unit_change(machine, needed, state)?.into_iter().collect();
    let treated = items.into_iter().map(|item| item.treated).collect();
    Ok(FixPlan { treated, changes: [first, unit, definitions, pins].concat() })
}

const LAST: u8 = 3;

/// Modules first, since settings of theirs come with them; pools next, the likeliest to fail; threads last.
fn rank(change: &Change) -> u8 {
    match change {
        Change::LoadModule { .. } => 0,
        Change::SysfsValue { .. } => 1,
        Change::HugepagePool { .. } => 2,
        _ => LAST,
    }
}
