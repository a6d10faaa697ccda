//! Guest, tap, bridge and uplink have the same MTU.

use nearmetal_host::NetworkInterface;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "net-mtu-consistent",
    layer: Layer::Net,
    title: "Guest, tap, bridge and uplink have the same MTU",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/class/net/*/{mtu,master}"],
    good: "equal on all hops; 9000 only when the whole L2 path (switch included) supports it",
    applies: "large-packet/storage networks",
    not_applies: "internet-facing guests",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["lv-dom", "ovs-dpdk"],
    fix: Fix {
        live: Some("ip link set dev X mtu 9000"),
        persistent: "NetworkManager mtu; <mtu size='9000'/>",
        needs: &[Need::Live, Need::VmRestart],
        undo: "black-holed packets when one hop is smaller; undo 1500",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let bridge = |name: &str| {
        host.network_interfaces
            .iter()
            .find(|interface| interface.name == name && interface.kind.as_deref() == Some("bridge"))
    };
    let object = |interface: &NetworkInterface| {
        let bridge = bridge(interface.master.as_deref()?)?;
        let (own, whole) = (interface.mtu?, bridge.mtu?);
        (own != whole).then(|| {
            Object::new(
                format!("interface {}", interface.name),
                format!("MTU {own}"),
                format!("{whole}, as its bridge {}", bridge.name),
            )
        })
    };
    Outcome::of(host.network_interfaces.iter().filter_map(object).collect())
}
