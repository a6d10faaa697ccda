//! What is taken, what is told, and what is refused, from matrices with invented values.

use std::collections::BTreeMap;

use nearmetal_domain::DomainXml;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_load::Unit;
use nearmetal_results::{Effect, Environment, GroundKey, NET_MATRIX_SCHEMA, NetConfirmation, NetPath, Slice};
use nearmetal_stats::{Pair, RatioEstimate, ratio};
use nearmetal_units::{Bytes, CpuSet, NodeSet};

use super::*;

pub(crate) const MAC: &str = "52:54:00:00:00:01";

/// libvirt's default, with another way to the port and another backend.
fn path(link: Link, backend: Option<Backend>) -> NetPath {
    NetPath { link, backend, ..NetPath::libvirt_default() }
}

fn estimate(factor: f64) -> RatioEstimate {
    let noise = [1.0, 1.02, 0.98, 1.01, 0.99];
    let pairs: Vec<Pair> =
        noise.iter().map(|noise| Pair { subject: 1000.0 * factor * noise, reference: 1000.0 }).collect();
    ratio(&pairs, 0.95, 1).unwrap()
}

/// A matrix of the lab in which `winner`, on `source`, does 1.5 times libvirt's default in round trips, and `streams` times
/// in streams.
pub(crate) fn results(winner: NetPath, source: &str, streams: f64) -> NetMatrixResults {
    let arm = |path: NetPath, source: &str| NetArmResult {
        path,
        id: path.id(),
        source: source.into(),
        effect: Effect::Shown { evidence: vec!["test".into()] },
        cannot_win: None,
        fate: None,
        rounds: 4,
        median: None,
        medians: BTreeMap::new(),
        peer_bound: None,
        to_default: None,
        to_bare: None,
    };
    let figure = |test: NetTest, factor: f64, unit: Unit| NetFigure {
        metric: test.rate(),
        unit,
        medians: vec![],
        to_default: Some(estimate(factor)),
        to_bare: None,
        default_to_bare: None,
        peer_bound: Some(false),
    };
    let figures = vec![
        figure(NetTest::TcpRr, 1.5, Unit::TransactionsPerSecond),
        figure(NetTest::TcpStream, streams, Unit::BitsPerSecond),
    ];
    NetMatrixResults {
        schema: NET_MATRIX_SCHEMA.into(),
        created: "2026-01-01T00:00:00Z".into(),
        version: "0".into(),
        environment: Environment::Lab { machine: "quad".into() },
        ground: GroundKey { device: "igb 8086:10c9".into(), kernel: "6.12.0-synthetic".into(), qemu: "10.0.8".into() },
        guest: "net1".into(),
        slice: Slice {
            cpus: CpuSet::one(3),
            nodes: NodeSet::one(1),
            page_size: None,
            device: "eth0".into(),
            region: Bytes::new(0),
            cpus_on_top: CpuSet::one(5),
        },
        port: "eth0".into(),
        port_node: Some(1),
        peer: "192.0.2.1".parse().unwrap(),
        tests: vec![NetTest::TcpRr, NetTest::TcpStream],
        seconds: 3,
        seed: 1,
        budget: 600,
        took: 100.0,
        error: 0.05,
        looks: vec![4],
        ceiling: vec![],
        arms: vec![arm(NetPath::libvirt_default(), "eth0"), arm(winner, source)],
        reference: 0,
        left_out: vec![],
        turns: vec![],
        winner: Some(1),
        slack: Some(1.0),
        confirmation: Some(NetConfirmation { turns: vec![], figures }),
        caveats: vec![],
        provenance: BTreeMap::new(),
    }
}

/// One interface of a guest, and the host it is on: `eth0` with two virtual functions, in `br0`; `eth1` beside it.
pub(crate) fn host() -> Host {
    let mut host = Synthetic::new().packages(2).cores_per_node(8).network(1, 7, 2).network(0, 0, 0).build();
    host.network_interfaces[0].master = Some("br0".into());
    let bridge = |name: &str| NetworkInterface { name: name.into(), kind: Some("bridge".into()), ..Default::default() };
    host.network_interfaces.extend([bridge("br0"), bridge("virbr0")]);
    host
}

pub(crate) fn xml(interface: &str) -> String {
    format!(
        "<domain type='kvm'>
  <name>net1</name>
  <uuid>4b1d6c52-6d6e-4f0c-8a38-0f4d6f2c9b11</uuid>
  <memory unit='KiB'>524288</memory>
  <vcpu placement='static'>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    {interface}
  </devices>
</domain>
"
    )
}

/// `<interface>` of this kind, with more children.
pub(crate) fn element(kind: &str, source: &str, more: &str) -> String {
    format!("<interface type='{kind}'><mac address='{MAC}'/><source {source}/>{more}</interface>")
}

const VIRTIO: &str = "<model type='virtio'/>";

fn interface(text: &str) -> InterfaceFacts {
    DomainXml::parse(&xml(text)).unwrap().facts().unwrap().interfaces.remove(0)
}

