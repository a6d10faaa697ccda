//! The guest runs tuned with a profile for guests or for its role.

use nearmetal_host::{Host, TunedProfile};
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-tuned-profile",
    layer: Layer::Guest,
    title: "The guest runs tuned with a profile for guests or for its role",
    severity: Severity::Note,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /etc/tuned/active_profile"],
    good: "virtual-guest, or any profile that is not for another kind of machine: one for a role (oracle, mssql, \
        sap-hana, cpu-partitioning, realtime-virtual-guest) or your own",
    applies: "Linux guests with tuned",
    not_applies: "Windows; systems without tuned",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-vg", "rh-rhel9perf"],
    fix: Fix {
        live: Some("in the guest: tuned-adm profile virtual-guest"),
        persistent: "in the guest: systemctl enable tuned",
        needs: &[Need::Live],
        undo: "tuned-adm profile FORMER_NAME",
    },
    check: Check::Inside(check),
};

/// Profiles of tuned for other machines, or for saving power.
const UNFIT: [&str; 8] = [
    "balanced",
    "balanced-battery",
    "desktop",
    "laptop-ac-powersave",
    "laptop-battery-powersave",
    "powersave",
    "realtime-virtual-host",
    "virtual-host",
];

fn check(subject: &Subject<'_>, inside: &Host) -> Outcome {
    let found = match &inside.system.tuned {
        None => return Outcome::unknown(format!("/etc/tuned/active_profile in {}", subject.domain.name)),
        Some(TunedProfile::Absent) => return Outcome::NotApplicable,
        Some(TunedProfile::None) => "none",
        Some(TunedProfile::Active(profiles)) => match profiles.split(' ').find(|profile| UNFIT.contains(profile)) {
            Some(profile) => profile,
            None => return Outcome::Clean,
        },
    };
    Outcome::one(Some(Object::new("tuned profile of the guest", found, "virtual-guest, or the profile of its role")))
}
