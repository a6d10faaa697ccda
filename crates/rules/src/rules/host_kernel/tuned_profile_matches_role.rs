//! An active tuned profile fits the host's role.

use nearmetal_host::TunedProfile;
use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "tuned-profile-matches-role",
    layer: Layer::HostKernel,
    title: "An active tuned profile fits the host's role",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/etc/tuned/active_profile"],
    good: "virtual-host (general), throughput-performance acceptable; cpu-partitioning or realtime-virtual-host for \
        NFV/RT; a site's own profile is not judged",
    applies: "RHEL-family, Fedora, SUSE, Debian with tuned",
    not_applies: "hosts managed by another tool (Proxmox, K8s Node Tuning Operator)",
    effect: "unquantified; virtual-host = throughput-performance + dirty_background 5% + C-state latency cap (cstate 3 or 70 us)",
    evidence: Evidence::B,
    sources: &["t-vh", "t-tp", "rh-rhel9perf"],
    fix: Fix {
        live: Some("tuned-adm profile virtual-host"),
        persistent: "same command persists; systemctl enable tuned",
        needs: &[Need::Live, Need::HostReboot],
        undo: "raises power use; undo tuned-adm profile <old>",
    },
    check: Check::Host(check),
};

/// Profiles of tuned for guests that want all of a machine.
const QUIET: [&str; 4] = ["cpu-partitioning", "realtime-virtual-host", "realtime", "cpu-partitioning-powersave"];
/// Profiles of tuned that suit a host of other guests.
const FAST: [&str; 6] = [
    "virtual-host",
    "throughput-performance",
    "network-throughput",
    "network-latency",
    "latency-performance",
    "accelerator-performance",
];
/// Profiles of tuned for other machines than hosts.
const OTHER: [&str; 9] = [
    "balanced",
    "balanced-battery",
    "desktop",
    "desktop-powersave",
    "laptop-ac-powersave",
    "laptop-battery-powersave",
    "powersave",
    "server-powersave",
    "virtual-guest",
];

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let latency = context.has_class(WorkloadClass::Latency);
    let wanted = if latency { "cpu-partitioning or realtime-virtual-host" } else { "virtual-host" };
    let object = |found: &str| Outcome::one(Some(Object::new("tuned", found, wanted)));
    let profile = match &host.system.tuned {
        None => return Outcome::unknown("/etc/tuned/active_profile"),
        Some(TunedProfile::Absent) => return Outcome::NotApplicable,
        Some(TunedProfile::None) => return object("installed, but no profile is active"),
        Some(TunedProfile::Active(profile)) => profile,
    };
    let is_one_of = |known: &[&str]| profile.split_ascii_whitespace().any(|word| known.contains(&word));
    if is_one_of(&QUIET) {
        return Outcome::Clean;
    }
    // Of a host that is a virtual machine itself tuned thinks as of a guest.
    let fast = is_one_of(&FAST) || host.system.hypervisor == Some(true) && is_one_of(&["virtual-guest"]);
    match (fast, latency) {
        (true, false) => Outcome::Clean,
        (true, true) => object(&format!("profile {profile}, with domains of the latency class")),
        _ if is_one_of(&OTHER) => object(&format!("profile {profile}")),
        // What a profile of the site's own does is in its settings, which other rules look at.
        _ => Outcome::NotApplicable,
    }
}
