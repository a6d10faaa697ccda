//! RLIMIT_MEMLOCK / hard_limit lets VFIO and locked guests pin all their RAM.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::rules::domain_memory::mem_locked_with_hard_limit::{VFIO_ROOM, raised};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "memlock-limit-for-vfio",
    layer: Layer::Memory,
    title: "RLIMIT_MEMLOCK / hard_limit lets VFIO and locked guests pin all their RAM",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain <memtune><hard_limit>, <hostdev>"],
    good: "limit >= guest RAM + about 1 GiB or unlimited; VmPin ~ guest RAM for VFIO",
    applies: "VFIO, vhost-vdpa, locked guests",
    not_applies: "others",
    effect: "unquantified (start failure otherwise)",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: Some("prlimit --memlock=unlimited --pid <qemu>"),
        persistent: "let libvirt compute it; set <hard_limit> when <locked/> is used",
        needs: &[Need::VmRestart],
        undo: "too high lets a guest pin host RAM; undo lower",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    if facts.hostdevs.is_empty() {
        return Outcome::NotApplicable;
    }
    let least = facts.memory.plus(VFIO_ROOM);
    let limit = facts.memory_policy.hard_limit.filter(|limit| *limit < least);
    Outcome::one(limit.map(|limit| {
        Object::new("<hard_limit>", limit.to_string(), format!("none, or at least {least}: VFIO pins all memory"))
            .cured_by_all(raised(subject))
    }))
}
