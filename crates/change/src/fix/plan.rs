//! From findings to what is done about each of their objects. Nothing is written here.

use std::collections::BTreeMap;
use std::path::Path;

use nearmetal_domain::DefinitionEdit;
use nearmetal_rules::{Cure, Examination, Finding, Input};

use super::{FixPlan, Treated, Treatment, conflicts, definitions, live, not_live};
use crate::ChangeError;
use crate::change::Change;
use crate::machine::Machine;
use crate::steps::boot_unit_change;

/// What the rules said, and about what.
#[derive(Debug, Clone, Copy)]
pub struct Findings<'a> {
    /// Host, domains and thresholds.
    pub input: &'a Input<'a>,
    /// What all rules said of it: no cure may add to that.
    pub examination: &'a Examination,
    /// Rules whose findings are to be cured; none for all.
    pub rules: &'a [&'a str],
}

/// One object on its way to a treatment.
pub(super) struct Item {
    pub(super) treated: Treated,
    /// Whether it is still to be cured.
    pub(super) open: bool,
    /// What is done at once.
    pub(super) changes: Vec<Change>,
    /// Whether the stored definition changes for it.
    pub(super) redefines: bool,
}

impl Item {
    fn new(finding: &Finding, object: &nearmetal_rules::Object) -> Self {
        let missing: Vec<String> = object.cures.iter().filter_map(not_live).collect();
        let treatment = match missing.len() {
            _ if object.cures.is_empty() => Treatment::NoCure,
            all if all == object.cures.len() => Treatment::NotLive(missing),
            _ => Treatment::Now,
        };
        let treated = Treated {
            rule: finding.rule.clone(),
            severity: finding.severity,
            scope: finding.scope.clone(),
            object: object.clone(),
            treatment,
        };
        let open = treated.treatment == Treatment::Now;
        Self { treated, open, changes: Vec::new(), redefines: false }
    }

    pub(super) fn refuse(&mut self, why: impl Into<String>) {
        self.treated.treatment = Treatment::Refused(why.into());
        self.open = false;
    }

    pub(super) fn edits(&self) -> impl Iterator<Item = &DefinitionEdit> {
        self.treated.object.cures.iter().filter_map(|cure| match cure {
            Cure::Definition(edit) => Some(edit),
            _ => None,
        })
    }

    fn settle(&mut self) {
        if !self.open {
            return;
        }
        self.treated.treatment = match (self.changes.is_empty(), self.redefines) {
            (true, true) => Treatment::NextStart,
            (true, false) if self.edits().next().is_some() => Treatment::Stored,
            _ => Treatment::Now,
        };
    }
}

/// What would be done on this machine now. Needs no rights beyond reading. `state` is where the journal lies.
///
/// # Errors
/// Only where the machine cannot be asked at all; what is in the way of one cure is a [`Treatment::Refused`].
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
