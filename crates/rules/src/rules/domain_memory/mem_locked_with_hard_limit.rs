//! Locked memory only with a hard limit that leaves room.

use nearmetal_domain::DefinitionEdit;
use nearmetal_units::Bytes;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "mem-locked-with-hard-limit",
    layer: Layer::DomainMemory,
    title: "Locked memory only with a hard limit that leaves room",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain <memoryBacking><locked/>, <memtune><hard_limit>"],
    good: "locked for RT/latency; hard_limit absent or >= RAM + emulator overhead (chosen here: RAM + 10%)",
    applies: "RT, no-swap requirement",
    not_applies: "density",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "lv-rt"],
    fix: Fix {
        live: None,
        persistent: "virsh edit",
        needs: &[Need::VmRestart],
        undo: "hard_limit too low kills the guest; unlimited lock can exhaust the host; undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let policy = &subject.facts.memory_policy;
    let Some(limit) = policy.hard_limit else { return Outcome::Clean };
    let memory = subject.facts.memory;
    let margin = subject.context.settings.hard_limit_margin_percent;
    let least = memory.plus(Bytes::new(memory.get() / 100 * margin));
    let low = limit < least;
    let object = || Object::new("<hard_limit>", limit.to_string(), format!("none, or at least {least}"));
    Outcome::one(low.then(|| object().cured_by_all(raised(subject))))
}

/// A limit that leaves room for both: QEMU beside the guest's memory, and what VFIO pins of devices.
pub(crate) fn raised(subject: &Subject<'_>) -> [Cure; 2] {
    let memory = subject.facts.memory;
    let margin = Bytes::new(memory.get() / 100 * subject.context.settings.hard_limit_margin_percent);
    let room = if subject.facts.hostdevs.is_empty() { margin } else { margin.max(VFIO_ROOM) };
    let text = memory.plus(room).get().div_ceil(1024).to_string();
    let at = "memtune/hard_limit";
    [Cure::Definition(DefinitionEdit::SetText { at: at.to_owned(), text }), Cure::attribute(at, "unit", "KiB")]
}

/// What libvirt itself adds to a guest's memory for VFIO. libvirt, qemu_domain.c (qemuDomainGetMemLockLimitBytes).
pub(crate) const VFIO_ROOM: Bytes = Bytes::from_mib(1024);
