use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::{Definition, Hypervisor, PassedFile, Scope, ShutdownMode};

const WEB: &str = "<domain type='kvm'>\n  <name>web</name>\n  <memory unit='KiB'>1048576</memory>\n</domain>\n";
const SHORT: Duration = Duration::from_millis(500);

fn lost() -> HypervisorError {
    HypervisorError::ConnectionLost {
        uri: "fake:///system".into(),
        action: "define".into(),
        name: "web".into(),
        reason: "end of file".into(),
    }
}

#[test]
fn a_domain_starts_and_stops_as_libvirt_would_have_it() {
    let mut fake = Fake::new("<capabilities/>").with_domain(WEB);
    assert_eq!(fake.domain("web").unwrap().state, DomainState::ShutOff);
    assert!(matches!(fake.resume("web"), Err(HypervisorError::Refused { code: 55, .. })));
    fake.start("web", true).unwrap();
    let summary = fake.domain("web").unwrap();
    assert_eq!((summary.state, summary.id, summary.persistent), (DomainState::Paused, Some(1), true));
    assert!(fake.start("web", false).is_err());
    assert!(fake.domain_xml("web", Definition::Live).unwrap().contains("id='1'"));
    assert!(!fake.domain_xml("web", Definition::Inactive).unwrap().contains("id='1'"));
    fake.resume("web").unwrap();
    fake.set_shutdown("web", Some(1));
    fake.shutdown("web", ShutdownMode::Acpi, Duration::from_secs(5)).unwrap();
    assert!(fake.domain("web").unwrap().state.is_off());
    fake.shutdown("web", ShutdownMode::Acpi, SHORT).unwrap();
}

#[test]
fn defining_changes_only_the_next_start() {
    let mut fake = Fake::new("").with_running_domain(WEB);
    let live = fake.domain_xml("web", Definition::Live).unwrap();
    let stored = fake.domain_xml("web", Definition::Inactive).unwrap();
    fake.define(&stored.replace("1048576", "2097152")).unwrap();
    assert_eq!(fake.domain_xml("web", Definition::Live).unwrap(), live);
    assert!(fake.domain_xml("web", Definition::Inactive).unwrap().contains("2097152"));
    let other = "<domain type='kvm'><name>web</name><uuid>00000000-0000-4000-8000-000000000000</uuid></domain>";
    assert!(fake.define(other).is_err());
    assert!(fake.define("<domain><name>x</wrong>").is_err());
    assert!(fake.define("<domain/>").is_err());
}

#[test]
fn transient_domains_leave_nothing() {
    let mut fake = Fake::new("").with_domain(WEB);
    let clone = WEB.replace("web", "clone");
    assert!(!fake.create_transient(&clone, true).unwrap().persistent);
    assert!(fake.set_autostart("clone", true).is_err());
    fake.destroy("clone").unwrap();
    let Err(HypervisorError::NoSuchDomain { existing, .. }) = fake.domain("clone") else { panic!() };
    assert_eq!(existing, ["web"]);
    fake.create_transient(&clone, false).unwrap();
    fake.shutdown("clone", ShutdownMode::Acpi, Duration::from_secs(5)).unwrap();
    assert_eq!(fake.domains().unwrap().len(), 1);
}

#[test]
fn a_guest_that_ignores_shutdown_is_left_running() {
    let mut fake = Fake::new("").with_running_domain(WEB);
    fake.set_shutdown("web", None);
    let started = Instant::now();
    let error = fake.shutdown("web", ShutdownMode::AgentThenAcpi, SHORT).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(matches!(&error, HypervisorError::Timeout { name, .. } if name == "web"), "{error}");
    assert_eq!(fake.domain("web").unwrap().state, DomainState::Running);
    assert!(!fake.calls().iter().any(|call| matches!(call, Request::Destroy { .. })));
    // Without an agent, only the power button is left.
    let agent_only = fake.shutdown("web", ShutdownMode::Agent, SHORT).unwrap_err();
    assert_eq!(agent_only, HypervisorError::AgentNotConfigured { name: "web".into() });
    fake.suspend("web").unwrap();
    let asleep = fake.agent("web", &json!({"execute": "guest-ping"}), SHORT).unwrap_err();
    assert!(asleep.to_string().ends_with("it is paused; resume it first"), "{asleep}");
    assert!(matches!(fake.shutdown("web", ShutdownMode::Acpi, SHORT), Err(HypervisorError::WrongState { .. })));
}

