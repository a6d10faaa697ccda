//! The guest loses little time to steal.

use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-steal-low",
    layer: Layer::Guest,
    title: "The guest loses little time to steal",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /proc/stat: steal, since the guest started"],
    good: "less than 1% where each vCPU has its own PU, less than 5% elsewhere (thresholds of this catalogue)",
    applies: "Linux guests that see steal time",
    not_applies: "Windows",
    effect: "a direct measure of contention",
    evidence: Evidence::B,
    sources: &["q-kvmpv", "rh-rhel10cpu"],
    fix: Fix {
        live: Some("fewer guests on these PUs: migrate, pin elsewhere (nearmetal plan)"),
        persistent: "placement: nearmetal plan, nearmetal apply",
        needs: &[Need::Live],
        undo: "depends on the fix; nearmetal rollback undoes a plan",
    },
    check: Check::Inside(check),
};

fn check(subject: &Subject<'_>, inside: &Host) -> Outcome {
    let Some(percent) = inside.system.processor_time.and_then(|time| time.stolen_percent()) else {
        return Outcome::unknown(format!("/proc/stat in {}", subject.domain.name));
    };
    let settings = subject.context.settings;
    let most =
        if subject.is_pinned_one_to_one() { settings.dedicated_steal_percent } else { settings.shared_steal_percent };
    let object = (percent >= most).then(|| {
        Object::new("stolen time", format!("{percent:.1} % since the guest started"), format!("less than {most} %"))
    });
    Outcome::one(object)
}
