//! Bridged guest frames bypass the host's netfilter.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "net-bridge-nf-off",
    layer: Layer::Net,
    title: "Bridged guest frames bypass the host's netfilter",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/proc/sys/net/bridge/bridge-nf-call-{iptables,ip6tables,arptables}"],
    good: "0 or absent (br_netfilter not loaded)",
    applies: "Linux bridge hosts",
    not_applies: "Kubernetes/OpenStack security-group hosts that need br_netfilter; libvirt nwfilter with connection tracking",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-bridge"],
    fix: Fix {
        live: Some("sysctl net.bridge.bridge-nf-call-iptables=0 (and ip6tables, arptables)"),
        persistent: "/etc/sysctl.d + udev rule on br_netfilter load",
        needs: &[Need::Live],
        undo: "guest traffic is no longer host-filtered; undo =1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let mut interfaces = context.domains.iter().filter_map(Domain::in_force).flat_map(|facts| &facts.interfaces);
    if !interfaces.any(|interface| matches!(interface.kind.as_str(), "bridge" | "network")) {
        return Outcome::NotApplicable;
    }
    let Some(filters) = &host.system.bridge_filters else { return Outcome::unknown("/proc/sys/net/bridge") };
    let passing = filters.iter().filter(|filter| filter.value != 0).map(|filter| {
        let found = "1: every frame between guests goes through the host's packet filters";
        Object::new(&filter.name, found, "0, unless the host's filters (Docker, Kubernetes, OpenStack) protect guests")
    });
    Outcome::of(passing.collect())
}
