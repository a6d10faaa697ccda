//! VF link settings fit their use.

use nearmetal_host::{NetworkInterface, VirtualFunction};

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vf-trust-spoof-vlan-known",
    layer: Layer::Pci,
    title: "VF link settings fit their use",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &[
        "/sys/class/net/*/device/sriov/*/config (mlx5; other drivers report only through netlink)",
        "domain <hostdev>, <interface type='hostdev'>",
    ],
    good: "no min/max_tx_rate unless wanted; link-state auto; trust on only for DPDK/bonding guests that need promiscuous/MAC change",
    applies: "SR-IOV",
    not_applies: "-",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["k-ice"],
    fix: Fix {
        live: Some("ip link set <pf> vf N max_tx_rate 0 trust on"),
        persistent: "libvirt <interface type='hostdev' trustGuestRxFilters>, NetworkManager sriov.vfs",
        needs: &[Need::Live],
        undo: "trust lets the guest change MAC; undo trust off",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let rows = host
        .network_interfaces
        .iter()
        .flat_map(|interface| interface.virtual_functions.iter().map(move |row| (interface, row)));
    let own = |row: &VirtualFunction| row.function.is_some_and(|function| subject.facts.hostdevs.contains(&function));
    let rows: Vec<_> = rows.filter(|(_, row)| own(row)).collect();
    if rows.is_empty() {
        return Outcome::NotApplicable;
    }
    let dark = |(interface, row): &&(&NetworkInterface, &VirtualFunction)| {
        row.trusted.is_none().then(|| format!("/sys/class/net/{}/device/sriov/{}/config", interface.name, row.number))
    };
    let missing: Vec<String> = rows.iter().filter_map(|pair| dark(&pair)).collect();
    let trusted = rows.iter().filter(|(_, row)| row.trusted == Some(true)).map(|(interface, row)| {
        let found = "trusted: the guest may change its address and receive all packets";
        Object::new(format!("interface {} VF {}", interface.name, row.number), found, "trust off, unless needed")
    });
    let trusted: Vec<Object> = trusted.collect();
    if trusted.is_empty() && !missing.is_empty() { Outcome::CannotTell(missing) } else { Outcome::of(trusted) }
}
