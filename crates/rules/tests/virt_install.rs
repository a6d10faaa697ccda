//! Definitions nobody here wrote: what virt-install prints. What is found in them, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_domain::DomainXml;
use nearmetal_host::Host;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_rules::{Domain, Input, RULES, Settings, WorkloadClass, examine};

fn findings(text: &str, class: Option<WorkloadClass>) -> Vec<String> {
    let host: Host = Synthetic::new().packages(2).cores_per_node(8).build();
    let settings = Settings::default();
    let facts = DomainXml::parse(text).unwrap().facts().unwrap();
    let domains = [Domain::new(Some(facts), None, class).unwrap()];
    let result = examine(&Input { host: Some(&host), domains: &domains, settings: &settings }, RULES);
    result.findings.into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn defaults_for_a_current_system_have_nothing_wrong() {
    let fedora = include_str!("../../../fixtures/rules/virt-install/fedora.xml");
    assert_eq!(findings(fedora, None), Vec::<String>::new());
    let memfd = include_str!("../../../fixtures/rules/virt-install/memfd.xml");
    // An unknown system gets a card it may know.
    assert_eq!(findings(memfd, None), ["net-model-virtio", "machine-type-current-q35"]);
}

#[test]
fn windows_gets_devices_it_has_drivers_for_which_are_slow() {
    let windows = include_str!("../../../fixtures/rules/virt-install/win10.xml");
    assert_eq!(findings(windows, None), ["disk-bus-virtio", "hyperv-enlightenments", "net-model-virtio"]);
}

#[test]
fn what_was_asked_for_wrongly_is_found() {
    let of = |text: &str| -> Vec<String> {
        let common = ["net-model-virtio", "machine-type-current-q35"];
        findings(text, None).into_iter().filter(|rule| !common.contains(&rule.as_str())).collect()
    };
    assert_eq!(of(include_str!("../../../fixtures/rules/virt-install/topo.xml")), ["cpu-host-passthrough"]);
    assert_eq!(of(include_str!("../../../fixtures/rules/virt-install/hugepages.xml")), ["hugetlb-pool-sized-per-node"]);
    assert_eq!(of(include_str!("../../../fixtures/rules/virt-install/numad.xml")), Vec::<String>::new());
    let vhostuser = include_str!("../../../fixtures/rules/virt-install/vhostuser.xml");
    assert_eq!(of(vhostuser), ["mem-shared-for-vhost-user", "net-ring-size-nfv"]);
}

#[test]
fn a_class_asks_for_more() {
    let user = include_str!("../../../fixtures/rules/virt-install/usernet.xml");
    assert!(!findings(user, None).contains(&"net-not-user-mode".to_owned()));
    let found = findings(user, Some(WorkloadClass::Latency));
    for rule in
        ["net-not-user-mode", "vcpu-pin-1to1", "mem-hugepages", "mem-balloon-by-class", "tsc-invariant-when-static"]
    {
        assert!(found.iter().any(|id| id == rule), "{rule}: {found:?}");
    }
}
