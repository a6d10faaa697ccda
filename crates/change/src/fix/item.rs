//! What is to be cured, and how far each object is on its way.

use nearmetal_domain::DefinitionEdit;
use nearmetal_rules::{Cure, Examination, Finding, Input};

use super::{Treated, Treatment, not_live};
use crate::change::Change;

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
    pub(super) fn new(finding: &Finding, object: &nearmetal_rules::Object) -> Self {
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

    pub(super) fn settle(&mut self) {
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
