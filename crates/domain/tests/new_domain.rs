//! Definitions written from plain data: goldens in `fixtures/domains/new/`, written with UPDATE_GOLDENS set.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_domain::{
    DiskBus, DomainError, Firmware, Function, GuestSystem, ImageFormat, NetworkBackend, NetworkFunction, NewDisk,
    NewDiskSource, NewDomain, NewInterface, NewInterfaceSource, diff, render_diff,
};
use nearmetal_units::{Bytes, VlanId};
use proptest::prelude::*;

const UUID: &str = "0f5a1c8e-3a4b-4f55-9d0e-7b1f8a3c2d10";

fn disk(source: NewDiskSource, bus: DiskBus) -> NewDisk {
    NewDisk { source, bus }
}

fn interface(source: NewInterfaceSource) -> NewInterface {
    NewInterface { source, mac: None, backend: None, queues: None }
}

fn small() -> NewDomain {
    NewDomain::new("small", UUID, 1, Bytes::from_mib(512))
}

fn linux() -> NewDomain {
    NewDomain {
        title: Some("orders & invoices".into()),
        class: Some("throughput".into()),
        disks: vec![
            disk(NewDiskSource::Block("/dev/vg/orders".into()), DiskBus::Virtio),
            disk(
                NewDiskSource::Volume {
                    pool: "default".into(),
                    volume: "log.qcow2".into(),
                    format: ImageFormat::Qcow2,
                },
                DiskBus::Scsi,
            ),
            disk(NewDiskSource::File { path: "/images/tmp.raw".into(), format: ImageFormat::Raw }, DiskBus::Virtio),
        ],
        interfaces: vec![
            NewInterface {
                mac: Some("52:54:00:00:00:01".parse().unwrap()),
                backend: Some(NetworkBackend::Vhost),
                queues: Some(4),
                ..interface(NewInterfaceSource::Bridge("br0".into()))
            },
            NewInterface {
                backend: Some(NetworkBackend::Qemu),
                ..interface(NewInterfaceSource::Network("default".into()))
            },
            interface(NewInterfaceSource::Macvtap("eno1".into())),
            interface(NewInterfaceSource::FunctionPool("vfs".into(), Some(VlanId::try_from(7).unwrap()))),
        ],
        ..NewDomain::new("orders", UUID, 8, Bytes::from_mib(8192))
    }
}

fn windows() -> NewDomain {
    NewDomain {
        class: Some("windows".into()),
        firmware: Firmware::Efi,
        system: GuestSystem::Windows,
        disks: vec![disk(
            NewDiskSource::File { path: "/images/win.qcow2".into(), format: ImageFormat::Qcow2 },
            DiskBus::Virtio,
        )],
        interfaces: vec![interface(NewInterfaceSource::Bridge("br0".into()))],
        ..NewDomain::new("desk", UUID, 4, Bytes::from_mib(8192))
    }
}

fn real_time() -> NewDomain {
    let function = |address: &str, network| Function { address: address.parse().unwrap(), network, cell: None };
    NewDomain {
        class: Some("latency".into()),
        hint_dedicated: true,
        invariant_tsc: true,
        functions: vec![
            function("3b:02.1", Some(NetworkFunction { mac: Some("52:54:00:00:00:02".parse().unwrap()), vlan: None })),
            function("81:00.0", None),
        ],
        ..NewDomain::new("plc", UUID, 2, Bytes::from_mib(4096))
    }
}

fn dense() -> NewDomain {
    NewDomain {
        class: Some("density".into()),
        share_pages: true,
        free_page_reporting: true,
        ..NewDomain::new("desk17", UUID, 2, Bytes::from_mib(2048))
    }
}

#[allow(clippy::disallowed_methods, reason = "goldens are plain files of this repository")]
#[test]
fn definitions_are_as_the_goldens_have_them() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/domains/new");
    for domain in [small(), linux(), windows(), real_time(), dense()] {
        let xml = domain.to_xml().unwrap();
        assert_eq!(domain.to_xml().unwrap(), xml, "the same data, the same text");
        let path = format!("{folder}/{}.xml", domain.name);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, xml.as_str()).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap();
        assert_eq!(xml.as_str(), wanted, "\n{}", render_diff(&diff(&wanted, xml.as_str()), "golden", "found"));
    }
}

