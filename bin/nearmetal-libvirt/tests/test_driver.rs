//! The helper against libvirt's own test driver, which is inside libvirt.so: no daemon, no QEMU, no privileges.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::time::Duration;

use nearmetal_host::Host;
use nearmetal_hypervisor::{
    Definition, DomainState, Events, Hypervisor, HypervisorError, Libvirt, Nvram, PauseReason, Scope, ShutdownMode,
    agent,
};
use nearmetal_units::Bytes;
use serde_json::json;

const HELPER: &str = env!("CARGO_BIN_EXE_nearmetal-libvirt");
const SMALL: &str = "<domain type='test'><name>small</name><memory>1024</memory><os><type>hvm</type></os></domain>";

fn open(uri: &str) -> Libvirt {
    Libvirt::with_helper(Path::new(HELPER), uri).unwrap()
}

/// A connection to the test driver, or the reason why there is none.
fn test_driver() -> Option<Libvirt> {
    let mut libvirt = open("test:///default");
    match libvirt.versions() {
        Ok(_) => Some(libvirt),
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "skipped: this libvirt was built without its test driver ({error})");
            None
        }
    }
}

#[test]
fn versions_and_capabilities_come_from_libvirt() {
    let Some(mut libvirt) = test_driver() else { return };
    let versions = libvirt.versions().unwrap();
    assert_eq!((versions.hypervisor_kind.as_str(), versions.uri.as_str()), ("TEST", "test:///default"));
    assert_eq!(versions.libvirt.split('.').count(), 3);
    assert!(libvirt.capabilities().unwrap().contains("<capabilities>"));
    // The test driver's one device is neither PCI nor drive nor interface.
    assert!(libvirt.node_devices().unwrap().iter().all(|document| document.contains("<device>")));
}

#[test]
fn what_libvirt_tells_of_a_host_makes_a_model_of_it() {
    let Some(mut libvirt) = test_driver() else { return };
    let (capabilities, devices) = (libvirt.capabilities().unwrap(), libvirt.node_devices().unwrap());
    let found = nearmetal_capture::from_libvirt("test:///default", &capabilities, &devices).unwrap();
    let host = Host::read(&found.fs);
    // testConnectOpenDefault of libvirt's test driver: two cells of eight CPUs, 2 and 4 GiB.
    let summary = host.summary();
    assert_eq!((summary.packages, summary.numa_nodes, summary.pus), (Some(2), 2, 16));
    assert_eq!(summary.memory, Some(Bytes::from_mib(6 << 10)));
    assert_eq!((host.nodes[1].cpus.to_string().as_str(), host.nodes[1].memory_free), ("8-15", None));
    assert_eq!(host.unreadable, []);
}

