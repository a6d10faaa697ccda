//! Tick and RCU callbacks are kept off isolated CPUs.

use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::finding::{Object, Outcome};
use crate::isolation::stop_tick;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "nohz-full-rcu-nocbs-on-isolated",
    layer: Layer::HostKernel,
    title: "Tick and RCU callbacks are kept off isolated CPUs",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &["/sys/devices/system/cpu/{isolated,nohz_full}", "domain <vcpupin>"],
    good: "nohz_full list == isolated list (boot CPU excluded automatically)",
    applies: "RT/NFV/HFT with one busy thread per CPU",
    not_applies: "general hosts; kernels without CONFIG_NO_HZ_FULL; costs syscall/exit overhead",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-params", "t-cp", "t-rvh"],
    fix: Fix {
        live: None,
        persistent: "grubby --update-kernel=ALL --args='nohz=on nohz_full=<list> rcu_nocbs=<list>'",
        needs: &[Need::HostReboot],
        undo: "user/kernel transitions get slower; undo remove args and reboot",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let Some(isolated) = host.system.isolated.as_ref() else {
        return Outcome::unknown("/sys/devices/system/cpu/isolated");
    };
    let pins: CpuSet = subject.single_pins().values().copied().collect();
    let quiet = pins.intersection(isolated);
    if quiet.is_empty() {
        return Outcome::NotApplicable;
    }
    let Some(without) = host.system.nohz_full.as_ref() else {
        return Outcome::unknown("/sys/devices/system/cpu/nohz_full");
    };
    let ticking = quiet.difference(without);
    Outcome::one((!ticking.is_empty()).then(|| {
        Object::new(
            "vCPUs",
            format!("isolated PUs {ticking} have the scheduler's tick"),
            "nohz_full= and rcu_nocbs= for them",
        )
        .cured_by_all(stop_tick(subject.context, without))
    }))
}