fn guest(class: WorkloadClass, vcpus: u32) -> GuestRequest {
    GuestRequest {
        name: "net1".into(),
        uuid: "4b1d6c52-6d6e-4f0c-8a38-0f4d6f2c9b11".into(),
        vcpus,
        memory: Bytes::from_mib(512),
        class,
        disks: vec![],
        networks: vec![],
        passthrough: vec![],
        shows: Default::default(),
    }
}

fn function(address: &str, name: &str, obstacle: Option<&str>) -> Function {
    let interface = (!name.is_empty()).then(|| name.to_owned());
    Function { address: address.parse().unwrap(), interface, driver: None, obstacle: obstacle.map(str::to_owned) }
}

/// Asked for a bridged interface of a guest with two vCPUs.
fn asked(
    results: &NetMatrixResults,
    element: &str,
    class: WorkloadClass,
    functions: &[Function],
) -> Result<MeasuredNetwork, String> {
    let interface = interface(element);
    let way = WayOut::of(&interface, None, &host()).unwrap();
    let guest = guest(class, 2);
    let mac = MAC.parse().unwrap();
    for_plan(results, &Wanted { guest: &guest, interface: &interface, mac, way: &way, functions, has_vhost: true })
}

fn bridged(more: &str) -> String {
    element("bridge", "bridge='br0'", more)
}

#[test]
fn the_port_is_found_where_definition_and_host_tell_it() {
    let mut host = host();
    let way = |host: &Host, element: &str| {
        WayOut::of(&interface(element), None, host).map(|way| (way.port, way.link.map(Link::id)))
    };
    let macvtap = |dev: &str, mode: &str| element("direct", &format!("dev='{dev}'{mode}"), VIRTIO);
    let is = |port: &str, link: Option<&'static str>| Some((port.to_owned(), link));
    assert_eq!(way(&host, &bridged(VIRTIO)), is("eth0", Some("bridge")));
    assert_eq!(way(&host, &macvtap("eth1", " mode='bridge'")), is("eth1", Some("macvtap-bridge")));
    assert_eq!(way(&host, &macvtap("eth1", " mode='private'")), is("eth1", Some("macvtap-private")));
    assert_eq!(way(&host, &macvtap("eth1", " mode='passthrough'")), is("eth1", Some("macvtap-passthrough")));
    assert_eq!(way(&host, &macvtap("eth1", "")), is("eth1", None), "libvirt's own mode is vepa, which nobody measures");
    assert_eq!(way(&host, &element("bridge", "bridge='virbr0'", VIRTIO)), None, "its packets are routed");
    assert_eq!(way(&host, &element("network", "network='br0'", VIRTIO)), None, "a network's name is no bridge's");
    assert_eq!(way(&host, &macvtap("eth7", " mode='bridge'")), None);

    let function = host.pci_devices.iter().find(|device| device.physical_function.is_some()).unwrap().address;
    let named = NetworkInterface { name: "vf0".into(), pci: Some(function), ..Default::default() };
    host.network_interfaces.push(named);
    let on_function = way(&host, &macvtap("vf0", " mode='passthrough'"));
    assert_eq!(on_function, is("eth0", Some("vf-macvtap-passthrough")), "its card's port is what was measured");
    assert_eq!(way(&host, &macvtap("vf0", " mode='bridge'")), is("eth0", None));

    let stored = interface(&element("network", "network='lan'", VIRTIO));
    let live = interface(&element("network", "network='lan' bridge='br0'", VIRTIO));
    assert_eq!(WayOut::of(&stored, Some(&live), &host).map(|way| way.port).as_deref(), Some("eth0"));
    host.network_interfaces[1].master = Some("br0".into());
    assert_eq!(way(&host, &bridged(VIRTIO)), None, "of two ports it is not known which one a packet takes");
}

#[test]
fn what_is_joined_as_the_winner_is_takes_its_options() {
    let user = results(path(Link::Bridge, Some(Backend::Qemu)), "eth0", 1.1);
    let measured = asked(&user, &bridged(VIRTIO), WorkloadClass::General, &[]).unwrap();
    let set = measured.options.unwrap();
    assert_eq!((set.backend, set.queues, set.offloads_off), (NetworkBackend::Qemu, 1, false));
    for words in ["1.50× (", "libvirt's default in tcp-rr", "5 fresh pairs", "igb 8086:10c9", "lab: emulated time"] {
        assert!(measured.because.contains(words), "`{words}` is not in: {}", measured.because);
    }
    let silicon = NetMatrixResults { environment: Environment::Silicon, ..user };
    let because = asked(&silicon, &bridged(VIRTIO), WorkloadClass::General, &[]).unwrap().because;
    assert!(!because.contains("lab"), "{because}");
    let several = NetPath { queues: Some(2), offloads: false, ..path(Link::MacvtapPrivate, Some(Backend::Vhost)) };
    let private = element("direct", "dev='eth1' mode='private'", VIRTIO);
    let measured = asked(&results(several, "eth0", 1.1), &private, WorkloadClass::General, &[]).unwrap();
    let set = measured.options.unwrap();
    assert_eq!((set.backend, set.queues, set.offloads_off), (NetworkBackend::Vhost, 2, true));
}