#[test]
fn a_domain_lives_its_life() {
    let Some(mut libvirt) = test_driver() else { return };
    let defined = libvirt.define(SMALL).unwrap();
    assert_eq!((defined.state, defined.persistent, defined.id), (DomainState::ShutOff, true, None));
    let names: Vec<_> = libvirt.domains().unwrap().into_iter().map(|domain| domain.name).collect();
    assert_eq!(names, ["small", "test"]);
    libvirt.start("small", false).unwrap();
    assert_eq!(libvirt.domain("small").unwrap().state, DomainState::Running);
    assert!(libvirt.domain_xml("small", Definition::Live).unwrap().contains("id='"));
    assert!(!libvirt.domain_xml("small", Definition::Inactive).unwrap().contains("id='"));
    libvirt.suspend("small").unwrap();
    assert_eq!(libvirt.domain("small").unwrap().pause, Some(PauseReason::User));
    let paused = libvirt.shutdown("small", ShutdownMode::Acpi, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(paused, HypervisorError::WrongState { state: DomainState::Paused, .. }), "{paused}");
    libvirt.resume("small").unwrap();
    assert_eq!(libvirt.domain("small").unwrap().pause, None);
    libvirt.set_autostart("small", true).unwrap();
    assert!(libvirt.domain("small").unwrap().autostart);
    let class = "<class>latency</class>";
    libvirt.set_metadata("small", "https://example.org/1", "own", Some(class), Scope::BOTH).unwrap();
    for which in [Definition::Live, Definition::Inactive] {
        let xml = libvirt.domain_xml("small", which).unwrap();
        assert!(xml.contains(r#"<own:class xmlns:own="https://example.org/1">latency</own:class>"#), "{xml}");
    }
    libvirt.set_metadata("small", "https://example.org/1", "own", None, Scope::BOTH).unwrap();
    assert!(!libvirt.domain_xml("small", Definition::Inactive).unwrap().contains("example.org"));
    libvirt.destroy("small").unwrap();
    libvirt.shutdown("small", ShutdownMode::Acpi, Duration::from_secs(1)).unwrap();
    libvirt.undefine("small", Nvram::Keep).unwrap();
    let clone = libvirt.create_transient(SMALL, false).unwrap();
    assert!(!clone.persistent && clone.state == DomainState::Running);
    libvirt.destroy("small").unwrap();
    assert_eq!(libvirt.domains().unwrap().len(), 1);
}

#[test]
fn what_libvirt_refuses_comes_back_with_its_numbers() {
    let Some(mut libvirt) = test_driver() else { return };
    let Err(HypervisorError::NoSuchDomain { name, existing }) = libvirt.domain("db") else { panic!() };
    assert_eq!((name.as_str(), existing), ("db", vec!["test".to_owned()]));
    let unknown = SMALL.replace("</domain>", "<bogus/></domain>");
    let Err(HypervisorError::Refused { code, message, .. }) = libvirt.define(&unknown) else { panic!() };
    assert_eq!(code, 92, "{message}");
    assert!(message.contains("bogus"), "{message}");
    let Err(HypervisorError::Refused { action, name, .. }) = libvirt.define("not XML at all") else { panic!() };
    assert_eq!((action.as_str(), name.as_str()), ("define", "test:///default"));
    assert!(matches!(libvirt.start("test", false), Err(HypervisorError::Refused { .. })));
    let zero = libvirt.domain("te\0st").unwrap_err();
    assert!(matches!(zero, HypervisorError::InvalidRequest { .. }), "{zero}");
    // This driver pins only without a scope, and has neither agent nor monitor: typed errors all the same.
    for result in [
        libvirt.pin_vcpu("test", 0, &"0".parse().unwrap(), Scope::BOTH),
        libvirt.pin_iothread("test", 1, &"0".parse().unwrap(), Scope::LIVE),
        agent::ping(&mut libvirt, "test", Duration::from_secs(1)),
        libvirt.monitor("test", &json!({"execute": "query-status"})).map(drop),
    ] {
        let Err(HypervisorError::Refused { code, .. }) = result else { panic!("{result:?}") };
        assert!(code > 0);
    }
    assert_eq!(libvirt.domain("test").unwrap().state, DomainState::Running, "it still answers");
}

#[test]
fn a_libvirt_that_is_not_there_is_unreachable() {
    let socket = "qemu+unix:///system?socket=/nonexistent/libvirt-sock";
    for uri in [socket, "nosuchdriver:///system", "not a uri"] {
        let error = open(uri).domains().unwrap_err();
        let HypervisorError::Unreachable { uri: tried, reason } = &error else { panic!("{uri}: {error}") };
        assert!(tried == uri && !reason.is_empty());
        let shown = error.to_string();
        assert!(shown.contains(uri) && shown.contains("systemctl start"), "{shown}");
    }
}

/// Definitions written from plain data, and edited ones that show cells and pass functions.
const WRITTEN: [(&str, &str); 9] = [
    ("small", include_str!("../../../fixtures/domains/new/small.xml")),
    ("orders", include_str!("../../../fixtures/domains/new/orders.xml")),
    ("desk", include_str!("../../../fixtures/domains/new/desk.xml")),
    ("desk17", include_str!("../../../fixtures/domains/new/desk17.xml")),
    ("plc", include_str!("../../../fixtures/domains/new/plc.xml")),
    ("wide", include_str!("../../../fixtures/domains/setters/set_cells_new.after.xml")),
    ("wide", include_str!("../../../fixtures/domains/setters/set_cells_kept.after.xml")),
    ("nic", include_str!("../../../fixtures/domains/setters/set_functions_new.after.xml")),
    ("nic", include_str!("../../../fixtures/domains/setters/set_functions_kept.after.xml")),
];

#[test]
fn what_nearmetal_writes_passes_libvirts_schema_and_comes_back() {
    let Some(mut libvirt) = test_driver() else { return };
    for (name, text) in WRITTEN {
        // The schema takes this driver's type too; the driver takes no other.
        let text = text.replace("<domain type='kvm'>", "<domain type='test'>");
        libvirt.define(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let back = libvirt.domain_xml(name, Definition::Inactive).unwrap();
        for alias in text.split("<alias name='").skip(1).filter_map(|rest| rest.split('\'').next()) {
            assert!(back.contains(alias), "libvirt lost {alias}:\n{back}");
        }
        assert_eq!(back.matches("<cell ").count(), text.matches("<cell ").count(), "{back}");
        assert_eq!(back.matches("<sibling ").count(), text.matches("<sibling ").count(), "{back}");
        assert_eq!(back.matches("<hostdev ").count(), text.matches("<hostdev ").count(), "{back}");
        libvirt.undefine(name, Nvram::Remove).unwrap();
    }
}

#[test]
fn events_can_be_followed_and_the_helper_goes_with_who_follows() {
    if test_driver().is_none() {
        return;
    }
    let mut events = Events::with_helper(Path::new(HELPER), "test:///default").unwrap();
    assert_eq!(events.wait(Duration::from_millis(300)).unwrap(), None);
    // Which this URI's driver never is.
    let error = Events::with_helper(Path::new(HELPER), "qemu+unix:///system?socket=/nonexistent/socket").unwrap_err();
    assert!(matches!(error, HypervisorError::Unreachable { .. }), "{error}");
}

#[test]
fn a_helper_whose_reader_is_gone_ends_by_itself() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};
    if test_driver().is_none() {
        return;
    }
    let mut child =
        Command::new(HELPER).arg("test:///default").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"protocol\":6}\n{\"id\":1,\"request\":\"events\"}\n").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("protocol"));
    assert_eq!(lines.next().unwrap().unwrap(), r#"{"id":1,"outcome":{"reply":"done"}}"#);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}
