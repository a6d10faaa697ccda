//! Only latency-class hosts busy-poll sockets.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "net-busy-poll-latency",
    layer: Layer::Net,
    title: "Only latency-class hosts busy-poll sockets",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/proc/sys/net/core/{busy_read,busy_poll}"],
    good: "latency class: busy_read=50, busy_poll=50 (tuned network-latency); other classes 0",
    applies: "kernel network stack, latency class",
    not_applies: "density hosts",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-nl", "rh-netlat"],
    fix: Fix {
        live: Some("sysctl net.core.busy_read=50 net.core.busy_poll=50"),
        persistent: "tuned-adm profile network-latency",
        needs: &[Need::Live],
        undo: "burns CPU; undo 0",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if context.domains.is_empty() || context.domains.iter().any(|domain| domain.class == WorkloadClass::Latency) {
        return Outcome::Clean;
    }
    let settings = [("busy_read", host.tuning.busy_read), ("busy_poll", host.tuning.busy_poll)];
    let object = |(name, value): (&str, Option<u64>)| {
        let value = value.filter(|value| *value > 0)?;
        let cure = Cure::kernel_file(format!("/proc/sys/net/core/{name}"), "0");
        let wanted = "0: no guest here has the latency class, and polling takes CPU time from all";
        Some(Object::new(name, format!("{value} µs"), wanted).cured_by(cure))
    };
    Outcome::of(settings.into_iter().filter_map(object).collect())
}