#[test]
fn an_agent_that_hangs_is_followed_by_the_power_button() {
    let mut fake = Fake::new("").with_running_domain(WEB);
    fake.on_agent(|_, _| Ok(json!({})));
    fake.set_shutdown("web", None);
    let _ = fake.shutdown("web", ShutdownMode::AgentThenAcpi, SHORT);
    let signals: Vec<_> = fake.calls().iter().filter(|call| matches!(call, Request::Shutdown { .. })).collect();
    assert_eq!(signals.len(), 2, "{signals:?}");
}

#[test]
fn it_fails_where_it_is_told_to() {
    let mut fake = Fake::new("").with_domain(WEB);
    fake.fail_at(2, Effect::Nothing, lost());
    fake.versions().unwrap();
    assert_eq!(fake.start("web", false), Err(lost()));
    assert!(fake.domain("web").unwrap().state.is_off());
    fake.clear_faults();
    fake.fail_when(Effect::Done, lost(), |_, request| matches!(request, Request::Start { .. }));
    assert_eq!(fake.start("web", false), Err(lost()));
    assert_eq!(fake.domain("web").unwrap().state, DomainState::Running);
    assert_eq!(fake.changes().len(), 2);
    assert_eq!(fake.calls().len(), 5);
}

#[test]
fn pins_go_where_their_scope_says() {
    let mut fake = Fake::new("").with_domain(WEB);
    let cpus = "2-3".parse().unwrap();
    assert!(fake.pin_vcpu("web", 0, &cpus, Scope::LIVE).is_err());
    fake.pin_vcpu("web", 0, &cpus, Scope::CONFIG).unwrap();
    fake.start("web", false).unwrap();
    fake.pin_emulator("web", &cpus, Scope::LIVE).unwrap();
    assert_eq!(fake.live_pins("web").len(), 2);
    assert_eq!(fake.config_pins("web").len(), 1);
    assert!(fake.pin_iothread("web", 1, &Default::default(), Scope::BOTH).is_err());
    let before = fake.calls().len();
    fake.pin_emulator("web", &cpus, Scope { live: false, config: false }).unwrap();
    assert_eq!(fake.calls().len(), before);
}

#[test]
fn a_device_that_was_plugged_in_can_be_unplugged_once() {
    let mut fake = Fake::new("").with_running_domain("<domain><name>web</name><devices></devices></domain>");
    let device = "<hostdev type='pci'/>";
    fake.attach_device("web", device).unwrap();
    assert!(fake.domain_xml("web", Definition::Live).unwrap().contains(device));
    fake.detach_device("web", device).unwrap();
    assert!(!fake.domain_xml("web", Definition::Live).unwrap().contains(device));
    assert!(fake.detach_device("web", device).is_err());
}

#[test]
fn it_tells_what_happens_to_domains() {
    let mut fake = Fake::new("").with_domain(WEB);
    let kinds = |fake: &mut Fake| fake.take_events().into_iter().map(|event| event.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&mut fake), [], "what was there before is no event");
    fake.start("web", false).unwrap();
    assert_eq!(kinds(&mut fake), [EventKind::Started, EventKind::Resumed]);
    fake.suspend("web").unwrap();
    fake.resume("web").unwrap();
    assert_eq!(kinds(&mut fake), [EventKind::Suspended, EventKind::Resumed]);
    fake.pin_emulator("web", &"2".parse().unwrap(), Scope::LIVE).unwrap();
    fake.reboot("web");
    assert_eq!(kinds(&mut fake), [EventKind::Tuned, EventKind::Rebooted]);
    fake.set_state("web", DomainState::ShutOff);
    fake.define(WEB).unwrap();
    assert_eq!(kinds(&mut fake), [EventKind::Stopped, EventKind::Defined]);
    fake.start("web", true).unwrap();
    fake.destroy("web").unwrap();
    assert_eq!(kinds(&mut fake), [EventKind::Started, EventKind::Stopped]);
    assert!(fake.destroy("web").is_err());
    assert_eq!(kinds(&mut fake), [], "what failed is no event");
}

#[test]
fn a_tied_domain_is_never_stored_and_ends_with_the_connection() {
    let mut fake = Fake::new("");
    let xml = "<domain type='kvm'><name>job</name><devices><source file='/d' fdgroup='delta'/></devices></domain>";
    let file = |group: &str| PassedFile { group: group.into(), path: "/proc/7/fd/3".into(), writable: true };
    let made = fake.create_tied(xml, &[file("delta")]).unwrap();
    assert!(!made.persistent && made.state == DomainState::Running);
    fake.end_connection();
    assert!(matches!(fake.domain("job"), Err(HypervisorError::NoSuchDomain { .. })));
    let refused = fake.create_tied(xml, &[file("other")]).unwrap_err().to_string();
    assert!(refused.contains("other"), "{refused}");
}