#[test]
fn what_was_given_is_read_back() {
    let facts = linux().to_xml().unwrap().facts().unwrap();
    assert_eq!((facts.name.as_str(), facts.uuid.as_deref(), facts.kind.as_str()), ("orders", Some(UUID), "kvm"));
    assert_eq!((facts.vcpus.maximum, facts.memory, facts.current_memory), (8, Bytes::from_mib(8192), facts.memory));
    assert_eq!(facts.class.as_deref(), Some("throughput"));
    let disks: Vec<_> = facts.disks.iter().map(|disk| (disk.target.as_str(), disk.source.as_deref())).collect();
    let wanted =
        [("vda", Some("/dev/vg/orders")), ("sda", Some("default/log.qcow2")), ("vdb", Some("/images/tmp.raw"))];
    assert_eq!(disks, wanted);
    let of = |index: usize| {
        let interface = &facts.interfaces[index];
        (interface.kind.as_str(), interface.source.as_deref(), interface.driver_name.as_deref(), interface.queues)
    };
    assert_eq!(of(0), ("bridge", Some("br0"), Some("vhost"), Some(4)));
    assert_eq!(of(1), ("network", Some("default"), Some("qemu"), None));
    assert_eq!(of(2), ("direct", Some("eno1"), None, None));
    assert!(facts.has_agent_channel && facts.boot.is_q35());
    let facts = real_time().to_xml().unwrap().facts().unwrap();
    assert_eq!(facts.functions.len(), 2);
    assert!(facts.functions.iter().all(|function| function.managed && function.cell.is_none()));
}

#[test]
fn what_libvirt_would_refuse_is_refused_here() {
    let refused = |domain: NewDomain, says: &str| {
        let error = domain.to_xml().unwrap_err();
        assert!(matches!(error, DomainError::BadArgument { .. }) && error.to_string().contains(says), "{error}");
    };
    refused(NewDomain { name: "a/b".into(), ..small() }, "a/b");
    refused(NewDomain { uuid: "none".into(), ..small() }, "none");
    refused(NewDomain { vcpus: 0, ..small() }, "vCPUs");
    refused(NewDomain { memory: Bytes::new(1025), ..small() }, "KiB");
    refused(NewDomain { title: Some("two\nlines".into()), ..small() }, "title");
    let relative = NewDiskSource::File { path: "a.raw".into(), format: ImageFormat::Raw };
    refused(NewDomain { disks: vec![disk(relative, DiskBus::Virtio)], ..small() }, "a.raw");
    let one = disk(NewDiskSource::Block("/dev/a".into()), DiskBus::Virtio);
    refused(NewDomain { disks: vec![one; 27], ..small() }, "27");
    let nothing = interface(NewInterfaceSource::Bridge(String::new()));
    refused(NewDomain { interfaces: vec![nothing], ..small() }, "interface");
    let on_cell = Function { address: "3b:00.0".parse().unwrap(), network: None, cell: Some(0) };
    refused(NewDomain { functions: vec![on_cell], ..small() }, "cell");
}

proptest! {
    #[test]
    fn no_text_makes_a_definition_that_says_something_else(name in "[ -~äß€\t]{1,20}", path in "/[ -~ä\n\t]{0,20}") {
        let source = NewDiskSource::Block(path.clone());
        let domain = NewDomain { name: name.clone(), disks: vec![disk(source, DiskBus::Virtio)], ..small() };
        if let Ok(xml) = domain.to_xml() {
            let facts = xml.facts().unwrap();
            prop_assert_eq!(facts.name.as_str(), name.trim());
            prop_assert_eq!(facts.disks[0].source.as_deref(), Some(path.as_str()));
            prop_assert_eq!(facts.disks.len(), 1);
        }
    }
}
