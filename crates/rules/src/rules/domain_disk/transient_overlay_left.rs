//! No definition names a leftover throw-away overlay.

use nearmetal_domain::DiskFacts;

use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "transient-overlay-left",
    layer: Layer::DomainDisk,
    title: "No definition names a leftover throw-away overlay",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain <disk><source>, <transient>"],
    good: "the stored definition names the image itself",
    applies: "domains with <transient/> disks",
    not_applies: "-",
    effect: "writes go to a file that is about to be deleted",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: None,
        persistent: "virsh edit: restore the source from before the overlay",
        needs: &[Need::VmOffline],
        undo: "restore the definition",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if subject.which == Which::Running {
        return Outcome::NotApplicable;
    }
    let left = |disk: &&DiskFacts| disk.source.as_deref().is_some_and(|source| source.contains(".TRANSIENT"));
    Outcome::of(
        subject
            .facts
            .disks
            .iter()
            .filter(left)
            .map(|disk| {
                let found = disk.source.clone().unwrap_or_default();
                Object::new(
                    format!("disk {}", disk.target),
                    found,
                    "the image itself, not a leftover throw-away overlay",
                )
            })
            .collect(),
    )
}
