//! Real-time guests isolate their own CPUs.

use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-rt-isolation",
    layer: Layer::Guest,
    title: "Real-time guests isolate their own CPUs",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &["guest /sys/devices/system/cpu/{isolated,nohz_full}", "domain <vcpusched>"],
    good: "guest CPUs that are real-time threads on the host are also isolated inside, without a tick; CPU 0 does \
        housekeeping",
    applies: "real-time and NFV guests",
    not_applies: "all others",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-rvg", "lv-rt", "rh-rt"],
    fix: Fix {
        live: None,
        persistent: "in the guest: tuned-adm profile realtime-virtual-guest",
        needs: &[Need::GuestReboot],
        undo: "less throughput for everything else; undo another profile",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let real_time = subject.facts.scheduling.schedulers.iter().filter(|it| it.threads == "vcpu" && it.is_real_time());
    let vcpus: CpuSet = real_time.flat_map(|it| it.numbers.iter()).collect();
    if vcpus.is_empty() {
        return Outcome::NotApplicable;
    }
    let inside = match subject.inside() {
        Ok(inside) => inside,
        Err(unknown) => return unknown,
    };
    // The guest's processors are its vCPUs in order as long as it is started with all of them.
    let wanted: CpuSet = vcpus.iter().filter(|cpu| *cpu != 0).collect();
    let of = |set: &Option<CpuSet>, name: &str| {
        set.clone().ok_or_else(|| format!("/sys/devices/system/cpu/{name} in {}", subject.domain.name))
    };
    let (isolated, tickless) =
        match (of(&inside.system.isolated, "isolated"), of(&inside.system.nohz_full, "nohz_full")) {
            (Ok(isolated), Ok(tickless)) => (isolated, tickless),
            (Err(path), _) | (_, Err(path)) => return Outcome::unknown(path),
        };
    let named = |set: &CpuSet| if set.is_empty() { "none".to_owned() } else { set.to_string() };
    let judge = |what: &str, set: &CpuSet| {
        let good = wanted.is_subset(set) && !set.contains(0);
        (!good).then(|| Object::new(what, named(set), named(&wanted)))
    };
    let objects =
        [judge("isolated CPUs of the guest", &isolated), judge("CPUs without a tick in the guest", &tickless)];
    Outcome::of(objects.into_iter().flatten().collect())
}