#[test]
fn what_cannot_be_taken_is_refused_in_words() {
    let refused =
        |winner: NetPath, element: &str, class| asked(&results(winner, "eth0", 0.8), element, class, &[]).unwrap_err();
    let (vhost, latency) = (path(Link::Bridge, Some(Backend::Vhost)), WorkloadClass::Latency);
    let several = NetPath { queues: Some(8), ..vhost };
    assert!(refused(several, &bridged(VIRTIO), latency).contains("8 queues, and this guest 2 vCPUs"));
    let none = NetPath { queues: Some(0), ..vhost };
    assert!(refused(none, &bridged(VIRTIO), latency).contains("0 queues"));
    let off = format!("{VIRTIO}<driver><guest tso4='off'/></driver>");
    assert!(refused(vhost, &bridged(&off), latency).contains("has off: guest/tso4"));
    assert!(refused(vhost, &bridged("<model type='e1000e'/>"), latency).contains("this one is e1000e"));
    assert!(refused(path(Link::Bridge, None), &bridged(VIRTIO), latency).contains("what moves the packets"));

    let default = NetMatrixResults { winner: Some(0), ..results(vhost, "eth0", 1.1) };
    let said = asked(&default, &bridged(VIRTIO), latency, &[]).unwrap_err();
    assert_eq!(said, "nothing was shown better than libvirt's default");
    let mut equal = results(vhost, "eth0", 1.1);
    equal.confirmation.as_mut().unwrap().figures[0].to_default = Some(estimate(1.0));
    let said = asked(&equal, &bridged(VIRTIO), latency, &[]).unwrap_err();
    assert!(said.contains("was not shown better than libvirt's default: 1.00× ("), "{said}");
    let unsure = NetMatrixResults { confirmation: None, ..results(vhost, "eth0", 1.1) };
    assert!(asked(&unsure, &bridged(VIRTIO), latency, &[]).is_err(), "what was not measured again is not used");

    let interface = interface(&bridged(VIRTIO));
    let (way, guest) = (WayOut::of(&interface, None, &host()).unwrap(), guest(latency, 2));
    let mac = MAC.parse().unwrap();
    let without = Wanted { guest: &guest, interface: &interface, mac, way: &way, functions: &[], has_vhost: false };
    assert!(for_plan(&results(vhost, "eth0", 1.1), &without).unwrap_err().contains("/dev/vhost-net"));
}

#[test]
fn a_winner_that_loses_where_it_counts_for_the_class_is_not_used() {
    let slow_streams = results(path(Link::Bridge, Some(Backend::Qemu)), "eth0", 0.8);
    let asked = |class| asked(&slow_streams, &bridged(VIRTIO), class, &[]);
    assert!(asked(WorkloadClass::Latency).unwrap().options.is_some(), "streams do not count for it");
    for class in [WorkloadClass::General, WorkloadClass::Throughput] {
        let why = asked(class).unwrap_err();
        let words = format!("which counts for class {}", class.word());
        assert!(why.contains("0.80× (") && why.contains("in tcp-stream") && why.contains(&words), "{why}");
    }
}

#[test]
fn another_kind_of_connection_is_told_with_its_line_and_price() {
    let given = results(path(Link::VfHostdev, None), "0000:39:10.0", 1.1);
    let told = |results: &NetMatrixResults, functions: &[Function]| {
        let measured = asked(results, &bridged(VIRTIO), WorkloadClass::General, functions).unwrap();
        assert_eq!(measured.options, None);
        measured.because
    };
    let held = function("0000:39:10.0", "", Some("a guest has 0000:39:10.0"));
    let free = function("0000:39:10.1", "vf1", None);
    let text = told(&given, &[held.clone(), free.clone()]);
    for words in
        ["VF given to the guest: measured", "1.50× (", "is not changed", "slot='0x10' function='0x1'", "its price: "]
    {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    let text = told(&given, &[held]);
    assert!(text.contains("nearmetal device vfs eth0 1") && !text.contains("<interface"), "{text}");
    let macvtap = told(&results(path(Link::MacvtapBridge, Some(Backend::Vhost)), "enp9s0", 1.1), &[]);
    assert!(macvtap.contains("<source dev='eth0' mode='bridge'/>"), "of this port, not of the one measured: {macvtap}");
    let on_function = results(path(Link::VfMacvtapPassthrough, Some(Backend::Vhost)), "other", 1.1);
    assert!(told(&on_function, &[free]).contains("<source dev='vf1' mode='passthrough'/>"));
    let spread = NetPath { rps: true, ..path(Link::Bridge, Some(Backend::Vhost)) };
    let text = told(&results(spread, "eth0", 1.1), &[]);
    assert!(text.contains("rps_cpus") && text.contains("is set in the guest"), "{text}");
}
