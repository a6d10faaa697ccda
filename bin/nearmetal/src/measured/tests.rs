//! From a store to a plan's text, definition and JSON, on a synthetic host.

use nearmetal_change::{DomainInput, compose};
use nearmetal_domain::DomainXml;
use nearmetal_place::{Occupied, Policy, WorkloadClass, render, use_measured};
use nearmetal_results::{Backend, Link, NetMatrixResults, NetPath};

use super::*;
use crate::guest_request::{Paths, guest_request};
use crate::job::net_for_plan::tests::{MAC, element, host, results, xml};

const VIRTIO: &str = "<model type='virtio'/>";

fn facts(text: &str) -> DomainFacts {
    DomainXml::parse(text).unwrap().facts().unwrap()
}

fn request(host: &Host, text: &str) -> GuestRequest {
    guest_request(facts(text), WorkloadClass::General, &Paths { host, here: false })
}

fn user_space() -> NetMatrixResults {
    results(NetPath { backend: Some(Backend::Qemu), ..NetPath::libvirt_default() }, "eth0", 1.1)
}

/// What is found in a store with one matrix, and what is said.
fn found(
    recorded: &NetMatrixResults,
    host: &Host,
    environment: &Environment,
    stored: &str,
    live: Option<&str>,
) -> (Vec<MeasuredNetwork>, Vec<Note>) {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(&directory.path().join("results.sqlite")).unwrap();
    store.keep_net_matrix(recorded).unwrap();
    let kernel = host.system.kernel.as_deref().unwrap();
    let ground = Ground { store: &store, host, kernel, environment };
    let request = request(host, stored);
    let guest = Guest { request: &request, stored: facts(stored), live: live.map(facts) };
    let mut notes = Vec::new();
    let networks = ground.networks(&guest, |_| Vec::new(), true, &mut notes);
    (networks, notes)
}

fn lab() -> Environment {
    Environment::Lab { machine: "quad".into() }
}

#[test]
fn a_recorded_winner_is_in_the_definition_the_text_and_the_json() {
    let host = host();
    let text = xml(&element("bridge", "bridge='br0'", VIRTIO));
    let (networks, notes) = found(&user_space(), &host, &lab(), &text, None);
    assert_eq!(notes, []);
    let measured = Measured { networks, ..Measured::default() };
    let mut requests = [request(&host, &text)];
    measured.expect_in(&mut requests);
    let mut planned = nearmetal_place::plan(&host, &Occupied::default(), &requests, &Policy::default());
    use_measured(&host, &mut planned.plan, &measured);
    let said = render(&planned);
    assert!(said.contains("backend qemu, 1 queue") && said.contains("because measured 2026-01-01"), "{said}");
    assert!(!said.contains("vhost workers of its network interfaces run there"), "it has none any more: {said}");
    let input = DomainInput { name: "net1".into(), inactive_xml: text, live_xml: None };
    let file = compose(&host, &planned.plan, &[input]).unwrap();
    assert!(file.domains[0].xml_after.contains("<driver name='qemu'/>"), "{}", file.domains[0].xml_after);
    let part = file.domains[0].needs_restart.iter().find(|part| part.what == format!("interface {MAC}")).unwrap();
    assert_eq!(part.change, "backend vhost, 1 queue -> backend qemu, 1 queue");
    let json: serde_json::Value = serde_json::from_str(&file.to_json()).unwrap();
    let placement = &json["plan"]["placements"][0];
    assert_eq!(placement["networks"][0]["backend"], "qemu");
    let reasons = placement["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["because"].as_str().unwrap().contains("1.50× (")), "{reasons:?}");
}

#[test]
fn another_card_kernel_or_environment_is_not_this_one() {
    let text = xml(&element("bridge", "bridge='br0'", VIRTIO));
    let taken = |recorded: &NetMatrixResults, host: &Host, environment: &Environment| {
        let (networks, notes) = found(recorded, host, environment, &text, None);
        assert_eq!(notes, [], "what is not found is not spoken of");
        networks.len()
    };
    assert_eq!(taken(&user_space(), &host(), &lab()), 1);
    assert_eq!(taken(&user_space(), &host(), &Environment::Silicon), 0, "the lab's time is emulated");
    let silicon = NetMatrixResults { environment: Environment::Silicon, ..user_space() };
    assert_eq!(taken(&silicon, &host(), &lab()), 0);
    assert_eq!(taken(&silicon, &host(), &Environment::Silicon), 1);
    let mut newer = host();
    newer.system.kernel = Some("6.18.0-synthetic".into());
    assert_eq!(taken(&user_space(), &newer, &lab()), 0);
    let mut other = host();
    other.pci_devices.iter_mut().for_each(|device| device.device = Some(0x1521));
    assert_eq!(taken(&user_space(), &other, &lab()), 0);
    let mut nameless = host();
    nameless.pci_devices.iter_mut().for_each(|device| device.device = None);
    let mut recorded = user_space();
    recorded.ground.device = "igb 8086:?".into();
    assert_eq!(taken(&recorded, &nameless, &lab()), 0, "two cards without ids need not be the same");
}

#[test]
fn a_network_of_libvirt_is_known_while_the_guest_runs() {
    let host = host();
    let stored = xml(&element("network", "network='lan'", VIRTIO));
    let live = xml(&element("network", "network='lan' bridge='br0'", VIRTIO));
    assert_eq!(found(&user_space(), &host, &lab(), &stored, None).0, [], "it is off: nobody knows");
    let (networks, _) = found(&user_space(), &host, &lab(), &stored, Some(&live));
    assert!(networks[0].options.is_some(), "{networks:?}");
    let one = element("bridge", "bridge='br0'", VIRTIO);
    let twice = xml(&format!("{one}{one}"));
    assert_eq!(found(&user_space(), &host, &lab(), &twice, None).0, [], "no plan can name one of the two");
}

#[test]
fn what_is_found_and_not_used_is_said() {
    let text = xml(&element("bridge", "bridge='br0'", "<model type='e1000e'/>"));
    let (networks, notes) = found(&user_space(), &host(), &lab(), &text, None);
    let [Note::Plain(said)] = notes.as_slice() else { panic!("{notes:?}") };
    let words = format!("net1, interface {MAC}: the matrix of 2026-01-01T00:00:00Z is not used: its winner");
    assert!(networks.is_empty() && said.starts_with(&words), "{said}");
    let given = results(NetPath { link: Link::VfHostdev, backend: None, ..NetPath::libvirt_default() }, "x", 1.1);
    let (networks, notes) = found(&given, &host(), &lab(), &text, None);
    assert!(notes.is_empty() && networks[0].options.is_none(), "an emulated card can be replaced: {networks:?}");
}
