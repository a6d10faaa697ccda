//! No balloon keeps a running guest below the memory it starts with.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "balloon-holds-memory",
    layer: Layer::DomainMemory,
    title: "No balloon keeps a running guest below the memory it starts with",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <currentMemory>, live and stored"],
    good: "the running guest has at least the stored <currentMemory>, which is <memory> where it is not written",
    applies: "running guests with a stored definition",
    not_applies: "density, where memory comes and goes on purpose",
    effect: "unquantified; the guest has less page cache, and swaps or kills processes when it needs what the balloon holds",
    evidence: Evidence::B,
    sources: &["lv-dom", "pve-qm"],
    fix: Fix {
        live: Some("virsh setmem DOM SIZE --live"),
        persistent: "where less is meant: virsh setmem DOM SIZE --config",
        needs: &[Need::Live],
        undo: "virsh setmem with the old size",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let running = subject.context.domains.iter().find(|domain| domain.name == subject.facts.name);
    let Some((live, stored)) = running.and_then(|domain| domain.running.as_ref().zip(domain.defined.as_ref())) else {
        return Outcome::NotApplicable;
    };
    // The stored definition alone holds nothing back. Another size that waits for a start is no balloon.
    let starts_with = stored.current_memory.min(live.memory);
    if !std::ptr::eq(subject.facts, live) {
        return Outcome::NotApplicable;
    }
    let short = live.current_memory < starts_with;
    Outcome::one(short.then(|| Object::new("balloon", live.current_memory.to_string(), starts_with.to_string())))
}
