//! KSM is off on performance hosts.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "ksm-off-for-performance",
    layer: Layer::Memory,
    title: "KSM is off on performance hosts",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/kernel/mm/ksm/run"],
    good: "run == 0 (or 2 while unmerging) and pages_sharing == 0; density class may keep run=1",
    applies: "latency, RT, NUMA-sensitive, THP-dependent, multi-tenant (side channel)",
    not_applies: "density/VDI",
    effect: "unquantified; Red Hat: better runtime performance without KSM unless oversubscribed; KSM also splits THP",
    evidence: Evidence::B,
    sources: &["rh-ksmnuma", "k-ksm", "t-rvh", "rh-rhel7thp", "fc-prod"],
    fix: Fix {
        live: Some("echo 2 > /sys/kernel/mm/ksm/run; systemctl disable --now ksm ksmtuned"),
        persistent: "mask both services",
        needs: &[Need::Live],
        undo: "unmerge needs the memory back: check MemAvailable > pages_sharing*4K first; undo echo 1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let Some(ksm) = host.system.ksm else { return Outcome::unknown("/sys/kernel/mm/ksm/run") };
    let wants = |domain: &Domain| matches!(domain.class, WorkloadClass::Throughput | WorkloadClass::Latency);
    if !context.domains.iter().any(wants) {
        return Outcome::NotApplicable;
    }
    // 0 and not 2: giving every guest its own pages back at once needs memory that may not be there.
    Outcome::one((ksm == 1).then(|| {
        Object::new("same-page merging", "on, with domains of the throughput or latency class", "off")
            .cured_by(Cure::kernel_file("/sys/kernel/mm/ksm/run", "0"))
    }))
}
